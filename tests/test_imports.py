"""The library stays light; parts of both packages import one another in one direction only."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src"

# From top to bottom. A part may import itself and what stands in lower rows, never its neighbours
# in the same row. FACADE is a package's __init__.py. What hitrate's imports is loaded by `import
# hitrate`, so the rows above it, which need extras, are out of its reach; hitrate_lab's is empty.
FACADE = "__init__"
LAYERS = {
    "hitrate": (
        ("integrations", "sklearn"),
        (FACADE,),
        ("recipes",),
        ("calibration", "losses", "metrics", "optim", "refitting", "schedules"),
        ("links",),
        ("probability",),
        ("kernels",),
    ),
    "hitrate_lab": (
        ("__main__",),
        ("pages",),
        ("cli", "toy"),
        ("report",),
        ("compare", "studies"),
        ("datasets", "models", "pictures", "statistics", "training"),
        ("metrics", "runs", "tables"),
        ("whole_file",),
        ("bad_input", "seeds", "wording"),
        (FACADE,),
    ),
}
RANKS = {
    package: {part: rank for rank, row in enumerate(rows) for part in row}
    for package, rows in LAYERS.items()
}


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
    """The part of its package that a dotted name is in: 'hitrate.links.error' is in 'links'."""
    package, *inner = name.split(".")
    return inner[0] if inner and inner[0] in RANKS[package] else FACADE


def violations(src: Path, package: str) -> list[str]:
    rank, found = RANKS[package], []
    for path in sorted((src / package).rglob("*.py")):
        inside = path.relative_to(src / package)
        here = f"src/{package}/{inside.as_posix()}"
        part = inside.with_suffix("").parts[0]
        if part not in rank:
            found.append(f"{here}: '{part}' has no row in LAYERS")
            continue
        folder = ".".join(path.parent.relative_to(src).parts)
        for line, name in imported_names(path, folder):
            top = name.split(".")[0]
            if top == "hitrate_lab" and package == "hitrate":
                found.append(f"{here}:{line}: the library imports hitrate_lab")
            elif top == package:
                other = part_of(name)
                if other != part and rank[other] <= rank[part]:
                    found.append(f"{here}:{line}: {part} imports {other}")
    return found


@pytest.mark.parametrize("package", LAYERS)
def test_imports_follow_the_layers(package):
    assert violations(SRC, package) == []


def planted(folder: Path, file: str, statement: str) -> list[str]:
    """The violations of a package that has one file."""
    path = folder / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{statement}\n", encoding="utf-8")
    return violations(folder, Path(file).parts[0])


@pytest.mark.parametrize(
    ("file", "statement", "complaint"),
    [
        ("hitrate/links.py", "import hitrate_lab.toy", "imports hitrate_lab"),
        ("hitrate/links.py", "from hitrate.losses import exact", "links imports losses"),
        ("hitrate/links.py", "from .losses import exact", "links imports losses"),
        ("hitrate/links.py", "from . import losses", "links imports losses"),
        ("hitrate/links.py", "from hitrate import expected_accuracy", "links imports __init__"),
        ("hitrate/probability/genz.py", "from ..links import error", "probability imports links"),
        (
            "hitrate/probability/genz.py",
            "def f():\n    import hitrate.optim",
            "probability imports optim",
        ),
        ("hitrate/losses/__init__.py", "from hitrate import schedules", "losses imports schedules"),
        (
            "hitrate/__init__.py",
            "from hitrate.sklearn import AccuracyClassifier",
            "imports sklearn",
        ),
        ("hitrate/utils.py", "", "'utils' has no row in LAYERS"),
        ("hitrate_lab/runs/engine.py", "import hitrate_lab.studies", "runs imports studies"),
        ("hitrate_lab/runs/store.py", "from ..tables import Table", "runs imports tables"),
        (
            "hitrate_lab/studies/exact/cost.py",
            "def f():\n    from ...compare import comparison",
            "studies imports compare",
        ),
        ("hitrate_lab/studies/report.py", "from hitrate_lab import report", "imports report"),
        ("hitrate_lab/report/page.py", "from hitrate_lab.cli import main", "report imports cli"),
        ("hitrate_lab/__init__.py", "import hitrate_lab.tables", "__init__ imports tables"),
        ("hitrate_lab/helpers.py", "", "'helpers' has no row in LAYERS"),
    ],
)
def test_a_planted_violation_is_caught(tmp_path, file, statement, complaint):
    (found,) = planted(tmp_path, file, statement)
    assert complaint in found


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("hitrate/__init__.py", "from hitrate.probability import expected_accuracy"),
        ("hitrate/sklearn/__init__.py", "import sklearn\nfrom hitrate import ExactLoss"),
        ("hitrate/losses/exact.py", "from ..links import error\nfrom .base import reduce"),
        ("hitrate/probability/__init__.py", "def f():\n    from hitrate.kernels import quadrature"),
        ("hitrate_lab/cli/study.py", "from hitrate_lab.report import page\nimport hitrate"),
        ("hitrate_lab/studies/exact/cost.py", "from hitrate_lab.studies import fields"),
        ("hitrate_lab/studies/running.py", "def f():\n    import hitrate_lab.runs.engine"),
    ],
)
def test_imports_downwards_are_allowed(tmp_path, file, statement):
    assert planted(tmp_path, file, statement) == []


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
