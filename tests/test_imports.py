"""The library stays light, and its parts import one another in one direction only."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src"

# From top to bottom. A part may import itself and what stands in lower rows, never its neighbours
# in the same row. FACADE is hitrate/__init__.py: what it imports is loaded by `import hitrate`, so
# the rows above it, which need extras, are out of its reach.
FACADE = "__init__"
LAYERS = (
    ("integrations", "sklearn"),
    (FACADE,),
    ("recipes",),
    ("calibration", "losses", "metrics", "optim", "schedules"),
    ("links",),
    ("probability",),
    ("kernels",),
)
RANK = {part: rank for rank, row in enumerate(LAYERS) for part in row}


def imported_names(path: Path, package: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of all imports in a file, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = parents[: len(parents) - node.level + 1] if node.level else []
            base += node.module.split(".") if node.module else []
            for alias in node.names:
                yield node.lineno, ".".join([*base, alias.name])


def part_of(name: str) -> str:
    """The part of hitrate that a dotted name belongs to: 'hitrate.links.error' is in 'links'."""
    _, *inner = name.split(".")
    return inner[0] if inner and inner[0] in RANK else FACADE


def violations(src: Path) -> list[str]:
    found = []
    for path in sorted((src / "hitrate").rglob("*.py")):
        inside = path.relative_to(src / "hitrate")
        here = f"src/hitrate/{inside.as_posix()}"
        part = inside.with_suffix("").parts[0]
        if part not in RANK:
            found.append(f"{here}: '{part}' has no row in LAYERS")
            continue
        package = ".".join(path.parent.relative_to(src).parts)
        for line, name in imported_names(path, package):
            top = name.split(".")[0]
            if top == "hitrate_lab":
                found.append(f"{here}:{line}: the library imports hitrate_lab")
            elif top == "hitrate":
                other = part_of(name)
                if other != part and RANK[other] <= RANK[part]:
                    found.append(f"{here}:{line}: {part} imports {other}")
    return found


def test_imports_follow_the_layers():
    assert violations(SRC) == []


@pytest.mark.parametrize(
    ("file", "statement", "complaint"),
    [
        ("links.py", "import hitrate_lab.toy", "imports hitrate_lab"),
        ("links.py", "from hitrate.losses import exact", "links imports losses"),
        ("links.py", "from .losses import exact", "links imports losses"),
        ("links.py", "from . import losses", "links imports losses"),
        ("links.py", "from hitrate import expected_accuracy", "links imports __init__"),
        ("probability/genz.py", "from ..links import error", "probability imports links"),
        ("probability/genz.py", "def f():\n    import hitrate.optim", "probability imports optim"),
        ("losses/__init__.py", "from hitrate import schedules", "losses imports schedules"),
        ("__init__.py", "from hitrate.sklearn import AccuracyClassifier", "imports sklearn"),
        ("utils.py", "", "'utils' has no row in LAYERS"),
    ],
)
def test_a_planted_violation_is_caught(tmp_path, file, statement, complaint):
    path = tmp_path / "hitrate" / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{statement}\n", encoding="utf-8")
    (found,) = violations(tmp_path)
    assert complaint in found


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("__init__.py", "from hitrate.probability import expected_accuracy"),
        ("sklearn/__init__.py", "import sklearn\nfrom hitrate import ExactLoss"),
        ("losses/exact.py", "from ..links import error\nfrom .base import reduce"),
        ("probability/__init__.py", "def f():\n    from hitrate.kernels import quadrature"),
    ],
)
def test_imports_downwards_are_allowed(tmp_path, file, statement):
    path = tmp_path / "hitrate" / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{statement}\n", encoding="utf-8")
    assert violations(tmp_path) == []


NEW_PACKAGES = """
import json, sys
import numpy, torch
before = {name.split(".")[0] for name in sys.modules}
import hitrate
after = {name.split(".")[0] for name in sys.modules}
print(json.dumps(sorted(after - before - sys.stdlib_module_names)))
"""


def test_importing_hitrate_loads_nothing_beyond_torch_and_numpy():
    run = subprocess.run([sys.executable, "-c", NEW_PACKAGES], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == ["hitrate"]
