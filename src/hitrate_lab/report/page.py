"""From a comparison to its page."""

from __future__ import annotations

import base64
import hashlib
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitrate_lab.report.pictures import PICTURES
from hitrate_lab.report.several import several
from hitrate_lab.report.view import one

if TYPE_CHECKING:
    from jinja2 import Environment

VIEWS = {"hitrate comparison": one, "hitrate comparisons": several}
VERSION = 1


def view(document: dict[str, Any]) -> dict[str, Any]:
    """What the page will say, as plain words and numbers.

    Parameters
    ----------
    document : what ``hitrate compare --json`` prints, or several of them together

    Raises
    ------
    BadInput
        For any other document, and for a version that this library does not know.
    """
    form = document.get("format") if isinstance(document, dict) else None
    if not isinstance(form, str) or form not in VIEWS:
        raise _bad_input(
            f"This is no comparison: its format is {form!r}, not 'hitrate comparison'. "
            "Give the JSON that `hitrate compare --json` prints."
        )
    parts = [document]
    if form == "hitrate comparisons":
        parts += document.get("comparisons") or []
    for part in parts:
        if part.get("version") != VERSION:
            raise _bad_input(
                f"This comparison has version {part.get('version')!r}; this hitrate reads "
                f"version {VERSION}. Run the comparison again, or install the hitrate it came from."
            )
    return {"format": form, **VIEWS[form](document)}


def render(document: dict[str, Any]) -> str:
    """The page of a comparison, or of several: one HTML file that loads nothing.

    Parameters
    ----------
    document : what ``hitrate compare --json`` prints, or several of them together

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
    document : what ``hitrate compare --json`` prints, or several of them together
    path : the file; one that exists is replaced

    Returns
    -------
    Path
    """
    path = Path(path)
    text = render(document)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _bad_input(message: str) -> ValueError:
    # Reading tables needs pandas; a page does not.
    from hitrate_lab.data import BadInput

    return BadInput(message)


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
