"""From a comparison or a study to its page, and to pictures as files."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.pictures import PICTURES
from hitrate_lab.pictures.profile import profile
from hitrate_lab.pictures.ranks import ranks
from hitrate_lab.pictures.standalone import standalone
from hitrate_lab.report.several import several
from hitrate_lab.report.study import study
from hitrate_lab.report.view import one
from hitrate_lab.whole_file import write_whole

if TYPE_CHECKING:
    from jinja2 import Environment

# By the document's format: what makes its view, its template, and what stands at the top.
PAGES = {
    "hitrate comparison": (one, "one.html.jinja", "hitrate compare"),
    "hitrate comparisons": (several, "several.html.jinja", "hitrate compare"),
    "hitrate study": (study, "study.html.jinja", "hitrate study"),
}
VERSION = 1


def view(document: dict[str, Any]) -> dict[str, Any]:
    """What the page will say, as plain words and numbers.

    Parameters
    ----------
    document : what ``hitrate compare`` or ``hitrate study report`` print with ``--json``

    Raises
    ------
    BadInput
        For any other document, and for a version that this library does not know.
    """
    form = document.get("format") if isinstance(document, dict) else None
    if not isinstance(form, str) or form not in PAGES:
        raise BadInput(
            f"This is no comparison: its format is {form!r}, not 'hitrate comparison'. "
            "Give the JSON that `hitrate compare --json` or `hitrate study report --json` prints."
        )
    parts = [document]
    if form == "hitrate comparisons":
        parts += document.get("comparisons") or []
    for part in parts:
        if part.get("version") != VERSION:
            raise BadInput(
                f"This {form.split()[1]} has version {part.get('version')!r}; this hitrate reads "
                f"version {VERSION}. Make it again, or install the hitrate it came from."
            )
    make, template, brand = PAGES[form]
    return {"name": "", "lead": "", "template": template, "brand": brand, **make(document)}


def render(document: dict[str, Any]) -> str:
    """The page of a comparison, of several, or of a study: one HTML file that loads nothing.

    Parameters
    ----------
    document : what ``hitrate compare`` or ``hitrate study report`` print with ``--json``

    Returns
    -------
    str
    """
    page = _environment().get_template("page.html.jinja").render(view=view(document))
    # JSON may hold half a surrogate pair, which no file can.
    return page.encode("utf-8", "replace").decode("utf-8")


def write_report(document: dict[str, Any], path: str | Path) -> Path:
    """Write the page to a file, whole or not at all.

    Parameters
    ----------
    document : what ``hitrate compare`` or ``hitrate study report`` print with ``--json``
    path : the file; one that exists is replaced

    Returns
    -------
    Path
    """
    path = Path(path)
    _write(path, render(document))
    return path


def drawn_pictures(document: dict[str, Any]) -> dict[str, str]:
    """A study's own pictures and the diagrams of its rankings, each the text of an .svg file.

    Parameters
    ----------
    document : what ``hitrate study report`` prints with ``--json``

    Returns
    -------
    dict
        By name; those of the study's protocol, and two for each ranking that has ranks, such as
        linear-ranks and linear-profile.
    """
    style = resources.files("hitrate_lab.report").joinpath("templates/style.css").read_text("utf-8")
    shown = view(document)
    drawn = {own["name"]: own["svg"] for own in shown.get("pictures", [])}
    for ranking in shown.get("rankings", []):
        for kind, draw, content in (
            ("ranks", ranks, ranking["diagram"]),
            ("profile", profile, ranking["profiles"]),
        ):
            if content is not None:
                name = f"{ranking['name']}-{kind}"
                drawn[name] = standalone(draw(content, name, wide=True), style)
    return drawn


def write_pictures(document: dict[str, Any], folder: str | Path) -> list[Path]:
    """Write the pictures of `drawn_pictures` as .svg files.

    Parameters
    ----------
    document : what ``hitrate study report`` prints with ``--json``
    folder : made if it is not there; files that exist are replaced

    Returns
    -------
    list of Path
    """
    drawn = drawn_pictures(document)
    for name, svg in drawn.items():
        _write(Path(folder) / f"{name}.svg", svg)
    return [Path(folder) / f"{name}.svg" for name in drawn]


def _write(path: Path, text: str) -> None:
    write_whole(path, text.encode("utf-8", errors="replace"))


@cache
def _environment() -> Environment:
    """Templates, style and script, from wherever the package is installed."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("hitrate_lab.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    assert environment.loader is not None
    for name in ("style.css", "page.js"):
        source, _, _ = environment.loader.get_source(environment, name)
        digest = base64.b64encode(hashlib.sha256(source.encode("utf-8")).digest()).decode("ascii")
        # Safe: our own files. The browser runs these two, by their hash, and nothing else.
        key = name.replace(".", "_")
        environment.globals[key] = Markup(source)
        environment.globals[f"{key}_hash"] = f"'sha256-{digest}'"
    environment.globals["picture"] = PICTURES
    return environment
