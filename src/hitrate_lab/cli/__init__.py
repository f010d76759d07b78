"""The command `hitrate`: a thin shell over functions that Python users can call too."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as missing:
        print(f"hitrate: needs {missing.name}: pip install 'hitrate[cli]'", file=sys.stderr)
        sys.exit(1)
    from hitrate_lab.cli.app import app

    app()
