"""A protocol whose runs take no time: nearest neighbours on tables of scikit-learn.

How many seconds they took is what the study's file says.

Importing it makes "small" known to this process; workers import it by name.
"""

import json
import os
import signal
from pathlib import Path

from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from watched import take_ticket, wait_until

from hitrate_lab.studies import Protocol
from hitrate_lab.studies.registry import PROTOCOLS

PROTOCOLS["small"] = "small_study:SmallStudy"
LOADERS = {"iris": datasets.load_iris, "wine": datasets.load_wine}
# Each run that begins writes a line to this file.
LOG = "SMALL_STUDY_LOG"


class SmallStudy(Protocol):
    name = "small"

    def check(self, study):
        for method in study.methods:
            fields = study.fields(method)
            fields.whole("neighbours", 1)
            fields.text("raises", default=None)
            fields.text("dies", default=None)
            fields.text("after", default=None)
            fields.end()
        study.fields().number("seconds")

    def plan(self, study):
        return [
            {
                "study": study.name,
                "protocol": self.signature,
                "data_set": data_set,
                "method": method.name,
                "seed": seed,
                "seconds": study.settings["seconds"],
                **method.settings,
            }
            for seed in study.methods[0].seeds
            for data_set in study.data_sets
            for method in study.methods
        ]

    def run(self, specification, context):
        if LOG in os.environ:
            line = [specification[key] for key in ("data_set", "method", "seed")]
            file = os.open(os.environ[LOG], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(file, f"{json.dumps(line)}\n".encode())
            os.close(file)
        take_ticket()
        if "after" in specification:
            wait_until(Path(specification["after"]).exists)
        # A file that is there stands for what is wrong with the machine.
        if Path(specification.get("raises", "nowhere")).exists():
            raise ArithmeticError("went\nwrong")
        if Path(specification.get("dies", "nowhere")).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = LOADERS[specification["data_set"]](return_X_y=True)
        parts = train_test_split(x, y, test_size=0.3, random_state=specification["seed"])
        x, x_test, y, y_test = parts
        model = KNeighborsClassifier(specification["neighbours"]).fit(x, y)
        return {"accuracy": float(model.score(x_test, y_test)), "seconds": specification["seconds"]}

    def cells(self, specification, result):
        place = (specification["data_set"], specification["method"])
        return [("accuracy", *place, 100 * result["accuracy"])]


def text(name="small", seconds=0.0, seeds=6, first="", second=""):
    """A study's file: two data sets and two methods, with more fields for each method."""
    return f"""
name = "{name}"
title = "Neighbours"
reproduces = "nothing"
protocol = "small"
data_sets = ["iris", "wine"]
seeds = {list(range(seeds))}
differences = ["There is no paper."]

[measures]
accuracy = "Accuracy, %"

[settings]
seconds = {seconds}

[[methods]]
name = "one"
neighbours = 1
{first}

[methods.paper.accuracy]
iris = [95.0, 0.1]
wine = 71.5

[[methods]]
name = "nine"
neighbours = 9
{second}
"""


def written(folder, **changes):
    """The file of such a study."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{changes.get('name', 'small')}.toml"
    path.write_text(text(**changes))
    return path
