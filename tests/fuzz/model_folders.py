"""Folders of fitted models, tampered with and sealed again, through `hitrate predict`.

Right is either exit 2 with one line and nothing written, or predictions that a plain evaluation of
what the folder says gives as well.
"""

import csv
import json
import os
import platform
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.model_changes import changed, sealed
from fuzz.plain_trees import scores
from fuzz.target import Target, Wrong

LOSSES = {
    "linear": ("cross_entropy", "exact", "mixed"),
    "mlp": ("cross_entropy", "exact"),
    "xgboost": ("cross_entropy", "exact", "mixed"),
    "lightgbm": ("cross_entropy", "exact", "mixed", "focal"),
}
QUICK = {"mlp": {"max_iter": 2}, "xgboost": {"rounds": 4}, "lightgbm": {"rounds": 4}}
# Every so many cases run as a program of their own, too.
AS_PROGRAM = 500
ROWS = 20


class ModelFolders(Target):
    """Linear models, networks and trees under several losses, of three tables."""

    with_every_change = 400

    def prepare(self, folder: Path) -> None:
        from hitrate_lab.models.folder import save_model
        from hitrate_lab.tables import read_table

        (folder / "mixed.csv").write_text(_mixed_table())
        for name in ("breast-cancer", "car", "mixed"):
            source = folder / "mixed.csv" if name == "mixed" else name
            table = read_table(source, "y" if name == "mixed" else None)
            frame = table.features.assign(**{table.target_name: table.target})
            frame.sample(ROWS, random_state=0).to_csv(folder / f"{name}-rows.csv", index=False)
            for model, losses in LOSSES.items():
                for loss in losses:
                    save_model(folder / f"{name}-{model}-{loss}", _fitted(table, model, loss))

    def load(self, folder: Path) -> None:
        import lightgbm  # noqa: F401
        import xgboost  # noqa: F401
        from typer.main import get_command

        import hitrate.sklearn  # noqa: F401
        from hitrate_lab.cli.app import app
        from hitrate_lab.compare.fit import predict_file

        # Made once, as that takes longer than most cases.
        self.command = get_command(app)
        self.models = {
            path.name: {each.name: each.read_bytes() for each in path.iterdir()}
            for path in sorted(folder.iterdir())
            if path.is_dir()
        }
        self.rows = {
            path.name.removesuffix("-rows.csv"): path for path in sorted(folder.glob("*-rows.csv"))
        }
        # Imports what a case would, once.
        for name in self.models:
            rows = self.rows[name.rsplit("-", 2)[0]]
            predict_file(folder / name, rows, folder / "out.csv", overwrite=True)

    def describe(self) -> dict[str, Any]:
        import lightgbm
        import torch
        import xgboost

        versions = {each.__name__: each.__version__ for each in (lightgbm, torch, xgboost)}
        return {**versions, "python": platform.python_version(), "machine": platform.machine()}

    def case(self, seed: int, folder: Path) -> str:
        rng = random.Random(seed)
        name = rng.choice(list(self.models))
        rows = self.rows[name.rsplit("-", 2)[0]]
        files, what = changed(rng, self.models[name])
        print(f"{name}: {what}", flush=True)
        before = len(self.said(folder))
        model, out = folder / "model", folder / "out.csv"
        model.mkdir()
        for each, data in sealed(rng, files).items():
            (model / each).write_bytes(data)
        words = ["predict", str(model), str(rows), "--out", str(out)]
        code = self._run(words)
        said = self.said(folder)[before:]
        if seed % AS_PROGRAM == 0:
            self._compare(words, code, said, out)
        if code == 2:
            if len(said.splitlines()) != 1 or not said.startswith("hitrate: "):
                raise Wrong(f"{what}: not one line: {said!r:.300}")
            if out.exists():
                raise Wrong(f"{what}: refused, and written")
            return "refused"
        if code != 0:
            raise Wrong(f"{what}: exit {code}: {said!r:.300}")
        _check(model, rows, out, what)
        return "predicted"

    def _run(self, words: list[str]) -> int:
        """The exit code of the command, in this process."""
        try:
            self.command(words)
        except SystemExit as ended:
            return int(ended.code or 0)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        return 0

    def _compare(self, words: list[str], code: int, said: str, out: Path) -> None:
        """The same through the command line, which must be the same."""
        here = out.read_bytes() if out.exists() else None
        out.unlink(missing_ok=True)
        ended = subprocess.run(
            [sys.executable, "-m", "hitrate_lab", *words], capture_output=True, text=True
        )
        there = out.read_bytes() if out.exists() else None
        if (ended.returncode, ended.stdout + ended.stderr, there) != (code, said, here):
            raise Wrong(f"a program ends otherwise: {ended.returncode} {ended.stderr!r:.300}")


def _fitted(table: Any, model: str, loss: str) -> Any:
    """A model of all rows, of few rounds."""
    import hitrate
    from hitrate_lab.models.methods import methods
    from hitrate_lab.models.saved import About, SavedModel
    from hitrate_lab.tables import Columns

    (method,) = methods([model], [loss])
    (parameters,) = method.candidates(1, len(table.target))
    columns = Columns().fit(table.features)
    estimator = method.build(parameters, 0).set_params(**QUICK.get(model, {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(
            columns.transform(table.features), np.searchsorted(table.classes, table.target)
        )
    about = About(
        method.name,
        parameters,
        0,
        table.name,
        table.target_name,
        tuple(table.classes),
        len(table.target),
        None,
        hitrate.__version__,
    )
    return SavedModel(columns, estimator, about)


def _mixed_table() -> str:
    """Numbers with gaps, categories, dates and text, and a target of three classes."""
    rng = random.Random(0)
    lines = ["number,gaps,colour,day,text,y"]
    words = ["quick", "brown", "fox", "lazy", "dog", "river", "stone", "cloud"]
    for _ in range(150):
        label = rng.randrange(3)
        gap = "" if rng.random() < 0.2 else f"{rng.gauss(label, 1):.3f}"
        colour = rng.choice(["red", "green", "blue"][: label + 1])
        day = f"20{rng.randrange(10, 25)}-0{rng.randrange(1, 10)}-1{rng.randrange(10)}"
        text = " ".join(rng.choice(words) for _ in range(6)) + f" number {rng.randrange(1000)}"
        lines.append(f"{rng.gauss(label, 1):.3f},{gap},{colour},{day},{text},{'abc'[label]}")
    return "\n".join(lines) + "\n"


def _check(model: Path, rows: Path, out: Path, what: str) -> None:
    """Hold what was predicted to what the folder says."""
    import pandas as pd

    from hitrate_lab.models.folder import load_model
    from hitrate_lab.tables.reading import read_rows

    with out.open(encoding="utf-8", newline="") as file:
        header, *found = list(csv.reader(file))
    loaded = load_model(model)
    classes = [str(each) for each in loaded.classes]
    if header != ["prediction", *(f"p({each})" for each in classes)] or len(found) != ROWS:
        raise Wrong(f"{what}: another shape")
    p = np.array([row[1:] for row in found], float)
    if p.shape != (ROWS, len(classes)) or not (np.isfinite(p) & (p >= 0) & (p <= 1)).all():
        raise Wrong(f"{what}: what is no probability")
    if np.abs(p.sum(1) - 1).max() > 1e-4:
        raise Wrong(f"{what}: probabilities of sum {p.sum(1)}")
    best = p.max(1)
    for row, each, most in zip(found, p, best, strict=True):
        if row[0] not in classes or each[classes.index(row[0])] < most - 1e-5:
            raise Wrong(f"{what}: {row[0]!r} of {each}")
    names = {"as_text": [loaded.about.target], "as_numbers": loaded.columns.numbers}
    frame = pd.concat(list(read_rows(str(rows), 1000, **names)))
    expected = _probabilities(model, loaded.columns.transform(frame), len(classes))
    if expected is not None and np.abs(p - expected).max() > 1e-4:
        raise Wrong(f"{what}: {p[0]} and not {expected[0]}")


def _probabilities(model: Path, x: Any, classes: int) -> Any:
    """What trees give; None for other models, and where digits are lost."""
    import torch

    import hitrate

    estimator = json.loads((model / "model.json").read_text())["estimator"]
    f = scores(model, x, classes)
    if f is None:
        return None
    noise = estimator["settings"].get("noise") or "gumbel"
    sigma = estimator["settings"].get("sigma") or 1.0
    return hitrate.class_probabilities(torch.from_numpy(f), sigma, noise=noise).numpy()


# A worker's children are not to fill the terminal.
os.environ.setdefault("COLUMNS", "200")
