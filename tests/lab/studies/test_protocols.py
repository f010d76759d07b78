"""Every registered protocol goes through every hook, with some runs of a committed study."""

import gzip
import inspect
import itertools
import json
import math
import pickle
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hitrate_lab.runs.store import Run, canonical, key_of
from hitrate_lab.runs.work import Context
from hitrate_lab.studies import Protocol, read_study
from hitrate_lab.studies.registry import PROTOCOLS, protocol_named

FOLDER = Path(__file__).resolve().parents[3] / "studies"
# A study of each, and so many of its runs.
STUDIES = {
    "exact cost": "exact_figure_7",
    "exact search": "exact_search",
    "exact tables": "exact_table_5",
    "capacity map": "capacity_map",
    "gain law": "gain_law",
    "image networks": "capacity_noise_small",
    "learnt groups": "mixing_example",
    "mixing escape": "mixing_escape",
    "mixing gradient norm": "mixing_gradient_norm",
    "mixing table": "mixing_table_4",
    "next words": "text_next_words",
    "text fine-tuning": "text_intents_fine_tuned",
    "text LSTM": "mixing_table_3",
    "text heads": "text_heads",
}
RUNS = 40
# Tests register more.
OWN = [name for name, place in PROTOCOLS.items() if place.startswith("hitrate_lab.")]


def public(kind):
    return {name for name in (*dir(kind), "name") if not name.startswith("_")}


def faults(kind):
    """What a subclass has that would never be called, or not as it expects."""
    found = [f"{name} is no hook" for name in sorted(public(kind) - public(Protocol))]
    for name in sorted(public(Protocol)):
        hook, own = inspect.getattr_static(Protocol, name, None), getattr(kind, name, None)
        if inspect.isfunction(hook):
            expected = list(inspect.signature(hook).parameters)
            if list(inspect.signature(own).parameters) != expected:
                found.append(f"{name} needs the arguments {', '.join(expected)}")
    if kind.run is Protocol.run and kind.run_batch is Protocol.run_batch:
        found.append("has neither run nor run_batch")
    return found


@pytest.fixture(scope="module", params=OWN)
def case(request):
    """A protocol, a study of it, the study's plan, and some of its runs where any are committed."""
    protocol = protocol_named(request.param)
    study = read_study(FOLDER / f"{STUDIES[request.param]}.toml")
    plan = protocol.plan(study)
    file = FOLDER / "results" / f"{study.name}.jsonl.gz"
    every = []
    if file.exists():
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            every = [json.loads(line) for line in itertools.islice(lines, RUNS)]
    runs = [Run(key_of(each["specification"]), finished="", **each) for each in every]
    return protocol, study, plan, runs


def test_hooks_are_those_of_the_base_class(case):
    protocol = case[0]
    assert isinstance(protocol, Protocol)
    assert PROTOCOLS[protocol.name].endswith(f":{type(protocol).__name__}")
    assert faults(type(protocol)) == []


def test_a_study_is_checked_and_planned(case):
    protocol, study, plan, runs = case
    protocol.check(study)
    protocol.check_machine(study)
    keys = list(map(key_of, plan))
    assert plan and len(set(keys)) == len(keys)
    for spec in plan:
        assert spec["study"] == study.name and spec["protocol"] == protocol.signature
        assert spec["data_set"] in study.data_sets
    assert {run.key for run in runs} <= set(keys)


def test_batches_and_needs_are_of_the_plan_in_any_process(case):
    protocol, _, plan, _ = case
    elsewhere = pickle.loads(pickle.dumps(protocol))
    keys = set(map(key_of, plan))
    for spec in (plan[0], plan[-1]):
        assert isinstance(protocol.batch_of(spec), str)
        assert elsewhere.batch_of(spec) == protocol.batch_of(spec)
        needed = protocol.needs(spec, plan)
        assert spec not in needed and set(map(key_of, needed)) <= keys
        assert all(protocol.batch_of(each) != protocol.batch_of(spec) for each in needed)


def test_cells_are_of_the_study(case):
    protocol, study, _, runs = case
    if not runs:
        pytest.skip(f"no runs of {study.name} are committed")
    names = {method.name for method in study.methods}
    for run in runs:
        canonical(run.result)
        assert run.result["seconds"] >= 0
        cells = protocol.cells(run.specification, run.result)
        # A study may show some measures of a protocol only.
        assert not cells or any(cell[0] in study.measures for cell in cells)
        for _, data_set, method, value in cells:
            assert data_set in study.data_sets and method in names and math.isfinite(value)


@pytest.mark.parametrize("how_many", [0, RUNS])
def test_parts_of_the_report_are_plain(case, how_many):
    protocol, study, _, runs = case
    if how_many and not runs:
        pytest.skip(f"no runs of {study.name} are committed")
    runs = runs[:how_many]
    for table in protocol.extra_tables(study, runs):
        assert table["title"] and isinstance(table["text"], str)
        for row in table["rows"]:
            assert len(row) == len(table["head"]) and all(isinstance(cell, str) for cell in row)
    for table in protocol.score_tables(study, runs) or []:
        assert {"title", "methods", "data_sets", "scores"} <= table.keys()
        assert len(table["scores"]) == len(table["data_sets"])
    assert all(text.strip() for text in protocol.differences(study))
    # A report without runs has no pictures.
    for name, drawn in protocol.pictures(study, runs).items() if runs else ():
        assert name and ElementTree.fromstring(drawn).tag.endswith("svg")


def test_every_protocol_has_a_study_here():
    assert sorted(STUDIES) == sorted(OWN)


class Right(Protocol):
    name = "right"

    def plan(self, study):
        return []

    def run(self, specification, context):
        return {"seconds": 0.0}

    def cells(self, specification, result):
        return []


class Misspelt(Right):
    def picture(self, study, runs):
        return {}


class Impatient(Right):
    def run(self, specification):
        return {"seconds": 0.0}


class Idle(Protocol):
    name = "idle"
    plan, cells = Right.plan, Right.cells


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Right, []),
        (Misspelt, ["picture is no hook"]),
        (Impatient, ["run needs the arguments self, specification, context"]),
        (Idle, ["has neither run nor run_batch"]),
    ],
)
def test_a_wrong_protocol_is_found_out(kind, said):
    assert faults(kind) == said


def test_what_every_protocol_needs_is_asked_for_at_once():
    with pytest.raises(TypeError, match="abstract"):
        type("Unplanned", (Protocol,), {})()
    with pytest.raises(NotImplementedError, match="Idle has neither run nor run_batch"):
        Idle().run_batch([{}], Context())


def test_what_is_left_out_has_a_default():
    protocol = Right()
    assert protocol.run_batch([{"seed": 0}, {"seed": 1}], Context()) == [{"seconds": 0.0}] * 2
    assert protocol.batch_of({"seed": 0}) == key_of({"seed": 0})
    assert protocol.needs({}, [{}]) == [] and protocol.score_tables(None, []) is None
    assert protocol.extra_tables(None, []) == [] and protocol.pictures(None, []) == {}
