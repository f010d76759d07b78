"""The table of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from hitrate_lab.cli.compare import compare
from hitrate_lab.cli.fit import fit
from hitrate_lab.cli.headroom import headroom
from hitrate_lab.cli.predict import predict
from hitrate_lab.cli.study import study_app

app = typer.Typer(
    name="hitrate",
    help="Train classifiers for accuracy, and find out whether it helps on your data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (compare, fit, predict, headroom):
    app.command()(command)
app.add_typer(study_app)


def _version(wanted: bool) -> None:
    if wanted:
        import hitrate

        typer.echo(f"hitrate {hitrate.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Train classifiers for accuracy, and find out whether it helps on your data."""
