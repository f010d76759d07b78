"""Write the generated tables and pictures anew: ``python -m hitrate_lab.pages``.

Run it in the root of the repository; ``--check`` writes nothing and says what is stale.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from hitrate_lab.pages.made import stale, write
from hitrate_lab.pages.registry import GENERATORS

SUMMARY = "Write all generated tables and pictures of README and docs, from committed results."


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m hitrate_lab.pages", description=SUMMARY)
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of " + ", ".join(GENERATORS))
    parser.add_argument("--check", action="store_true", help="write nothing, say what is stale")
    options = parser.parse_args(argv)
    unknown = [name for name in options.names if name not in GENERATORS]
    if unknown:
        parser.error(f"no generator {', '.join(unknown)}; there are {', '.join(GENERATORS)}")
    root = Path.cwd()
    if not (root / "studies" / "results").is_dir():
        parser.error(f"{root} has no studies/results: run this in the root of the repository")
    found = []
    for name in options.names or GENERATORS:
        made = GENERATORS[name](root)
        for path in stale(made, root) if options.check else write(made, root):
            print(f"{path}: {'stale' if options.check else 'written'}, {name}")
            found.append(name)
    if found and options.check:
        names = " ".join(dict.fromkeys(found))
        raise SystemExit(f"`make pages` mends them, or: python -m hitrate_lab.pages {names}")
    if not found:
        print("All are as they should be.")


if __name__ == "__main__":
    main()
