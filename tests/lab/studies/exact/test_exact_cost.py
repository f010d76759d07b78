"""The study of EXACT's Figure 7: what is measured, how, and what is said of it."""

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from watched import environment

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.work import Context
from hitrate_lab.studies import document, plan_of, read_study
from hitrate_lab.studies.exact import cost as exact_cost
from hitrate_lab.studies.exact.cost_tables import figure, tables
from hitrate_lab.studies.exact.timing import memory_of, take_turns
from hitrate_lab.studies.report import stored_runs
from hitrate_lab.studies.results import load

PROTOCOL = exact_cost.ExactCost()
FOLDER = Path(__file__).resolve().parents[4] / "studies"
FILE, GPU = FOLDER / "exact_figure_7.toml", FOLDER / "exact_figure_7_gpu.toml"


@pytest.fixture(scope="module")
def study():
    return read_study(FILE)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def planned(study, method, classes, samples=16, **changes):
    """A short run of the study."""
    (spec,) = (
        spec
        for spec in plan_of(study)
        if (spec["method"], spec["data_set"]) == (method, f"C={classes}, S={samples}")
        and spec["seed"] == 0
    )
    return {**spec, "seconds": 0.0, "rounds": [3, 3], **changes}


def test_the_plan_has_the_figures_sweeps_and_each_other_method_once_per_number_of_classes(study):
    plan = plan_of(study)
    assert json.loads(json.dumps(plan)) == plan
    first = [spec for spec in plan if spec["seed"] == 0]
    genz = [spec for spec in first if spec["method"] == "Genz (paper)"]
    powers = [2**k for k in range(1, 11)]
    assert [spec["classes"] for spec in genz if spec["samples"] == 16] == powers
    sizes = sorted(spec["samples"] for spec in genz if spec["classes"] == 32)
    assert sizes == [2**k for k in range(9)]
    for name in ("cross entropy", "quadrature", "gridded"):
        assert [spec["classes"] for spec in first if spec["method"] == name] == powers
    assert len(plan) == 3 * 30 + 2 * 18
    # Only where a call would take many seconds are there fewer rows.
    assert {spec["unit_rows"] for spec in plan} == {256}
    assert {spec["rows"] for spec in plan if not spec["samples"]} == {256}
    assert [spec["rows"] for spec in genz[:10]] == [256] * 7 + [128, 32, 8]


def test_the_gpu_has_a_study_of_its_own_with_the_kernels_last():
    plan = plan_of(read_study(GPU))
    assert {(spec["device"], spec["rows"]) for spec in plan} == {("cuda", 256)}
    assert [spec["loss"]["backend"] for spec in plan[-8:]] == ["triton"] * 8


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_machine_without_a_gpu_is_told_in_one_line():
    study = read_study(GPU)
    complaint = "device = 'cuda': this machine has no GPU that torch can use"
    for call in (
        PROTOCOL.check_machine,
        lambda study: PROTOCOL.run(plan_of(study)[0], Context()),
    ):
        with pytest.raises(BadInput) as caught:
            call(study)
        assert str(caught.value) == complaint


def test_memory_is_that_of_calls_whose_memory_is_known_by_hand():
    def overlap():
        first = torch.empty(1000)
        second = torch.empty(3000)  # The peak: both are alive.
        del first
        third = torch.empty(500)
        del second, third

    x = torch.randn(1000, requires_grad=True)

    def backward():
        # The result of exp is kept for the gradient, which has the same size; the loss and its
        # gradient are a number each.
        x.exp().sum().backward()

    assert memory_of(overlap, "cpu") == 4 * 4000
    assert memory_of(backward, "cpu") == 4 * 2002


RESIDENT = """
import json, re, sys
from pathlib import Path
from hitrate_lab.studies.exact.cost import step_of


def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])


spec = json.loads(sys.argv[1])
whole = step_of(spec, spec["loss"], spec["rows"])
# What libraries of products keep for themselves comes with the first call.
whole()
# Sets the peak to what there is now.
Path("/proc/self/clear_refs").write_text("5")
before = peak()
whole()
print(1024 * (peak() - before))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_memory_is_what_a_fresh_process_grows_by(study):
    spec = planned(study, "quadrature", 512) | {"rows": 8192}
    step = exact_cost.step_of(spec, spec["loss"], spec["rows"])
    run = subprocess.run(
        [sys.executable, "-c", RESIDENT, json.dumps(spec)],
        capture_output=True,
        text=True,
        # What was released has left the process.
        env=environment(OMP_NUM_THREADS="1", MALLOC_MMAP_THRESHOLD_=65536),
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) == pytest.approx(memory_of(step, "cpu"), rel=0.1)


class Work(TorchDispatchMode):
    """The numbers that torch has written, as the process's clock: the same on any machine."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.seconds = 0.0
        monkeypatch.setattr(time, "process_time", lambda: self.seconds)

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        found = function(*arguments, **(options or {}))
        written = [each for each in tree_leaves(found) if isinstance(each, torch.Tensor)]
        self.seconds += 1e-7 * sum(each.numel() for each in written)
        return found


def test_calls_take_turns_and_their_ratio_is_that_of_their_work(monkeypatch):
    now, called = 0.0, []
    monkeypatch.setattr(time, "process_time", lambda: now)

    def busy(name, seconds):
        def call():
            nonlocal now
            now += seconds
            called.append(name)

        return call

    calls = {"short": busy("short", 0.001), "long": busy("long", 0.006)}
    times = take_turns(calls, "cpu", seconds=0.0, rounds=(4, 9))
    for name, seconds in (("short", 0.001), ("long", 0.006)):
        assert times[name] == pytest.approx([seconds] * 4)
    # A short call is repeated until it lasts as long as a clock can tell, then five times a round.
    assert called.count("long") == 4
    assert called.count("short") == 1 + 5 + 4 * 5
    # Each round has both, in one order or the other.
    first = [name for name, before in zip(called, [None, *called], strict=False) if name != before]
    assert 4 <= len(first) <= 8
    times = take_turns(calls, "cpu", seconds=60.0, rounds=(2, 5))
    assert [len(each) for each in times.values()] == [5, 5]
    # Time ends them: three rounds of eleven milliseconds, after the first calls.
    times = take_turns(calls, "cpu", seconds=0.035, rounds=(2, 50))
    assert [len(each) for each in times.values()] == [3, 3]


def test_cross_entropy_against_itself_is_one_and_takes_three_times_the_logits(study, monkeypatch):
    with Work(monkeypatch):
        result = PROTOCOL.run(planned(study, "cross entropy", 64, rounds=[9, 9]), Context())
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["time_ratio"] == pytest.approx(1)
    assert result["time_ratio_quartiles"] == pytest.approx([1, 1])
    # The logarithms of the softmax, their gradient, that of the logits; and a few numbers.
    assert result["bytes"] == pytest.approx(3 * 4 * 64, rel=1e-3)
    assert result["memory_ratio"] == 1
    assert (result["rounds"], result["threads"]) == (9, 1)


def test_the_papers_algorithm_takes_more_of_everything_than_the_integral(study, monkeypatch):
    with Work(monkeypatch):
        found = {
            name: PROTOCOL.run(planned(study, name, 64, rows=4), Context())
            for name in ("Genz (paper)", "quadrature", "gridded")
        }
    genz = found.pop("Genz (paper)")
    # Means given a tie, and a copy of them: C (C - 1) numbers each.
    assert genz["bytes"] > 2 * 4 * 64 * 63
    for other in found.values():
        assert genz["ms"] > 5 * other["ms"]
        assert genz["time_ratio"] == pytest.approx(genz["ms"] / genz["unit_ms"])


def test_time_is_what_the_process_has_had_a_core(study):
    before = time.process_time()
    result = PROTOCOL.run(planned(study, "quadrature", 8, rows=4), Context())
    used = time.process_time() - before
    # The median call of four rows is a part of it.
    assert 0 < 4 * result["ms"] / 1e3 < used


@pytest.mark.slow
def test_what_does_not_fit_is_a_result_that_says_how_much_it_needs(study):
    spec = planned(study, "quadrature", 64, rows=8)
    needed = 8 * PROTOCOL.run(spec, Context())["bytes"]
    result = PROTOCOL.run({**spec, "memory_gb": 0.5 * needed / 1e9}, Context())
    assert result["out_of_memory"]
    assert result["needs_bytes"] == pytest.approx(needed, rel=0.02)
    assert PROTOCOL.cells(spec, result) == []
    # A little more than it needs is enough.
    result = PROTOCOL.run({**spec, "memory_gb": 1.05 * needed / 1e9}, Context())
    assert "out_of_memory" not in result


def by_power_law(study):
    """Runs whose time is 3 ns S C² and memory 5 B C, with one that did not fit."""
    for spec in plan_of(study):
        s, c = spec["samples"] or 1, spec["classes"]
        ms, spread = 3e-6 * s * c**2, 1 + spec["seed"] / 100
        result = {
            "rounds": 4 + spec["seed"],
            "ms": ms * spread,
            "ms_quartiles": [ms, 1.1 * ms],
            "time_ratio": 2.0 * s,
            "time_ratio_quartiles": [1.5 * s, 2.5 * s],
            "bytes": 5.0 * c,
            "memory_ratio": 1.0,
            "threads": 1,
            "processor": "abacus",
        }
        if spec["method"] == "Genz (paper)" and c == 1024:
            result = {"out_of_memory": True, "needs_bytes": 4.2e10, **result}
        yield spec, result


def test_tables_have_medians_ranges_powers_and_what_did_not_fit(study):
    growth, times, ratios, memory = tables(study, by_power_law(study))
    rows = {row[0]: row[1:] for row in growth["rows"]}
    assert rows["Genz (paper)"] == ["2.00", "2", "1.00", "2", "1.00", "1", "0.00", "1"]
    assert rows["gridded"] == ["2.00", "-", "1.00", "-", "-", "-", "-", "-"]
    assert "C = 64 to 1024 and S = 16 to 256" in growth["text"]
    assert times["head"] == ["S = 16, or as said", *(method.name for method in study.methods)]
    rows = {row[0]: row[1:] for row in times["rows"]}
    # 3 ns 32²: the median of three seeds, the quartiles as they are.
    assert rows["C = 32"][2] == "3.1 µs (3.07 to 3.38)"
    assert rows["C = 32"][1] == "49.4 µs (49.2 to 54.1)"
    assert rows["C = 32, S = 256"] == ["", "790 µs (786 to 865)", "", ""]
    assert rows["C = 1024"][1] == "out of memory: needs 42 GB"
    assert "abacus, 1 thread, float32" in times["text"]
    assert "Genz (paper) 8 or more" in times["text"]
    assert "2 or 3 runs of 4 to 6 rounds" in times["text"]
    assert {row[0]: row[2] for row in ratios["rows"]}["C = 4"] == "32 (24 to 40)"
    assert {row[0]: row[4] for row in memory["rows"]}["C = 256"] == "1.28 kB"


def test_powers_are_straight_lines_in_the_picture_and_lines_have_names(study):
    svg = ElementTree.fromstring(figure(study, by_power_law(study)))
    space = "{http://www.w3.org/2000/svg}"
    panels = svg.findall(f"{space}g")
    assert len(panels) == 4
    over_classes = panels[0]
    lines = [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in over_classes.iter(f"{space}polyline")
    ]
    # The one that did not fit is missing.
    assert [len(line) for line in lines] == [10, 9, 10, 10]
    for line in lines:
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(line)]
        assert slopes == pytest.approx([slopes[0]] * len(slopes), rel=0.01)
        assert slopes[0] < 0
    words = [text.text for text in over_classes.iter(f"{space}text")]
    for method in study.methods:
        assert method.name in words
    assert {"Time per element, S = 16", "1 ms", "1024"} <= set(words)
    names = {text.text: float(text.get("y")) for text in over_classes.iter(f"{space}text")}
    heights = sorted(names[method.name] for method in study.methods)
    # Three lines end in the same place; their names do not touch.
    assert all(b - a > 12 for a, b in pairwise(heights))


def test_a_study_without_runs_has_no_tables_and_an_empty_picture(study):
    assert tables(study, []) == []
    assert "There are no runs yet." in figure(study, [])


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('device = "cpu"', 'device = "tpu"', "settings.device: needs one of"),
        ("rounds = [2, 25]", "rounds = [25, 2]", "settings.rounds: needs fewest and most"),
        ("rounds = [2, 25]", "rounds = [1, 2]", "settings.rounds: needs fewest and most"),
        ("rows = 256", "rows = 0", "settings.rows: needs a whole number of 1 or more"),
        ("memory_gb = 4", "memory_gb = 0", "settings.memory_gb: needs a number above 0"),
        ("memory_gb = 4", "memory_gb = 4\nmb = 4", "settings.mb: is no field here"),
        ('"C=4, S=16"', '"C=4"', "data_sets: 'C=4' is none of"),
        ('"C=4, S=16"', '"C=1, S=16"', "data_sets: 'C=1, S=16' is none of"),
        ("time_ratio =", "time =", "measures: 'time' is none of time_ratio, memory_ratio"),
        ('method = "genz"', 'method = "gens"', r"methods\[Genz \(paper\)\].method: needs one of"),
        ('backend = "torch"', 'backend = "triton"', "backend: the kernels need device = 'cuda'"),
        ('"cross_entropy"', '"cross_entropy"\nmethod = "auto"', "method: is no field here"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_in_one_line(tmp_path, old, new, complaint):
    text = FILE.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / FILE.name
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        read_study(path)
    assert "\n" not in str(caught.value)
    assert re.search(complaint, str(caught.value))


BARE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("typer", "rich", "jinja2", "matplotlib", "distributed"):
            raise ImportError(name)

sys.meta_path.insert(0, Missing())
from hitrate_lab.studies import find_study, run_study

status = run_study(find_study(sys.argv[1]), store=sys.argv[2], jobs=1)
assert (status.done, status.failed) == (4, 0), status
"""


@pytest.mark.slow
def test_it_runs_where_only_torch_and_scikit_learn_are(study, tmp_path):
    path, store = tmp_path / FILE.name, tmp_path / "runs.sqlite"
    text = FILE.read_text(encoding="utf-8").replace("seeds = [0, 1, 2]", "seeds = [0]")
    text = text.replace("seeds = [0, 1]", "seeds = [0]").replace("seconds = 0.4", "seconds = 0")
    names = text[text.index("data_sets = [") : text.index("]\ndifferences")]
    path.write_text(text.replace(names, 'data_sets = ["C=4, S=2"'), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-c", BARE, path, store],
        capture_output=True,
        text=True,
        env=environment(OMP_NUM_THREADS="1"),
    )
    assert run.returncode == 0, run.stderr
    report = document(read_study(path), store)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    (row,) = report["tables"][0]["rows"]
    assert row["complete"] and row["cells"]["Genz (paper)"]["mean"] > 1
    # Cross entropy is the unit: nobody is best.
    assert row["best"] == [] and row["cells"]["cross entropy"]["n"] == 0


def test_the_picture_is_that_of_the_committed_runs(study, tmp_path):
    store, images = tmp_path / "runs.sqlite", FOLDER.parent / "docs" / "images"
    assert load(FOLDER / "results" / "exact_figure_7.jsonl.gz", store) == len(plan_of(study))
    for name, drawn in PROTOCOL.pictures(study, stored_runs(study, store)).items():
        assert (images / f"{name}.svg").read_text(encoding="utf-8") == drawn


def test_methods_may_have_fewer_seeds(study):
    some = [replace(method, seeds=(7,)) for method in study.methods[:1]]
    plan = plan_of(replace(study, methods=(*some, *study.methods[1:])))
    assert {spec["seed"] for spec in plan if spec["method"] == "cross entropy"} == {7}
