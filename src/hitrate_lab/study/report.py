"""A study's results beside the paper's: rows -> dict -> Markdown, CSV or Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import json
import statistics
from pathlib import Path
from typing import Any

from hitrate_lab.data.bad_input import BadInput
from hitrate_lab.store import Run, Store
from hitrate_lab.study.engine import plan_of, status_of
from hitrate_lab.study.file import Study, StudyMethod
from hitrate_lab.study.protocols import protocol_named

# Printed decimals, and the half of the last one, by which a printed number may be off.
DECIMALS = 2
ROUNDING = 0.5 * 10**-DECIMALS

Values = dict[tuple[str, str, str], list[float]]


def document(study: Study, store: Path | str) -> dict[str, Any]:
    """All numbers of the report, as plain JSON.

    Parameters
    ----------
    study : Study
    store : Path
        File of runs; the study may be unfinished.
    """
    status = status_of(study, store)
    runs = stored_runs(study, store)
    protocol = protocol_named(study.protocol)
    values: Values = {}
    for run in runs:
        for measure, data_set, method, value in protocol.cells(run.specification, run.result):
            values.setdefault((measure, data_set, method), []).append(value)
    whole = {name for name, count in status.data_sets.items() if count["done"] == count["planned"]}
    extra = getattr(protocol, "extra_tables", None)
    return {
        "format": "hitrate study",
        "version": 1,
        "name": study.name,
        "title": study.title,
        "reproduces": study.reproduces,
        "differences": list(study.differences),
        "planned": status.planned,
        "done": status.done,
        "failed": status.failed,
        "seconds": status.seconds,
        "made_with": sorted({json.dumps(run.versions, sort_keys=True) for run in runs}),
        "processors": sorted({run.result.get("processor", "") for run in runs} - {""}),
        "tables": [
            _table(study, measure, title, values, whole)
            for measure, title in study.measures.items()
        ],
        "extra_tables": [] if extra is None else extra(study, runs),
    }


def load(results: Path, store: Path) -> int:
    """Put runs from a file into a store; those that it has stay as they are.

    Parameters
    ----------
    results : Path
        One run to a line, as JSON with "specification", "result" and "versions"; .jsonl or
        .jsonl.gz.
    store : Path

    Returns
    -------
    int
        How many are new.
    """
    new = 0
    try:
        opened = gzip.open if results.suffix == ".gz" else open
        with opened(results, "rt", encoding="utf-8") as lines, Store(store) as runs:
            for line in lines:
                run = json.loads(line)
                new += runs.add(run["specification"], run["result"], run["versions"])
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{results}: is no file of runs ({error})") from None
    return new


def stored_runs(study: Study, store: Path | str) -> list[Run]:
    """Finished runs of a study, in the order of its plan; none if the store is not there.

    Parameters
    ----------
    study : Study
    store : Path
    """
    if not Path(store).is_file():
        return []
    with Store(store) as runs:
        return runs.runs(plan_of(study))


def _table(
    study: Study, measure: str, title: str, values: Values, whole: set[str]
) -> dict[str, Any]:
    """One measure: a row for each data set, a cell for each method, and who is best.

    Data sets that are not in `whole` lack runs: nobody is best there yet.
    """
    rows: list[dict[str, Any]] = []
    for data_set in study.data_sets:
        done = data_set in whole
        cells = {
            method.name: _cell(method, measure, data_set, values, done) for method in study.methods
        }
        ours = {name: cell["mean"] if done else None for name, cell in cells.items()}
        theirs = {name: cell["paper"] for name, cell in cells.items()}
        rows.append(
            {
                "data_set": data_set,
                "complete": done,
                "cells": cells,
                "best": _best(ours),
                "paper_best": _best(theirs),
            }
        )
    every = [cell for row in rows for cell in row["cells"].values()]
    judged = [cell["within"] for cell in every if cell["within"] is not None]
    names = [method.name for method in study.methods]
    return {
        "measure": measure,
        "title": title,
        "methods": names,
        "rows": rows,
        "within": sum(judged),
        "judged": len(judged),
        "best": {name: sum(name in row["best"] for row in rows) for name in names},
        "paper_best": {name: sum(name in row["paper_best"] for row in rows) for name in names},
    }


def _cell(
    method: StudyMethod, measure: str, data_set: str, values: Values, done: bool
) -> dict[str, Any]:
    """Our mean, deviation and n beside the paper's numbers.

    `within` says whether the paper's mean is at most two of our deviations from ours, but for the
    rounding of what is printed; None until the data set is done, or if the paper has no number.
    """
    found = values.get((measure, data_set, method.name), [])
    paper, paper_std = method.paper.get(measure, {}).get(data_set, (None, None))
    mean = statistics.fmean(found) if found else None
    std = statistics.stdev(found) if len(found) > 1 else None
    within = None
    if mean is not None and paper is not None and done:
        within = abs(mean - paper) <= 2 * (std or 0.0) + ROUNDING + 1e-9
    return {
        "mean": mean,
        "std": std,
        "n": len(found),
        "paper": paper,
        "paper_std": paper_std,
        "within": within,
    }


def _best(means: dict[str, float | None]) -> list[str]:
    """Who has the highest mean as it is printed; nobody while one is missing."""
    printed = {name: round(mean, DECIMALS) for name, mean in means.items() if mean is not None}
    if len(printed) < len(means) or len(means) < 2:
        return []
    return [name for name, mean in printed.items() if mean == max(printed.values())]


def markdown(report: dict[str, Any]) -> str:
    """The report as a page of Markdown.

    Parameters
    ----------
    report : dict
        As from `document`.
    """
    lines = [f"# {report['title']}", "", f"Reproduces {report['reproduces']}.", ""]
    lines.append(_progress(report))
    for table in report["tables"]:
        lines += ["", f"## {table['title']}", ""]
        lines += _markdown_table(table)
        lines += ["", *_findings(table)]
    for table in report["extra_tables"]:
        lines += ["", f"## {table['title']}", ""]
        lines += _lines([table["head"], ["---"] * len(table["head"]), *table["rows"]])
        lines += ["", table["text"]]
    if report["differences"]:
        lines += ["", "## Where this differs from the paper", ""]
        lines += [f"- {difference}" for difference in report["differences"]]
    for machine in report["processors"]:
        lines += ["", f"Processor: {machine}."]
    for made_with in report["made_with"]:
        parts = json.loads(made_with)
        lines += ["", f"Made with {', '.join(f'{k} {v}' for k, v in parts.items())}."]
    return "\n".join(lines) + "\n"


def _progress(report: dict[str, Any]) -> str:
    failed = f", {report['failed']} failed" if report["failed"] else ""
    return (
        f"{report['done']} of {report['planned']} runs{failed}; {report['seconds']:,.0f} s of "
        "training in all. Mean ± standard deviation (n), the paper's beside ours; the best of "
        "each row is bold, as printed."
    )


def _markdown_table(table: dict[str, Any]) -> list[str]:
    head, rule = ["data set"], ["---"]
    for name in table["methods"]:
        head += [name, "paper"]
        rule += ["---:", "---:"]
    rows = [head, rule]
    for row in table["rows"]:
        line = [row["data_set"].split("/")[-1]]
        for name in table["methods"]:
            cell = row["cells"][name]
            ours = _number(cell["mean"], cell["std"])
            if cell["n"]:
                ours = f"{_bold(ours, name in row['best'])} ({cell['n']})"
            paper = _bold(_number(cell["paper"], cell["paper_std"]), name in row["paper_best"])
            line += [ours, paper]
        rows.append(line)
    total = ["best or equal"]
    for name in table["methods"]:
        total += [str(table["best"][name]), str(table["paper_best"][name])]
    rows.append(total)
    return _lines(rows)


def _lines(rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in rows]


def _findings(table: dict[str, Any]) -> list[str]:
    """How much agrees with the paper, and who wins where."""
    lines = []
    if table["judged"]:
        lines.append(
            "The paper's number is within two standard deviations of our mean, or as close as its "
            f"rounding, in {table['within']} of {table['judged']} cells."
        )
    for name in table["methods"]:
        where = [row["data_set"].split("/")[-1] for row in table["rows"] if row["best"] == [name]]
        if where:
            lines.append(f"{name} alone is best on {', '.join(where)}.")
    shared = [row["data_set"].split("/")[-1] for row in table["rows"] if len(row["best"]) > 1]
    if shared:
        lines.append(f"Several are best on {', '.join(shared)}.")
    unfinished = sum(not row["complete"] for row in table["rows"])
    if unfinished:
        lines.append(f"Rows that are not complete yet, and not judged: {unfinished}.")
    return [" ".join(lines)]


def _number(mean: float | None, std: float | None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.{DECIMALS}f}" + ("" if std is None else f" ± {std:.{DECIMALS}f}")


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def rows_of(study: Study, store: Path | str) -> list[dict[str, Any]]:
    """Finished runs as flat rows: what was asked for, what came of it, and with which versions.

    Parameters
    ----------
    study : Study
    store : Path
    """
    rows = []
    for run in stored_runs(study, store):
        row: dict[str, Any] = {"key": run.key, "finished": run.finished}
        for part in (run.specification, run.result, {"versions": run.versions}):
            row.update(_flat(part))
        rows.append(row)
    return rows


def _flat(content: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Tables inside of tables become columns with dots; lists stay one cell, as JSON."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{before}{key}."))
        else:
            flat[before + key] = json.dumps(value) if isinstance(value, list) else value
    return flat


def export(study: Study, store: Path | str, path: Path) -> int:
    """Write all finished runs to a .csv or .parquet file; how many they are.

    Parameters
    ----------
    study : Study
    store : Path
    path : Path
    """
    rows = rows_of(study, store)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if path.suffix == ".csv":
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write(path, text.getvalue().encode())
    elif path.suffix == ".parquet":
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise BadInput(
                f"{path}: Parquet needs pyarrow: pip install 'hitrate[parquet]'"
            ) from error
        # A column that has numbers here and texts there is text.
        table = pyarrow.table({name: _column([row.get(name) for row in rows]) for name in columns})
        content = io.BytesIO()
        pyarrow.parquet.write_table(table, content)
        write(path, content.getvalue())
    else:
        raise BadInput(f"{path}: runs are written to .csv or .parquet files")
    return len(rows)


def _column(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1:
        return values
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]


def write(path: Path, content: bytes) -> None:
    """Write a file in one go: whoever reads it sees the old one or the new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_bytes(content)
        new.replace(path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from error
