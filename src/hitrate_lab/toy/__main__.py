"""Print the tables and draw the pictures: ``python -m hitrate_lab.toy --out build/toy``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from hitrate_lab.toy import figures, studies, tables

SUMMARY = "Every loss of hitrate on the two toy problems of the EXACT paper."


def main(argv: Sequence[str] | None = None) -> None:
    """Run the studies, show and keep what they found."""
    parser = argparse.ArgumentParser(prog="python -m hitrate_lab.toy", description=SUMMARY)
    parser.add_argument("--out", type=Path, default=Path("build/toy"), help="for the pictures")
    options = parser.parse_args(argv)
    results = studies.run()
    print(tables.report(results), end="\n\n")
    options.out.mkdir(parents=True, exist_ok=True)
    for name, draw in figures.FIGURES.items():
        path = options.out / f"{name}.png"
        draw(results).savefig(path)
        print(path)


if __name__ == "__main__":
    main()
