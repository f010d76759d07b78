"""A study's results beside the paper's: runs -> dict."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hitrate_lab.runs.store import Run, Store
from hitrate_lab.studies.rankings import is_accuracy, rankings
from hitrate_lab.studies.registry import protocol_named
from hitrate_lab.studies.running import plan_of, status_of
from hitrate_lab.studies.study_file import Study, StudyMethod

# Printed decimals, and the half of the last one, by which a printed number may be off.
DECIMALS = 2
ROUNDING = 0.5 * 10**-DECIMALS
SVG = "{http://www.w3.org/2000/svg}"

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
    tables = [
        _table(study, measure, title, values, whole) for measure, title in study.measures.items()
    ]
    return {
        "format": "hitrate study",
        "version": 1,
        "name": study.name,
        "title": study.title,
        "reproduces": study.reproduces,
        "differences": protocol.differences(study),
        "planned": status.planned,
        "done": status.done,
        "failed": status.failed,
        "seconds": status.seconds,
        **_made_with(runs),
        "tables": tables,
        "extra_tables": protocol.extra_tables(study, runs),
        "rankings": rankings(study, runs, tables),
        "pictures": _pictures(study, runs),
    }


def _made_with(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Versions, each set of them once, commits apart from them, and what has computed.

    A study that goes on after a change to the code has several commits, and the same versions.
    """
    versions = [{**run.versions} for run in runs]
    commits = {each.pop("commit", "") for each in versions}
    return {
        "made_with": sorted({json.dumps(each, sort_keys=True) for each in versions}),
        "commits": sorted(commits - {""}),
        "processors": sorted({run.result.get("processor", "") for run in runs} - {""}),
        "devices": sorted({run.result.get("device", "cpu") for run in runs} - {"cpu"}),
    }


def _pictures(study: Study, runs: Sequence[Run]) -> list[dict[str, str]]:
    """The protocol's own pictures, with the title and the text that each has inside."""
    if not runs:
        return []
    drawn = protocol_named(study.protocol).pictures(study, runs)
    found = []
    for name, svg in drawn.items():
        root = ElementTree.fromstring(svg)
        title, text = (root.findtext(f"{SVG}{tag}", "") for tag in ("title", "desc"))
        found.append({"name": name, "title": title, "text": text, "svg": svg})
    return found


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

    Data sets that are not in `whole` lack runs: nobody is best there yet. Variants never are, and
    nobody is at a measure that is no accuracy, as its highest need not be best.
    """
    judges = is_accuracy(measure)
    variants = [method.name for method in study.methods if method.variant]
    rows: list[dict[str, Any]] = []
    for data_set in study.data_sets:
        done = data_set in whole
        cells = {
            method.name: _cell(method, measure, data_set, values, done) for method in study.methods
        }
        counted = {name: cell for name, cell in cells.items() if name not in variants}
        ours = {name: cell["mean"] if done else None for name, cell in counted.items()}
        theirs = {name: cell["paper"] for name, cell in counted.items()}
        rows.append(
            {
                "data_set": data_set,
                "complete": done,
                "cells": cells,
                "best": _best(ours) if judges else [],
                "paper_best": _best(theirs) if judges else [],
            }
        )
    every = [cell for row in rows for cell in row["cells"].values()]
    judged = [cell["within"] for cell in every if cell["within"] is not None]
    names = [method.name for method in study.methods]
    return {
        "measure": measure,
        "title": title,
        "methods": names,
        "variants": variants,
        "has_best": judges,
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
