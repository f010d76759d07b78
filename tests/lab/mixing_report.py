"""The report of Mixing's Table 4 from the committed runs, for tests that look at it."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

from hitrate_lab.studies import document, read_study
from hitrate_lab.studies.results import load

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "studies" / "mixing_table_4.toml"
RESULTS = ROOT / "studies" / "results" / "mixing_table_4.jsonl.gz"
# Data sets on which methods differ much, little and not at all.
SETS = [
    f"uci121/{name}"
    for name in (
        "abalone",
        "acute-nephritis",
        "balance-scale",
        "car",
        "ecoli",
        "glass",
        "hill-valley",
        "iris",
        "letter",
        "oocytes_merluccius_nucleus_4d",
        "yeast",
        "zoo",
    )
]


def committed_runs():
    """Specifications and results."""
    with gzip.open(RESULTS, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def runs_of(data_sets, path):
    """A file with the runs of some data sets alone."""
    chosen = [run for run in committed_runs() if run["specification"]["data_set"] in data_sets]
    path.write_text("".join(f"{json.dumps(run)}\n" for run in chosen), encoding="utf-8")
    return path


def report_of(folder, results=RESULTS, data_sets=None):
    """The document that reports on a file of runs, for a study of some data sets or of all."""
    store, study = folder / "runs.sqlite", read_study(STUDY)
    load(results, store)
    return document(study if data_sets is None else replace(study, data_sets=data_sets), store)


def renamed(content, names):
    """The same document with other words, as keys and as values."""
    if isinstance(content, dict):
        return {names.get(key, key): renamed(value, names) for key, value in content.items()}
    if isinstance(content, list):
        return [renamed(each, names) for each in content]
    return names.get(content, content) if isinstance(content, str) else content
