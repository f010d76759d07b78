"""The tables and pictures of docs/toy.md, and the README's picture."""

from __future__ import annotations

from pathlib import Path

from hitrate_lab.pages.made import Made, png_of
from hitrate_lab.toy import figures, studies, tables


def toy(root: Path) -> Made:
    """All that the toy problems show, computed anew: half a minute."""
    results = studies.run()
    return Made(
        {"docs/toy.md": tables.blocks(results)},
        {
            f"docs/images/{name}.png": png_of(draw(results))
            for name, draw in figures.FIGURES.items()
        },
        is_computed=True,
    )
