"""A protocol of batches and needs: trees of several depths, then the best depth with each seed.

The trees of a batch share a source of random numbers: a part of it gives other numbers than the
whole. Importing it makes "batched" known to this process; workers import it by name.
"""

import json
import os
import signal
from pathlib import Path

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

from hitrate_lab.studies import Protocol
from hitrate_lab.studies.registry import PROTOCOLS

PROTOCOLS["batched"] = "batched_study:BatchedStudy"
LOADERS = {"iris": datasets.load_iris, "wine": datasets.load_wine}
DEPTHS = (1, 2, 3)
TROUBLES = ("member", "batch", "nan", "dies")


class BatchedStudy(Protocol):
    name = "batched"
    uses_device = True

    def check(self, study):
        fields = study.fields()
        fields.text("folder")
        fields.end()

    def plan(self, study):
        common = {"study": study.name, "protocol": self.signature, **study.settings}
        places = [
            {**common, "data_set": data_set, "method": method.name}
            for data_set in study.data_sets
            for method in study.methods
        ]
        # The last come first: what needs others waits even so.
        finals = [
            {**place, "stage": "final", "seed": seed}
            for place in places
            for seed in study.methods[0].seeds
        ]
        return finals + [
            {**place, "stage": "trial", "depth": depth} for place in places for depth in DEPTHS
        ]

    def batch_of(self, specification):
        return json.dumps([specification[key] for key in ("data_set", "method", "stage")])

    def needs(self, specification, plan):
        if specification["stage"] == "trial":
            return []
        place = specification["data_set"], specification["method"]
        return [
            each
            for each in plan
            if each["stage"] == "trial" and (each["data_set"], each["method"]) == place
        ]

    def run_batch(self, specifications, context):
        known, first = context.known, specifications[0]
        folder = Path(first["folder"])
        with (folder / "log").open("a") as log:
            row = [
                first["data_set"],
                first["method"],
                first["stage"],
                len(specifications),
                len(known),
            ]
            log.write(f"{json.dumps(row)}\n")
        # Files that are there stand for what is wrong with trials on wine.
        wrong = {name for name in TROUBLES if (folder / name).exists()}
        if first["data_set"] != "wine" or first["stage"] == "final":
            wrong = set()
        if "dies" in wrong and first["method"] == "one":
            # So many processes, and no more.
            (folder / "dies").write_text(left := (folder / "dies").read_text()[1:])
            if not left:
                (folder / "dies").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if "batch" in wrong:
            raise ArithmeticError("all of it")
        x, y = LOADERS[first["data_set"]](return_X_y=True)
        random, results = np.random.RandomState(0), []
        for spec in specifications:
            seed = spec.get("seed", 0)
            x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=seed)
            depth = spec.get("depth")
            if depth is None:
                best = max(known.values(), key=lambda each: (each["accuracy"], -each["depth"]))
                depth = best["depth"]
            tree = DecisionTreeClassifier(max_depth=depth, splitter="random", random_state=random)
            accuracy = float(tree.fit(x_train, y_train).score(x_test, y_test))
            result = {"accuracy": accuracy, "depth": depth, "seconds": 0.01}
            if depth == 2 and "member" in wrong:
                result = ValueError("one of them")
            if depth == 2 and "nan" in wrong:
                result["accuracy"] = float("nan")
            results.append(result)
        return results

    def cells(self, specification, result):
        if specification["stage"] == "trial":
            return []
        return [
            (
                "accuracy",
                specification["data_set"],
                specification["method"],
                100 * result["accuracy"],
            )
        ]


def written(folder):
    """The file of such a study; its log and its troubles are in the same folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "batched.toml"
    path.write_text(f"""
name = "batched"
title = "Trees"
reproduces = "nothing"
protocol = "batched"
data_sets = ["iris", "wine"]
seeds = [0, 1]

[measures]
accuracy = "Accuracy, %"

[settings]
folder = {json.dumps(str(folder))}

[[methods]]
name = "one"

[[methods]]
name = "other"
""")
    return path
