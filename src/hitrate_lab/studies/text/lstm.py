"""Mixing's Table 3: recurrent networks that read reviews and say how many stars they gave.

One run is a data set, an architecture, a method and a seed. Data sets are "texts/NAME".
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.seeds import seed_of
from hitrate_lab.studies.protocol import Cell, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study, StudyMethod

COLLECTION = "texts/"
# Layers, and units of each, which are as many as a word's embedding has.
ARCHITECTURES = {"1": (1, 50), "2": (1, 75), "3": (1, 100), "4": (2, 50), "5": (2, 100)}
WEIGHTS, ORDER = 31, 32
# Rows that are classified at once.
AT_ONCE = 250


class TextLSTM(Protocol):
    """The last state of an LSTM, and a linear layer on it."""

    name = "text LSTM"
    version = 1

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        settings = _settings(study)
        known = [f"{kind}_accuracy_{each}" for kind in ("test", "train") for each in ARCHITECTURES]
        for measure in study.measures:
            if measure not in known:
                study.wrong("measures", f"{measure!r} is none of {', '.join(known)}")
        for name in study.data_sets:
            if not name.startswith(COLLECTION):
                study.wrong("data_sets", f"{name!r} is none of {COLLECTION}NAME")
        for each in settings["architectures"]:
            if each not in ARCHITECTURES:
                study.wrong("settings.architectures", f"{each!r} is none of 1 to 5")
        for method in study.methods:
            _method(study, method)

    def plan(self, study: Study) -> list[Specification]:
        """Specifications, seed by seed.

        Parameters
        ----------
        study : Study
        """
        from hitrate.recipes import recipe

        settings = _settings(study)
        architectures = settings.pop("architectures")
        methods = {method.name: _method(study, method) for method in study.methods}
        for name, each in methods.items():
            try:
                recipe(each["recipe"], **each["parameters"])
            except (TypeError, ValueError) as error:
                raise BadInput(f"{study.path}: methods[{name}]: {error}") from error
        return [
            {
                "study": study.name,
                "protocol": self.signature,
                "data_set": data_set,
                "architecture": architecture,
                "method": method.name,
                "seed": seed,
                **settings,
                **methods[method.name],
            }
            for seed in sorted({seed for method in study.methods for seed in method.seeds})
            for data_set in study.data_sets
            for architecture in architectures
            for method in study.methods
            if seed in method.seeds
        ]

    def run(self, specification: Specification, context: Context) -> Result:
        """Train with Adam, and look at test rows.

        Parameters
        ----------
        specification : dict
            One of `plan`.
        context : Context
        """
        import torch

        from hitrate.recipes import recipe
        from hitrate_lab.models.networks.lstm import LastState

        spec, begun = specification, time.perf_counter()
        name = spec["data_set"].removeprefix(COLLECTION)
        cut = spec["vocabulary"], spec["words"], spec["rows"]
        train, test, classes = _read(name, context.data_dir, *cut)
        layers, units = ARCHITECTURES[spec["architecture"]]
        torch.manual_seed(seed_of(spec["seed"], WEIGHTS))
        model = LastState(spec["vocabulary"], units, layers, classes)
        optimizer = torch.optim.Adam(model.parameters(), spec["learning_rate"])
        x, y = train
        total = spec["epochs"] * -(-len(y) // spec["batch_size"])
        plan = recipe(spec["recipe"], total_steps=total, optimizer=optimizer, **spec["parameters"])
        random = torch.Generator().manual_seed(seed_of(spec["seed"], ORDER))
        for _ in range(spec["epochs"]):
            order = torch.randperm(len(y), generator=random)
            for some in torch.split(order, spec["batch_size"]):
                optimizer.zero_grad()
                plan.loss(model(x[some]), y[some]).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), spec["clip"])
                optimizer.step()
                plan.step()
        found: Result = {}
        with torch.no_grad():
            for part, (x, y) in (("train", train), ("test", test)):
                hits = [
                    int((model(a).argmax(1) == b).sum())
                    for a, b in zip(torch.split(x, AT_ONCE), torch.split(y, AT_ONCE), strict=True)
                ]
                found[f"{part}_accuracy"], found[f"{part}_rows"] = sum(hits) / len(y), len(y)
        found["parameters"] = sum(each.numel() for each in model.parameters())
        found["seconds"] = round(time.perf_counter() - begun, 3)
        found["processor"] = processor()
        return found

    def cells(self, specification: Specification, result: Result) -> list[Cell]:
        """Accuracies in percent, for the report."""
        spec = specification
        return [
            (
                f"{kind}_accuracy_{spec['architecture']}",
                spec["data_set"],
                spec["method"],
                100 * result[f"{kind}_accuracy"],
            )
            for kind in ("test", "train")
        ]

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Differences from the first method."""
        import numpy as np

        from hitrate_lab.studies.networks.differences import Cell as Accuracies
        from hitrate_lab.studies.networks.differences import table_of_differences

        found: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
        for run in runs:
            spec, result = run.specification, run.result
            methods = found.setdefault((spec["data_set"], spec["architecture"]), {})
            pair = result["test_accuracy"], result["train_accuracy"]
            methods.setdefault(spec["method"], []).append(pair)
        cells = [
            Accuracies(
                data_set,
                f"architecture {architecture}",
                0.0,
                *(
                    {name: np.array([each[k] for each in some]) for name, some in methods.items()}
                    for k in (0, 1)
                ),
            )
            for (data_set, architecture), methods in found.items()
        ]
        return [table_of_differences(study, cells)] if cells else []

    def score_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]] | None:
        """Nothing is ranked over one data set."""
        return []


@functools.lru_cache(maxsize=1)
def _read(
    name: str, data_dir: Path | None, vocabulary: int, words: int, rows: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], int]:
    """Numbers of words (N, words) and classes, to learn from and to test on; 0 before the text."""
    import torch

    from hitrate_lab.datasets.sentence_vectors import parts_of
    from hitrate_lab.datasets.texts import read_texts
    from hitrate_lab.studies.text.features import WORD

    data = read_texts(name, data_dir=data_dir)
    parts = parts_of(data)
    split = [[WORD.findall(text.lower())[:words] for text in part.first] for part in parts]
    split[0] = split[0][:rows]
    counted = Counter(word for text in split[0] for word in text)
    places = {word: k for k, (word, _) in enumerate(counted.most_common(vocabulary - 2), 2)}
    made = []
    for texts, part in zip(split, parts, strict=True):
        x = torch.zeros(len(texts), words, dtype=torch.long)
        for row, text in enumerate(texts):
            if text:
                x[row, -len(text) :] = torch.tensor([places.get(word, 1) for word in text])
        made.append((x, torch.from_numpy(part.labels[: len(texts)])))
    return made[0], made[1], len(data.classes)


def _settings(study: Study) -> dict[str, Any]:
    """The table [settings], checked."""
    fields = study.fields()
    whole = ("vocabulary", "words", "rows", "epochs", "batch_size")
    found: dict[str, Any] = {"architectures": fields.texts("architectures")}
    found |= {key: fields.whole(key, 1) for key in whole}
    found |= {key: fields.number(key, above=True) for key in ("learning_rate", "clip")}
    fields.end()
    return found


def _method(study: Study, method: StudyMethod) -> dict[str, Any]:
    fields = study.fields(method)
    found = {
        "recipe": fields.text("recipe"),
        "parameters": fields.taken("parameters", dict, "a table", default={}),
    }
    fields.end()
    return found
