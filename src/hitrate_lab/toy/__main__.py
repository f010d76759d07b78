"""Print the tables and draw the pictures: ``python -m hitrate_lab.toy --out build/toy``."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from hitrate_lab.toy import figures, studies, tables

SUMMARY = "Every loss of hitrate on the two toy problems of the EXACT paper."


def main(argv: Sequence[str] | None = None) -> None:
    """Run the studies, show and keep what they found."""
    parser = argparse.ArgumentParser(prog="python -m hitrate_lab.toy", description=SUMMARY)
    parser.add_argument("--out", type=Path, default=Path("build/toy"), help="for the pictures")
    parser.add_argument("--docs", type=Path, help="page to fill; pictures go to images/ beside it")
    options = parser.parse_args(argv)
    results = studies.run()
    print(tables.report(results), end="\n\n")
    options.out.mkdir(parents=True, exist_ok=True)
    for name, draw in figures.FIGURES.items():
        path = options.out / f"{name}.png"
        draw(results).savefig(path)
        print(path)
    if options.docs is not None:
        page = options.docs.read_text(encoding="utf-8")
        options.docs.write_text(tables.filled(page, results), encoding="utf-8")
        images = options.docs.parent / "images"
        images.mkdir(exist_ok=True)
        for name in figures.FIGURES:
            shutil.copy(options.out / f"{name}.png", images)


if __name__ == "__main__":
    main()
