import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


@each_example
def test_example_runs_within_two_minutes(example, tmp_path):
    run = subprocess.run(
        [sys.executable, "-W", "error", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip(), "an example should show something"


@each_example
def test_example_fits_on_a_screen(example):
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 60
