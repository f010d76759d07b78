"""`hitrate compare`."""

from __future__ import annotations

import json
import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitrate_lab.cli.ending import FAILED, STOPPED, complain, ends_well, lost_runs
from hitrate_lab.cli.options import (
    METRIC,
    SLOW,
    TRIALS,
    Cluster,
    CostFile,
    DataDir,
    Encoder,
    Json,
    Metric,
    Seed,
    Target,
    Text,
    Trials,
    encoder_in,
    names,
)
from hitrate_lab.models.family import Family
from hitrate_lab.models.methods import MODELS

if TYPE_CHECKING:
    from hitrate_lab.tables import Table

# "cross_entropy and exact; for mlp cross_entropy and exact_networks"
DEFAULT_LOSSES = "; ".join(
    [
        " and ".join(Family.default_losses),
        *(
            f"for {name} {' and '.join(family.default_losses)}"
            for name, family in MODELS.items()
            if family.default_losses != Family.default_losses
        ),
    ]
)


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
        str, typer.Option(help=f"Of {', '.join(MODELS)}; commas between.")
    ] = "linear,mlp",
    losses: Annotated[
        str | None,
        typer.Option(
            help="Of the losses' names, for mlp of the recipes' too; commas between. By default "
            f"{DEFAULT_LOSSES}.",
            show_default=False,
        ),
    ] = None,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    repeats: Annotated[int, typer.Option(help="How often rows are dealt into folds.")] = 2,
    trials: Trials = TRIALS,
    seed: Seed = 0,
    metric: Metric = METRIC,
    cost: CostFile = None,
    text: Text = True,
    encoder: Encoder = None,
    time_budget: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which no further run begins, but for each method's first.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes; one per core by default.", show_default=False)
    ] = None,
    cluster: Cluster = None,
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
    from hitrate_lab.bad_input import BadInput
    from hitrate_lab.compare import Interrupted
    from hitrate_lab.compare.costs import read_costs
    from hitrate_lab.metrics import metric_named
    from hitrate_lab.tables import read_table
    from hitrate_lab.tables.vectors import read_by

    # Whether the two go together is told before a file is read; any costs will do for that.
    metric_named(metric, costs=None if cost is None else ((0, 1), (1, 0)))
    reads = encoder_in(encoder, text)
    tables = [
        read_table(each, target, data_dir=data_dir, text=text, encoder=reads, progress=complain)
        for each in data
    ]
    doubled = {table.name for table in tables if sum(t.name == table.name for t in tables) > 1}
    if doubled:
        raise BadInput(f"two tables are named {min(doubled)!r}; give their files other names")
    costs = [None if cost is None else read_costs(cost, table.classes) for table in tables]
    for table, each in zip(tables, costs, strict=True):
        metric_named(metric, len(table.classes), each)
    folder = out or Path(f"hitrate-{tables[0].name if len(tables) == 1 else 'comparisons'}")
    options = {
        "models": names(models, "--models"),
        "losses": None if losses is None else names(losses, "--losses"),
        "folds": folds,
        "repeats": repeats,
        "trials": trials,
        "seed": seed,
        "metric": metric,
        "time_budget": time_budget,
        "jobs": jobs,
        "cluster": cluster,
        "retry": retry,
    }
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file; name a folder with --out")
    if time_budget is not None and not math.isfinite(time_budget):
        raise BadInput(f"--time-budget {time_budget}: needs a number of seconds")
    if replaced := _other_report(folder, tables):
        complain(f"note: {folder} has a report of {replaced}, which will be replaced")
    documents: list[dict[str, Any]] = []
    stopped = False
    for table, each in zip(tables, costs, strict=True):
        for note in table.notes:
            complain(f"note: {note}")
        try:
            documents.append(_one(table, folder, {**options, "costs": each}))
        except Interrupted as interrupted:
            documents.append(interrupted.document)
            stopped = True
            break
        for note in documents[-1]["table"]["notes"]:
            if note not in table.notes:
                complain(f"note: {note}")
    report = _kept(folder, documents)
    if as_json:
        print(_text(documents[0] if len(tables) == 1 else _together(documents)))
    else:
        _tell(documents, report)
        advised = documents[0]["recommended"]
        if len(documents) == 1 and advised:
            words = ["hitrate", "fit", data[0], *(["--target", target] if target else [])]
            words += ["--data-dir", str(data_dir)] if data_dir else []
            words += ["--trials", str(trials)] if trials != TRIALS else []
            words += ["--seed", str(seed)] if seed else []
            words += ["--metric", metric] if metric != METRIC else []
            words += ["--cost", str(cost)] if cost else []
            words += [] if text else ["--no-text"]
            _, read = read_by(list(tables[0].features.columns))
            words += ["--encoder", str(encoder)] if read else []
            words += ["--method", advised, "--out", str(folder / "model")]
            print(f"Next:   {shlex.join(words)}")
    if lost := sum(document.get("lost", 0) for document in documents):
        complain(lost_runs(lost))
    if stopped:
        complain("stopped; what is done is kept, the same command goes on from here")
        raise typer.Exit(STOPPED)
    if not any(method["folds"] for document in documents for method in document["methods"]):
        complain(f"every run has failed; {folder / 'comparison.json'} says why")
        raise typer.Exit(FAILED)


def _one(table: Table, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Compare on one table, with a live view."""
    from rich.console import Console

    from hitrate_lab.cli.watching import ComparisonWatcher
    from hitrate_lab.compare import compare as compared
    from hitrate_lab.metrics import METRICS
    from hitrate_lab.models.methods import methods

    labels = {each.name: each.label for each in methods(options["models"], options["losses"])}
    command = shlex.join(["hitrate", *sys.argv[1:]])
    console, metric = Console(stderr=True, highlight=False), METRICS[options["metric"]]
    if table.features.size * len(table.classes) > SLOW and not console.is_terminal:
        counted = f"{len(table.target):,} rows, {len(table.classes):,} classes"
        complain(f"{table.name}: {counted}; the first run may take minutes")
    with ComparisonWatcher(table.name, labels, console, metric) as watcher:
        return compared(
            table, store=folder / "runs.sqlite", observer=watcher, command=command, **options
        )


def _together(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return {"format": "hitrate comparisons", "version": 1, "comparisons": documents}


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, allow_nan=False)


def _other_report(folder: Path, tables: list[Table]) -> str | None:
    """The name of a table that the folder has a report of, if it is none of these."""
    try:
        document = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
        there = [each["table"] for each in document.get("comparisons", [document])]
        known = {(table.fingerprint, table.target_name) for table in tables}
        if any((each["fingerprint"], each["target"]) in known for each in there):
            return None
        return f"{there[0]['name']}, target {there[0]['target']}"
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


def _kept(folder: Path, documents: list[dict[str, Any]]) -> Path:
    """Write the document and its page."""
    from hitrate_lab.report import write_report
    from hitrate_lab.whole_file import write_whole

    document = documents[0] if len(documents) == 1 else _together(documents)
    write_whole(folder / "comparison.json", f"{_text(document)}\n".encode())
    return write_report(document, folder / "report.html")


def _tell(documents: list[dict[str, Any]], report: Path) -> None:
    """The ranking, what to do, and where everything is."""
    from hitrate_lab.cli.ranking import show

    for number, document in enumerate(documents):
        if number:
            print()
        show(document)
    print(f"\nReport: {report}")
