"""One short program per host runs, on data that ships with a package or is made on the spot."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples" / "hosts").glob("*.py"))
PACKAGES = {path.stem: path.stem.split("_")[0] for path in EXAMPLES}
# A program of its own knows nothing of a torchvision that does not fit.
RUN = "import sys; sys.path.append({tests!r}); import host_cases, runpy; runpy.run_path({path!r})"


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_shows_something(example, tmp_path):
    if find_spec(PACKAGES[example.stem]) is None:
        pytest.skip(f"{PACKAGES[example.stem]} is not installed")
    program = RUN.format(tests=str(Path(__file__).parent), path=str(example))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "accuracy" in done.stdout or "±" in done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_fits_on_a_screen(example):
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 60


def test_there_is_one_for_every_host():
    hosts = {path.stem for path in (EXAMPLES[0].parents[2] / "src/hitrate/integrations").glob("*")}
    others = {"__init__", "__pycache__", "boosting", "lightgbm", "xgboost", "torchmetrics"}
    assert set(PACKAGES.values()) == hosts - others
