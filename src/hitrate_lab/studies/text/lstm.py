"""Mixing's Table 3: recurrent networks that read reviews and say how many stars they gave.

One run is a data set, an architecture, a method and a seed. It keeps checkpoints. Data sets are
"texts/NAME".
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.seeds import seed_of
from hitrate_lab.studies.protocol import Cell, Protocol
from hitrate_lab.studies.text.settings import (
    COLLECTION,
    check_names,
    check_options,
    held_out_of,
    recipe_of,
)

if TYPE_CHECKING:
    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study, StudyMethod
    from hitrate_lab.training import Ragged

# Layers, and units of each, which are as many as a word's embedding has.
ARCHITECTURES = {"1": (1, 50), "2": (1, 75), "3": (1, 100), "4": (2, 50), "5": (2, 100)}
KINDS = ("test", "train")
# What is drawn from a seed, beside what the trainer draws.
WEIGHTS = 31


class TextLSTM(Protocol):
    """The last state of an LSTM, and a linear layer on it."""

    name = "text LSTM"
    version = 2

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        settings = _settings(study)
        check_names(study, (f"{kind}_accuracy_{each}" for kind in KINDS for each in ARCHITECTURES))
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
        settings = _settings(study)
        architectures, training = settings.pop("architectures"), settings.pop("training")
        trainings = {each.name: {**training, **_method(study, each)} for each in study.methods}
        check_options(study, trainings)
        return [
            {
                "study": study.name,
                "protocol": self.signature,
                "data_set": data_set,
                "architecture": architecture,
                "method": method.name,
                "seed": seed,
                **settings,
                "training": trainings[method.name],
            }
            for seed in sorted({seed for method in study.methods for seed in method.seeds})
            for data_set in study.data_sets
            for architecture in architectures
            for method in study.methods
            if seed in method.seeds
        ]

    def run(self, specification: Specification, context: Context) -> Result:
        """Train, and look at training and test rows.

        Parameters
        ----------
        specification : dict
            One of `plan`.
        context : Context
        """
        import torch

        from hitrate_lab.models.networks.lstm import LastState
        from hitrate_lab.studies.networks.images import options_of
        from hitrate_lab.training import Trainer

        spec, begun = specification, time.perf_counter()
        train, test, classes = _rows(spec, context.data_dir)
        layers, units = ARCHITECTURES[spec["architecture"]]
        torch.manual_seed(seed_of(spec["seed"], WEIGHTS))
        model = LastState(spec["vocabulary"], units, layers, classes)
        options, seed = options_of(spec["training"]), spec["seed"]
        trainer = Trainer(model, train, options, folder=context.scratch, seed=seed)
        trainer.fit()
        return {
            "train_accuracy": trainer.evaluate(train)["accuracy"],
            "test_accuracy": trainer.evaluate(test)["accuracy"],
            "curve": [round(epoch.train_accuracy, 5) for epoch in trainer.epochs],
            "train_rows": len(train),
            "test_rows": len(test),
            "parameters": sum(each.numel() for each in model.parameters()),
            "seconds": round(time.perf_counter() - begun, 3),
            "processor": processor(),
        }

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
            for kind in KINDS
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


def _rows(spec: Specification, data_dir: Path | None) -> tuple[Ragged, Ragged, int]:
    """Numbers of words, to learn from and to test on, and how many classes there are."""
    name = spec["data_set"].removeprefix(COLLECTION)
    parts = spec["rows"], spec["test_rows"], spec["held_out"]
    return _numbered(name, data_dir, spec["vocabulary"], spec["words"], parts)


@functools.lru_cache(maxsize=1)
def _numbered(
    name: str, data_dir: Path | None, vocabulary: int, words: int, parts: tuple[int, int, float]
) -> tuple[Ragged, Ragged, int]:
    from hitrate_lab.datasets.texts import read_texts
    from hitrate_lab.studies.text.features import WORD
    from hitrate_lab.studies.text.rows import rows_of, texts_of

    data = read_texts(name, data_dir=data_dir)
    found = texts_of(data, *parts)
    split = [[WORD.findall(text.lower())[:words] for text in part.first] for part in found]
    counted = Counter(word for text in split[0] for word in text)
    # 0 stands behind a text, 1 for a word that is not known.
    places = {word: k for k, (word, _) in enumerate(counted.most_common(vocabulary - 2), 2)}
    train, test = (
        rows_of([[places.get(word, 1) for word in text] or [1] for text in texts], part.labels)
        for texts, part in zip(split, found, strict=True)
    )
    return train, test, len(data.classes)


def _settings(study: Study) -> dict[str, Any]:
    """The table [settings], checked."""
    fields = study.fields()
    found: dict[str, Any] = {"architectures": fields.texts("architectures")}
    found |= {key: fields.whole(key, 1) for key in ("vocabulary", "words", "rows", "test_rows")}
    # Of the rows to learn from this share is held out, in the place of test rows.
    found["held_out"] = held_out_of(fields, default=0.0)
    found["training"] = fields.table("training").rest()
    fields.end()
    return found


def _method(study: Study, method: StudyMethod) -> dict[str, Any]:
    fields = study.fields(method)
    found = recipe_of(fields)
    fields.end()
    return found
