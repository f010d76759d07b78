"""The command `hitrate`: a thin shell over functions that Python users can call too."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run the command line."""
    try:
        _run()
    except KeyboardInterrupt:
        # While it is still being imported; later each command has its own end.
        print("hitrate: stopped", file=sys.stderr)
        sys.exit(130)


def _run() -> None:
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as missing:
        print(f"hitrate: needs {missing.name}: pip install 'hitrate[cli]'", file=sys.stderr)
        sys.exit(1)
    from hitrate_lab.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        # A label that the terminal has no letters for is no reason to stop.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
