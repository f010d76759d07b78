"""`hitrate compare`."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitrate_lab.cli.ending import FAILED, STOPPED, complain, ends_well
from hitrate_lab.cli.options import DataDir, Json, Seed, Target, Trials, names

if TYPE_CHECKING:
    from hitrate_lab.data import Table


@ends_well
def compare(
    data: Annotated[
        list[str],
        typer.Argument(
            help="A CSV, TSV or Parquet file, or a built-in name: car, wine, breast-cancer, "
            "digits, iris. Several are compared one after the other."
        ),
    ],
    target: Target = None,
    models: Annotated[
        str, typer.Option(help="Of linear, mlp, xgboost, lightgbm; commas between.")
    ] = "linear,mlp",
    losses: Annotated[
        str, typer.Option(help="Of the losses' names; commas between.")
    ] = "cross_entropy,exact",
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    repeats: Annotated[int, typer.Option(help="How often rows are dealt into folds.")] = 2,
    trials: Trials = 4,
    seed: Seed = 0,
    time_budget: Annotated[
        float | None,
        typer.Option(help="Seconds after which no further run begins.", show_default=False),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes; one per core by default.", show_default=False)
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run again what has failed.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the report; hitrate-<name> by default.", show_default=False),
    ] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Find out which way of training is the most accurate on a table, and whether that is real.

    What is done is kept in the report's folder: the same command goes on where it stopped.
    """
    from hitrate_lab.data import BadInput, read_table
    from hitrate_lab.protocols.compare import Interrupted

    tables = [read_table(each, target, data_dir=data_dir) for each in data]
    doubled = {table.name for table in tables if sum(t.name == table.name for t in tables) > 1}
    if doubled:
        raise BadInput(f"two tables are named {min(doubled)!r}; give their files other names")
    folder = out or Path(f"hitrate-{tables[0].name if len(tables) == 1 else 'comparisons'}")
    options = {
        "models": names(models, "--models"),
        "losses": names(losses, "--losses"),
        "folds": folds,
        "repeats": repeats,
        "trials": trials,
        "seed": seed,
        "time_budget": time_budget,
        "jobs": jobs,
        "retry": retry,
    }
    documents: list[dict[str, Any]] = []
    stopped = False
    for table in tables:
        for note in table.notes:
            complain(f"note: {note}")
        try:
            documents.append(_one(table, folder, options))
        except Interrupted as interrupted:
            documents.append(interrupted.document)
            stopped = True
            break
    report = _kept(folder, documents)
    if as_json:
        print(json.dumps(documents[0] if len(tables) == 1 else _together(documents)))
    else:
        _tell(documents, folder, report, data, target)
    if stopped:
        complain("stopped; what is done is kept, the same command goes on from here")
        raise typer.Exit(STOPPED)
    if not any(method["folds"] for document in documents for method in document["methods"]):
        complain(f"every run has failed; {folder / 'comparison.json'} says why")
        raise typer.Exit(FAILED)


def _one(table: Table, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Compare on one table, with a live view."""
    from rich.console import Console

    from hitrate_lab.cli.live import Watch
    from hitrate_lab.models.methods import methods
    from hitrate_lab.protocols import compare as protocol

    labels = {each.name: each.label for each in methods(options["models"], options["losses"])}
    command = shlex.join(["hitrate", *sys.argv[1:]])
    with Watch(table.name, labels, Console(stderr=True, highlight=False)) as watch:
        return protocol.compare(
            table, store=folder / "runs.sqlite", observer=watch, command=command, **options
        )


def _together(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return {"format": "hitrate comparisons", "version": 1, "comparisons": documents}


def _kept(folder: Path, documents: list[dict[str, Any]]) -> Path:
    """Write the document and its page."""
    from hitrate_lab.report import write_report

    document = documents[0] if len(documents) == 1 else _together(documents)
    new = folder / ".comparison.json.new"
    new.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    new.replace(folder / "comparison.json")
    return write_report(document, folder / "report.html")


def _tell(
    documents: list[dict[str, Any]], folder: Path, report: Path, data: list[str], target: str | None
) -> None:
    """The ranking, what to do, and where everything is."""
    from hitrate_lab.cli.live import show

    for number, document in enumerate(documents):
        if number:
            print()
        show(document)
    print(f"\nReport: {report}")
    advised = documents[0].get("recommended")
    if len(documents) == 1 and advised:
        model = ["hitrate", "fit", data[0], *(["--target", target] if target else [])]
        model += ["--method", advised, "--out", str(folder / "model")]
        print(f"Next:   {shlex.join(model)}")
