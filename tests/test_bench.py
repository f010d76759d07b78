import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from errors import measure_errors
from speed import MEMBERS

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "run.py"


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench")
    run = subprocess.run(
        [sys.executable, "-W", "error", SCRIPT, "--quick", "--out", out],
        cwd=out,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout, json.loads((out / "bench.json").read_text(encoding="utf-8")), out


@pytest.mark.slow
def test_benchmark_prints_tables_and_writes_its_files(quick_run):
    stdout, _, out = quick_run
    assert "torch" in stdout.splitlines()[0]
    assert "cross_entropy" in stdout and "trapezoidal" in stdout
    pictures = {path.name for path in out.glob("*.png")}
    assert pictures == {"error_over_nodes.png", "figure_8.png", "figure_9.png"}


@pytest.mark.slow
def test_benchmark_json_says_hardware_and_how_much_was_measured(quick_run):
    _, result, _ = quick_run
    parts = {"hardware", "quick", "seconds", "speed", "members", "errors", "figures_8_9"}
    assert set(result) == parts
    assert result["quick"]
    assert {"cpu", "cores", "threads", "torch", "hitrate"} <= set(result["hardware"])
    assert result["figures_8_9"]["seeds"] == 10


@pytest.mark.slow
def test_benchmark_speed_has_positive_ratios_and_memory_for_every_method(quick_run):
    _, result, _ = quick_run
    methods = {row["method"] for row in result["speed"]}
    assert methods == {"cross_entropy", "quadrature", "gridded", "auto", "genz"}
    for row in result["speed"]:
        assert row["rounds"] >= 3
        assert row["seconds"] > 0 and row["ratio"] > 0 and row["ratio_of_medians"] > 0
        # At least the gradient is allocated.
        assert row["peak_bytes"] >= row["logits_bytes"]
        assert row["ratio"] == 1 or row["method"] != "cross_entropy"


@pytest.mark.slow
def test_benchmark_has_a_ratio_for_every_loss(quick_run):
    stdout, result, _ = quick_run
    assert {row["loss"] for row in result["members"]} == set(MEMBERS)
    for row in result["members"]:
        assert row["loss"] in stdout
        assert row["rounds"] >= 3 and row["seconds"] > 0 and row["ratio"] > 0


@pytest.mark.slow
def test_benchmark_errors_of_the_whole_run_fall_with_nodes(quick_run):
    _, result, _ = quick_run
    for study in result["errors"]:
        check_errors(study)


def test_benchmark_errors_fall_with_nodes_and_the_truth_is_checked():
    check_errors(measure_errors(3, quick=True))


def check_errors(study):
    assert sum(study["rows"].values()) == 100
    assert study["log_p"][0] < -1000
    assert max(study["check"].values()) < 1e-9
    exact = {
        row["nodes"]: row["gradient"]["max"]
        for row in study["errors"]
        if (row["method"], row["dtype"]) == ("quadrature", "float64")
    }
    assert exact[64] < 1e-9 < 1e-3 < exact[8]
