"""EXACT's Figure 5 on tables: the norms of gradients in the committed runs."""

import gzip
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from hitrate_lab.pictures import multiples
from hitrate_lab.studies import read_study
from hitrate_lab.studies.exact import norms as exact_norms
from hitrate_lab.studies.exact import tables as exact_tables
from hitrate_lab.studies.report import stored_runs
from hitrate_lab.studies.results import load

PROTOCOL = exact_tables.ExactTables()
ROOT = Path(__file__).resolve().parents[4]
LOSSES = ("cross entropy", "hinge", "EXACT")
SVG = "{http://www.w3.org/2000/svg}"


def study_and_runs(name, folder):
    study, store = read_study(ROOT / "studies" / f"{name}.toml"), folder / "runs.sqlite"
    load(ROOT / "studies" / "results" / f"{name}.jsonl.gz", store)
    return study, stored_runs(study, store)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return study_and_runs("exact_table_1_2", tmp_path_factory.mktemp("norms"))


@pytest.fixture(scope="module")
def medians():
    """By data set and loss the median of five seeds (40,), from the file of runs itself."""
    norms = {}
    path = ROOT / "studies" / "results" / "exact_table_1_2.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            run = json.loads(line)
            if run["specification"]["method"] in LOSSES:
                place = run["specification"]["data_set"], run["specification"]["method"]
                norms.setdefault(place, []).append(run["result"]["gradient_norms"])
    assert {len(each) for each in norms.values()} == {5}
    return {place: np.median(each, axis=0) for place, each in norms.items()}


def test_the_table_has_medians_of_the_first_the_twentieth_and_the_last_part(found, medians):
    study, runs = found
    (table,) = PROTOCOL.extra_tables(study, runs)
    rows = iter(table["rows"])
    for data_set in study.data_sets:
        for loss in LOSSES:
            name, method, *numbers = next(rows)
            assert (f"exact/{name}", method) == (data_set, loss)
            parts = medians[data_set, loss]
            expected = [parts[0], parts[19], parts[39], parts[39] / parts[0]]
            assert list(map(float, numbers)) == pytest.approx(expected, rel=5e-3)
            assert all(number == "0" for number, e in zip(numbers, expected, strict=True) if e == 0)
    assert next(rows, None) is None
    assert "40 equal parts of 8,000 steps" in table["text"] and "5 seeds" in table["text"]


def test_the_text_counts_what_grows_and_what_vanishes(found, medians):
    study, runs = found
    (table,) = PROTOCOL.extra_tables(study, runs)

    def names(loss, holds):
        every = (name for name in study.data_sets if holds(medians[name, loss]))
        return [name.removeprefix("exact/") for name in every]

    for words, holds in (
        ("ends above its start", lambda parts: parts[-1] > parts[0]),
        ("it more than doubles", lambda parts: parts[-1] > 2 * parts[19]),
    ):
        counts = [f"{loss}'s on {len(names(loss, holds))}" for loss in LOSSES]
        assert f"{words}: {counts[0]}, {counts[1]} and {counts[2]}." in table["text"]
    gone = names("EXACT", lambda parts: parts[-1] < parts[0] / 1000)
    right = {
        run.specification["data_set"].removeprefix("exact/")
        for run in runs
        if run.specification["method"] == "EXACT" and run.result["train_accuracy"] == 1
    }
    where = f"{', '.join(gone[:-1])} and {gone[-1]}"
    words = f"on {len(right & set(gone))} of which every training row is right."
    assert f"EXACT's on {len(gone)} ({where}), {words}" in table["text"]
    # It is not the same: a gradient may vanish although not all rows are right.
    assert "breast-cancer-wisconsin" in set(gone) - right
    assert "audit-risk" in right - set(gone)


def lines_of(panel):
    """By their colours, the places that lines go through."""
    found = {}
    for line in panel.iter(f"{SVG}polyline"):
        points = [tuple(map(float, each.split(","))) for each in line.get("points").split()]
        found.setdefault(line.get("stroke"), []).append(points)
    return found


def test_the_picture_has_a_panel_for_each_data_set_with_the_medians_as_lines(found, medians):
    study, runs = found
    (drawn,) = PROTOCOL.pictures(study, runs).values()
    root = ElementTree.fromstring(drawn)
    legend = [each.text for each in root.findall(f"{SVG}text")]
    assert set(LOSSES) <= set(legend)
    looks = [each.get("stroke") for each in root.findall(f"{SVG}line")]
    assert len(set(looks)) == 3
    bottom, top = -7, 1
    panels = root.findall(f"{SVG}g")
    assert len(panels) == 10
    for panel, data_set in zip(panels, study.data_sets, strict=True):
        assert panel.findtext(f"{SVG}text") == data_set.removeprefix("exact/")
        lines, falls = lines_of(panel), panel.findall(f"{SVG}polygon")
        expected = [medians[data_set, loss] for loss in LOSSES]
        assert len(falls) == sum(parts[-1] < 10**bottom for parts in expected)
        for look, parts in zip(looks, expected, strict=True):
            places = {}
            for x, y in (point for part in lines[look] for point in part):
                places[round(x / multiples.WIDTH * 40 - 0.5)] = y
            for k, norm in enumerate(parts):
                if norm >= 10**bottom:
                    height = multiples.HEIGHT * (top - math.log10(norm)) / (top - bottom)
                    assert places[k] == pytest.approx(height, abs=0.01)
                else:
                    assert places.get(k, multiples.HEIGHT) == multiples.HEIGHT


def test_the_docs_show_the_picture_of_the_committed_runs(found):
    for name, drawn in PROTOCOL.pictures(*found).items():
        path = ROOT / "docs" / "images" / f"{name}.svg"
        assert path.read_text(encoding="utf-8") == drawn


def test_a_study_that_keeps_no_norms_has_neither_table_nor_picture(found, tmp_path):
    study, runs = study_and_runs("exact_table_5", tmp_path)
    assert len(runs) == 100
    assert PROTOCOL.extra_tables(study, runs) == [] == PROTOCOL.extra_tables(found[0], [])
    assert PROTOCOL.pictures(study, runs) == {} == PROTOCOL.pictures(found[0], [])


def test_an_unfinished_study_shows_what_there_is(found):
    study, runs = found
    few = [
        run
        for run in runs
        if run.specification["data_set"] in ("exact/adult", "exact/wine")
        and run.specification["method"] in ("EXACT", "scikit-learn", "EXACT, weight decay")
        and run.specification["seed"] == 0
    ]
    (table,) = exact_norms.tables(study, few)
    # Variants are left out, and scikit-learn has no norms.
    assert [row[:2] for row in table["rows"]] == [["adult", "EXACT"], ["wine", "EXACT"]]
    assert "Of 2 data sets" in table["text"]
    (drawn,) = exact_norms.figures(study, few).values()
    assert len(ElementTree.fromstring(drawn).findall(f"{SVG}g")) == 2


def test_norms_that_are_zero_throughout_are_no_ratio_and_no_line(found):
    study, runs = found
    (run,) = [
        run
        for run in runs
        if (run.specification["data_set"], run.specification["method"]) == ("exact/car", "EXACT")
        and run.specification["seed"] == 0
    ]
    zero = replace(run, result={**run.result, "gradient_norms": [0.0] * 40})
    (table,) = exact_norms.tables(study, [zero])
    assert table["rows"] == [["car", "EXACT", "0", "0", "0", "-"]]
    (drawn,) = exact_norms.figures(study, [zero]).values()
    assert "polyline" not in drawn and not re.search("nan|inf", drawn)
