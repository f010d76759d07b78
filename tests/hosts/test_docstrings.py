"""The program in the docstring of every host's module runs as it stands."""

import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "src" / "hitrate" / "integrations"
HOSTS = {
    "accelerate": ["accelerate"],
    "fastai": ["fastai"],
    "keras": ["keras"],
    "lightning": ["lightning"],
    "skorch": ["skorch"],
    "timm": ["timm"],
    "torchmetrics": ["torchmetrics"],
    "transformers": ["transformers", "accelerate"],
    "trl": ["trl"],
}


def program_of(host):
    documentation = (FOLDER / f"{host}.py").read_text(encoding="utf-8").split('"""')[1]
    block = documentation.split("::\n\n")[1]
    return "import host_cases\n" + textwrap.dedent(block)


@pytest.mark.parametrize("host", HOSTS)
def test_the_program_runs(host, tmp_path):
    for package in HOSTS[host]:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    tests = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({tests!r})\n{program_of(host)}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_is_missing_gets_one_line_that_names_the_extra(host):
    blocked = f"import sys; sys.modules.update(dict.fromkeys({HOSTS[host]!r}))"
    blocked += "; sys.modules['pytorch_lightning'] = None"
    done = subprocess.run(
        [sys.executable, "-c", f"{blocked}; import hitrate.integrations.{host}"],
        capture_output=True,
        text=True,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: hitrate.integrations.{host} needs ")
    assert last.endswith(f"pip install 'hitrate[{host}]'")


def test_every_host_has_an_example_page_and_extra():
    modules = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "boosting"}
    assert modules == {*HOSTS, "lightgbm", "xgboost"}
