import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))
# They train for longer than is good for every change.
LONG = {"accuracy_classifier", "asam_with_amp", "boosting", "learned_sigma", "train_for_accuracy"}


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in LONG else [])
        for path in EXAMPLES
    ],
)
def test_example_runs_and_shows_something(example, tmp_path):
    run = subprocess.run(
        [sys.executable, "-W", "error", example], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_fits_on_a_screen(example):
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 60
