"""`hitrate study list | run | status | report | export`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitrate_lab.bad_input import BadInput
from hitrate_lab.cli.ending import FAILED, STOPPED, complain, ends_well, lost_runs
from hitrate_lab.cli.options import Cluster, DataDir, Json

if TYPE_CHECKING:
    from hitrate_lab.studies import Status, Study

study_app = typer.Typer(
    name="study",
    help="Run the papers' studies, and put the results beside the papers' numbers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(help="A study's name, or the path of its .toml file.")]
StoreFile = Annotated[
    Path | None,
    typer.Option(
        "--store", help="File of runs; build/studies/NAME.sqlite by default.", show_default=False
    ),
]
Results = Annotated[
    Path | None,
    typer.Option(
        help="A .jsonl(.gz) file of runs, to read instead of the store.", show_default=False
    ),
]


@study_app.command("list")
@ends_well
def list_studies(as_json: Json = False) -> None:
    """List the studies that have a name, and how far each is."""
    from hitrate_lab.studies import found_studies

    rows = [_listed(path) for path in found_studies()]
    if as_json:
        print(json.dumps(rows))
        return
    if not rows:
        print("There is no folder studies here. Give the path of a study's .toml file instead.")
    for row in rows:
        far = f"{row['done']} of {row['planned']} runs done"
        print(f"{row['name']}: {row['title'] or row['file']}, {row['problem'] or far}")


@study_app.command("run")
@ends_well
def run(
    name: Name,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Processes; by default one per core, with --device four at most.",
            show_default=False,
        ),
    ] = None,
    cluster: Cluster = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run again what has failed.")] = False,
    device: Annotated[
        str, typer.Option(help="Where tensors live, such as cuda, for studies that can use it.")
    ] = "cpu",
    store: StoreFile = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Run what is missing of a study.

    Each result is kept as soon as it is there: the same command goes on where it stopped.
    """
    from rich.console import Console

    from hitrate_lab.cli.watching import StudyWatcher
    from hitrate_lab.studies import find_study, run_study, status_of

    study = find_study(name)
    path = _store(study.name, store)
    try:
        with StudyWatcher(study.name, Console(stderr=True, highlight=False)) as watcher:
            status = run_study(
                study,
                store=path,
                jobs=jobs,
                cluster=cluster,
                data_dir=data_dir,
                retry=retry,
                device=device,
                observer=watcher,
            )
    except KeyboardInterrupt:
        _show(status_of(study, path), as_json)
        complain("stopped; what is done is kept, the same command goes on from here")
        raise typer.Exit(STOPPED) from None
    _show(status, as_json)
    if status.lost:
        complain(lost_runs(status.lost))
    if status.failed:
        waiting = f"; {status.waiting} runs wait for others that failed" if status.waiting else ""
        complain(f"{status.failed} runs have failed{waiting}; --retry runs them again")
    if status.lost or status.failed:
        raise typer.Exit(FAILED)
    if not as_json:
        print(f"Next: hitrate study report {name}" + (f" --store {store}" if store else ""))


@study_app.command("status")
@ends_well
def status(name: Name, store: StoreFile = None, as_json: Json = False) -> None:
    """Count the runs of a study that are done, have failed, and are missing."""
    from hitrate_lab.studies import find_study, status_of

    study = find_study(name)
    _show(status_of(study, _store(study.name, store)), as_json, by_set=True)


@study_app.command("report")
@ends_well
def report(
    name: Name,
    store: StoreFile = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A .md file for the report; else it is printed.", show_default=False),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="An .html file for the report, with pictures.", show_default=False),
    ] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(help="A folder for the pictures, as .svg files.", show_default=False),
    ] = None,
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Put a study's results beside the paper's numbers, and rank its methods.

    The report is printed in Markdown if no file is named for it.
    """
    import shlex
    import sys

    from hitrate_lab.report import write_pictures, write_report
    from hitrate_lab.studies import document, find_study, markdown
    from hitrate_lab.whole_file import write_whole

    study = find_study(name)
    with _runs_of(study, store, results) as path:
        found = document(study, path)
        if not found["done"]:
            complain(f"note: no run of {study.name} is in {results or path} yet")
    found["commands"] = [
        shlex.join(["hitrate", "study", "run", name]),
        shlex.join(["hitrate", *sys.argv[1:]]),
    ]
    written = []
    if out is not None:
        write_whole(out, markdown(found).encode())
        written.append(f"Report: {out}")
    if html is not None:
        written.append(f"Report: {write_report(found, html)}")
    if pictures is not None:
        drawn = write_pictures(found, pictures)
        if not drawn:
            complain("note: no pictures; ranks need three methods and five complete data sets")
        written += [f"Picture: {path}" for path in drawn]
    if as_json:
        print(json.dumps(found))
    else:
        is_printed = out is html is pictures is None
        print(markdown(found) if is_printed else "\n".join(written))


@study_app.command("export")
@ends_well
def export_runs(
    name: Name,
    out: Annotated[
        Path,
        typer.Option(
            help="A .jsonl or .jsonl.gz file, which `report --results` reads, .csv or .parquet.",
            show_default=False,
        ),
    ],
    store: StoreFile = None,
    results: Results = None,
) -> None:
    """Write all finished runs of a study to one file.

    The same runs give the same file, byte for byte.
    """
    from hitrate_lab.studies import find_study, plan_of
    from hitrate_lab.studies.results import export

    study = find_study(name)
    with _runs_of(study, store, results) as path:
        count = export(study, path, out)
    print(f"{count:,} of {len(plan_of(study)):,} runs: {out}")


@contextlib.contextmanager
def _runs_of(study: Study, store: Path | None, results: Path | None) -> Iterator[Path]:
    """The store to read: the given file of runs in one of its own, for as long as it is read."""
    import tempfile

    from hitrate_lab.studies.results import load

    if results is None:
        yield _store(study.name, store)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.sqlite"
        load(results, path)
        yield path


def _listed(path: Path) -> dict[str, Any]:
    """What the list says of a study; of one that cannot be used here, why."""
    from hitrate_lab.studies import read_study, status_of

    row = dict.fromkeys(("title", "reproduces", "planned", "done", "problem"))
    found: dict[str, Any] = {"name": path.stem, "file": str(path), **row}
    try:
        study = read_study(path)
        found.update(title=study.title, reproduces=study.reproduces)
        status = status_of(study, _store(study.name, None))
        found.update(planned=status.planned, done=status.done)
    except BadInput as error:
        found["problem"] = str(error)
    return found


def _store(name: str, given: Path | None) -> Path:
    return given or Path("build") / "studies" / f"{name}.sqlite"


def _show(status: Status, as_json: bool, by_set: bool = False) -> None:
    if as_json:
        print(json.dumps(status.to_json()))
        return
    waiting = f", {status.waiting} of them wait for failed ones" if status.waiting else ""
    print(
        f"{status.name}: {status.done} of {status.planned} runs done, {status.failed} failed, "
        f"{status.missing} missing{waiting}; {status.seconds:,.0f} s of work in {status.store}"
    )
    if by_set:
        for name, counts in status.data_sets.items():
            failed = f", {counts['failed']} failed" if counts["failed"] else ""
            print(f"  {name}: {counts['done']} of {counts['planned']}{failed}")
    for failure in status.failures[:5]:
        print(f"  failed: {failure['run']}: {failure['error']}")
    if len(status.failures) > 5:
        print(f"  and {len(status.failures) - 5} more; --json shows all, with tracebacks")
