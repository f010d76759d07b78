"""What a generator makes, and how it gets into the files of the repository."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.whole_file import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
# Levels of a colour, of 255, and pixels, within which two pictures of the same data may differ.
LEVELS, PIXELS = 32, 10


@dataclass(frozen=True)
class Made:
    """What a generator makes.

    Attributes
    ----------
    blocks : dict
        For each page, by its path from the repository's root, what stands between its marks
        ``<!-- NAME:start -->`` and ``<!-- NAME:end -->``, by their names.
    pictures : dict
        By their paths: the text of an .svg file, or what `png_of` makes of a figure.
    is_computed : bool
        Whether numbers are computed here instead of read from results. Processors round
        differently: such a page is as it should be up to one unit of a number's last digit.
    """

    blocks: dict[str, dict[str, str]] = field(default_factory=dict)
    pictures: dict[str, str | bytes] = field(default_factory=dict)
    is_computed: bool = False


def stale(made: Made, root: Path) -> list[str]:
    """Files that are not as they should be.

    Parameters
    ----------
    made : Made
    root : Path
        The repository.
    """
    return [name for name, _ in _changes(made, root)]


def write(made: Made, root: Path) -> list[str]:
    """Write those files anew that are stale; which they were.

    Parameters
    ----------
    made : Made
    root : Path
        The repository.
    """
    changes = list(_changes(made, root))
    for name, content in changes:
        write_whole(root / name, content)
    return [name for name, _ in changes]


def filled(page: str, blocks: dict[str, str]) -> str:
    r"""A page's text with its blocks in their places.

    Parameters
    ----------
    page : str
    blocks : dict
        By the names of their marks, each of which the page has once.

    Examples
    --------
    >>> filled("<!-- n:start -->\n1\n<!-- n:end -->", {"n": "2"})
    '<!-- n:start -->\n2\n<!-- n:end -->'
    """
    for name, block in blocks.items():
        start, end = f"<!-- {name}:start -->\n", f"\n<!-- {name}:end -->"
        head, found, rest = page.partition(start)
        _, ended, tail = rest.partition(end)
        if not (found and ended) or start in tail:
            raise BadInput(f"a page needs the marks {start.strip()} and {end.strip()} once")
        page = f"{head}{start}{block}{end}{tail}"
    return page


def agrees(one: str, other: str) -> bool:
    """Whether two texts are equal up to a unit of the last digit of each number.

    >>> agrees("0.500 of 3", "0.501 of 3"), agrees("0.500 of 3", "0.502 of 3")
    (True, False)
    """
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(
        abs(float(a) - float(b)) <= 1.01 * 10.0 ** -len(a.partition(".")[2]) if a != b else True
        for a, b in pairs
    )


def _changes(made: Made, root: Path) -> Iterator[tuple[str, bytes]]:
    """Each stale file with what should be in it."""
    for name, blocks in made.blocks.items():
        old = (root / name).read_text(encoding="utf-8")
        new = filled(old, blocks)
        if not (agrees(old, new) if made.is_computed else old == new):
            yield name, new.encode()
    for name, picture in made.pictures.items():
        file = root / name
        if isinstance(picture, str):
            if not file.is_file() or file.read_bytes() != picture.encode():
                yield name, picture.encode()
        elif not same_picture(picture, file):
            yield name, picture


def png_of(figure: Figure) -> bytes:
    """A PNG with a palette: a third of the bytes, and no difference to be seen.

    Parameters
    ----------
    figure : Figure
        Not drawn before: its layout moves a little with each time.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    picture = Image.fromarray(_array(canvas.buffer_rgba())).convert("RGB")
    file = io.BytesIO()
    picture.quantize(64, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


def same_picture(png: bytes, file: Path) -> bool:
    """Whether a file shows the same, up to how processors round.

    Parameters
    ----------
    png : bytes
    file : Path
    """
    import numpy as np
    from PIL import Image

    if not file.is_file():
        return False
    one, other = (
        _array(Image.open(each).convert("RGB")).astype(np.int16)
        for each in (io.BytesIO(png), io.BytesIO(file.read_bytes()))
    )
    if one.shape != other.shape:
        return False
    return bool((abs(one - other).max(axis=2) > LEVELS).sum() <= PIXELS)


def _array(picture: Any) -> Any:
    import numpy as np

    return np.asarray(picture)
