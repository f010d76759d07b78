"""The fuzzer's runner finds all that a case can do wrong, and goes on; its targets find nothing."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import TARGETS
from fuzz.broken import FOUND, KINDS, Broken

TESTS = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


def fuzz(*words: str) -> subprocess.CompletedProcess:
    """`python -m fuzz` with these words."""
    return subprocess.run(
        [sys.executable, "-m", "fuzz", *words],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])},
        capture_output=True,
        text=True,
    )


def test_every_kind_of_fault_is_found_once_and_the_rest_is_run(tmp_path):
    count = 2 * len(KINDS)
    words = ["--cases", str(count), "--seed", "0", "--jobs", "3", "--out", str(tmp_path)]
    ended = fuzz("fuzz.broken:Broken", *words)
    assert ended.returncode == 1, ended.stderr
    summary = json.loads((tmp_path / "Broken.json").read_text())
    found = {each["seed"]: each["kind"] for each in summary["findings"]}
    assert found == {
        seed: FOUND[KINDS[seed % len(KINDS)]]
        for seed in range(count)
        if KINDS[seed % len(KINDS)] in FOUND
    }
    assert summary["cases"] == count
    assert summary["outcomes"] == {"fine": count - len(found)}
    for each in summary["findings"]:
        assert f"{each['kind']}" in ended.stdout
    (abort,) = (each for each in summary["findings"] if each["seed"] == KINDS.index("abort"))
    assert abort["detail"] == "SIGABRT" and "seed 3 was here" in abort["output"]


def test_a_seed_alone_repeats_a_case():
    seed = KINDS.index("wrong") + 5 * len(KINDS)
    ended = fuzz("fuzz.broken:Broken", "--cases", "1", "--seed", str(seed))
    assert ended.returncode == 1
    assert f"seed {seed}: wrong: 2 and not 3" in ended.stdout


def test_nothing_found_is_exit_0_and_enough_found_ends_it():
    assert fuzz("fuzz.broken:Broken", "--cases", "1", "--seed", "0").returncode == 0
    words = ["--cases", "1000000", "--seed", "0", "--most-findings", "2"]
    ended = fuzz("fuzz.broken:Broken", *words)
    # The worker's own next cases may be over by then.
    assert ended.returncode == 1 and ended.stdout.count("  seed ") < Broken.chunk


def test_ctrl_c_keeps_what_was_found():
    code = """
import itertools
from fuzz.broken import KINDS, Broken
from fuzz.runner import run

def seeds():
    yield from range(Broken.chunk)
    raise KeyboardInterrupt

summary = run(Broken(), "Broken", seeds(), 0)
print(summary.stopped, summary.cases)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=TESTS, capture_output=True, text=True)
    assert ended.stdout.split() == ["True", str(Broken.chunk)], ended.stderr


def test_an_unknown_target_is_wrong_usage():
    ended = fuzz("nothing")
    assert ended.returncode == 2 and "there is no target 'nothing'" in ended.stderr


def targets():
    """All of them; the slow ones are left to the thorough tests."""
    for name, (module, kind) in TARGETS.items():
        target = getattr(importlib.import_module(module), kind)
        yield pytest.param(
            name, target, marks=[pytest.mark.slow] if target.is_slow else [], id=name
        )


@pytest.mark.parametrize(("name", "target"), list(targets()))
def test_some_cases_of_every_target_find_nothing(name, target, tmp_path):
    cases = target.with_every_change
    ended = fuzz(name, "--cases", str(cases), "--seed", "0", "--out", str(tmp_path))
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert json.loads((tmp_path / f"{name}.json").read_text())["cases"] == cases
