"""What the checklists promise: to add something touches one or two files, and then all has it.

Each addition goes into a copy of the package, as someone would write it, and the copy is used.
"""

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from hitrate_lab.datasets.files import content_digest

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "src" / "hitrate_lab"

METRIC = '''

def worst_class(y_true: Array, y_pred: Array, probabilities: Any, classes: int) -> float:
    """The share of right rows of the class that has the smallest."""
    return float(min(np.mean(y_pred[y_true == k] == k) for k in np.unique(y_true)))

'''
PROTOCOL = """
from sklearn.neighbors import KNeighborsClassifier

from hitrate_lab.datasets import read_exact
from hitrate_lab.studies.protocol import Protocol


class Neighbours(Protocol):
    name = "neighbours"

    def plan(self, study):
        return [
            {
                "study": study.name,
                "protocol": self.signature,
                "data_set": data_set,
                "method": method.name,
                "seed": seed,
                **method.settings,
            }
            for data_set in study.data_sets
            for method in study.methods
            for seed in method.seeds
        ]

    def run(self, specification, context):
        name = specification["data_set"].removeprefix("exact/")
        data = read_exact(name, seed=specification["seed"], data_dir=context.data_dir)
        model = KNeighborsClassifier(specification["neighbours"]).fit(data.X_train, data.y_train)
        return {"accuracy": float(model.score(data.X_test, data.y_test)), "seconds": 0.0}

    def cells(self, specification, result):
        place = specification["data_set"], specification["method"]
        return [("accuracy", *place, 100 * result["accuracy"])]
"""
STUDY = """
name = "near"
title = "Neighbours"
reproduces = "nothing"
protocol = "neighbours"
data_sets = ["exact/coins"]
seeds = [0, 1]

[measures]
accuracy = "Accuracy, %"

[[methods]]
name = "one"
neighbours = 1

[[methods]]
name = "nine"
neighbours = 9
"""


class Copy:
    """A copy of the package that can be added to and run."""

    def __init__(self, folder):
        self.folder = folder
        self.lab = folder / "hitrate_lab"
        shutil.copytree(LAB, self.lab, ignore=shutil.ignore_patterns("__pycache__"))

    def write(self, file, text):
        (self.lab / file).write_text(text, encoding="utf-8")

    def insert(self, file, before, text):
        """Text before the only place that has some other."""
        content = (self.lab / file).read_text(encoding="utf-8")
        assert content.count(before) == 1, (file, before)
        self.write(file, content.replace(before, text + before))

    def touched(self):
        """Files that are not what they are in the repository."""
        ours, theirs = (
            {
                each.relative_to(base).as_posix()
                for each in base.rglob("*")
                if each.is_file() and "__pycache__" not in each.parts
            }
            for base in (self.lab, LAB)
        )
        assert theirs <= ours
        same = {each for each in theirs if filecmp.cmp(self.lab / each, LAB / each, shallow=False)}
        return sorted(ours - same)

    def run(self, *words):
        """What a program of this copy prints."""
        path = os.pathsep.join([str(self.folder), str(ROOT / "src")])
        ended = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def hitrate(self, *words):
        return self.run("-m", "hitrate_lab", *words)


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


def family_of_the_page():
    """The class that CONTRIBUTING.md shows."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(from hitrate_lab\.models\.family.*?)```", page, re.DOTALL)
    return block


@pytest.mark.slow
def test_a_method_of_compare_is_two_files(copy):
    copy.write("models/bayes.py", family_of_the_page())
    copy.insert(
        "models/methods.py",
        "from hitrate_lab.models.family import Family\n",
        "from hitrate_lab.models.bayes import NaiveBayes\n",
    )
    copy.insert("models/methods.py", "XGBoost(), LightGBM()", "NaiveBayes(), ")
    assert copy.touched() == ["models/bayes.py", "models/methods.py"]
    help_text = copy.hitrate("compare", "--help")
    assert "bayes" in help_text
    # In processes of their own, which know the family by its file.
    words = ["--models", "linear,bayes", "--folds", "3", "--repeats", "1", "--trials", "2"]
    found = json.loads(copy.hitrate("compare", "wine", *words, "--jobs", "2", "--json"))
    assert found["complete"] and not found["failed"]
    methods = {method["name"]: method for method in found["methods"]}
    assert methods["bayes/likelihood"]["label"] == "naive Bayes, likelihood"
    # The most frequent class has 0.40 of the rows.
    assert methods["bayes/likelihood"]["accuracy"]["mean"] > 0.8
    copy.hitrate("fit", "wine", "--method", "bayes/likelihood", "--out", "model")
    predicted = json.loads(copy.hitrate("predict", "model", "wine", "--out", "p.csv", "--json"))
    assert predicted["rows"] == 178 and predicted["accuracy"] > 0.8


def test_a_metric_is_one_file(copy):
    copy.insert("metrics.py", "\ndef _top(k: int)", METRIC)
    copy.insert(
        "metrics.py",
        '        Metric("balanced_accuracy"',
        '        Metric("worst_class", "accuracy of the worst class", function=worst_class),\n',
    )
    assert copy.touched() == ["metrics.py"]
    words = ["--models", "linear", "--folds", "3", "--repeats", "1", "--trials", "1", "--jobs", "1"]
    told = copy.hitrate("compare", "wine", *words, "--metric", "worst_class")
    assert "accuracy of the worst class" in told.splitlines()[0]
    found = json.loads((copy.folder / "hitrate-wine" / "comparison.json").read_text())
    assert found["metric"]["name"] == "worst_class"
    assert "accuracy of the worst class" in found["advice"]
    page = (copy.folder / "hitrate-wine" / "report.html").read_text(encoding="utf-8")
    assert "Mean accuracy of the worst class" in page


@pytest.mark.slow
def test_a_published_table_is_one_file_and_a_protocol_two(copy):
    random = np.random.default_rng(0)
    side = random.integers(2, size=60)
    weight = 3 * side + random.normal(size=60)
    coins = pd.DataFrame({"maker": np.arange(60) % 3, "weight": weight, "side": side})
    coins["maker"] = coins["maker"].map({0: "a", 1: "b", 2: "c"})
    content = coins.to_csv(index=False).encode()
    copy.insert(
        "datasets/table_sets.py",
        '    "exact/dry-bean": ',
        f"""    "exact/coins": TableSet(
        rows=60,
        features=2,
        classes=2,
        data="{content_digest([content])}",
        files={{"coins.csv": Source("http://127.0.0.1/coins.csv")}},
        header=True,
    ),
""",
    )
    assert copy.touched() == ["datasets/table_sets.py"]
    (copy.folder / "served").mkdir()
    (copy.folder / "served" / "coins.csv").write_bytes(content)
    fetched = """
import functools, http.server, threading
from hitrate_lab.datasets import fetch
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="served")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(fetch("exact/coins", "data", mirror=f"http://127.0.0.1:{server.server_port}"))
server.shutdown()
"""
    assert copy.run("-c", fetched).strip() == str(Path("data", "exact", "coins"))

    copy.write("studies/neighbours.py", PROTOCOL)
    copy.insert(
        "studies/registry.py",
        '    "mixing escape": ',
        '    "neighbours": "hitrate_lab.studies.neighbours:Neighbours",\n',
    )
    added = ["datasets/table_sets.py", "studies/neighbours.py", "studies/registry.py"]
    assert copy.touched() == added
    (copy.folder / "near.toml").write_text(STUDY)
    words = ["near.toml", "--store", "runs.sqlite"]
    status = json.loads(
        copy.hitrate("study", "run", *words, "--data-dir", "data", "--jobs", "1", "--json")
    )
    assert (status["planned"], status["done"]) == (4, 4), status
    told = copy.hitrate("study", "report", *words)
    assert "coins" in told and "nine" in told


def test_an_image_set_is_one_file(copy):
    copy.insert(
        "datasets/images/sets.py",
        '    "imagenet": Known(',
        """    "dots": Known(
        "dots", 2, functools.partial(_in_class_folders, train="train", test="test", side=8)
    ),
""",
    )
    assert copy.touched() == ["datasets/images/sets.py"]
    for part in ("train", "test"):
        for k, name in enumerate(("dark", "light")):
            folder = copy.folder / "data" / "dots" / part / name
            folder.mkdir(parents=True)
            Image.new("RGB", (8, 8), (200 * k,) * 3).save(folder / "one.png")
    script = """
from pathlib import Path
from hitrate_lab.datasets.images import read_images
found = read_images("dots", data_dir=Path("data"))
print(found.train_images.shape, found.test_labels.tolist())
print(found.train_images.mean((1, 2, 3)).tolist())
"""
    assert copy.run("-c", script).splitlines() == ["(2, 3, 8, 8) [0, 1]", "[0.0, 200.0]"]
