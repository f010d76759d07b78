"""Losses on a whole encoder of sentences: all of its weights move, as in Mixing's Figure 2.

A run is a data set, a method and a seed. Before them come trials, one for each learning rate: on a
share of the training rows that is held out they say which rate a method's runs have, which are
trained on all rows. All keep checkpoints. Data sets are "texts/NAME".
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.seeds import seed_of
from hitrate_lab.studies.mixing.fields import learning_rates_of
from hitrate_lab.studies.protocol import Cell, Protocol
from hitrate_lab.studies.text.settings import (
    COLLECTION,
    check_names,
    check_options,
    held_out_of,
    recipe_of,
)
from hitrate_lab.studies.trials import trials_of

if TYPE_CHECKING:
    from torch import nn

    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study, StudyMethod
    from hitrate_lab.training import Ragged, Trainer

KINDS = ("test", "train")
# What is drawn from a seed.
WEIGHTS, ORDERS = 32, 33
# Of trials, apart from the studies' seeds.
TRIAL_SEED = 1000


class FineTuning(Protocol):
    """An encoder and a linear layer, trained with the same options but for the loss."""

    name = "text fine-tuning"
    version = 1
    uses_device = True

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        settings = _settings(study)
        check_names(study, (f"{kind}_accuracy" for kind in KINDS))
        for method in study.methods:
            found = _method(study, method)
            for name in study.data_sets:
                if found["warm"] >= settings["sets"][name]["epochs"]:
                    fields = study.fields(method)
                    fields.wrong("warm", f"leaves no epoch of {name} to the method itself")

    def plan(self, study: Study) -> list[Specification]:
        """Specifications: all trials, then seed by seed what their best rates are used for.

        Of a single learning rate there are no trials.

        Parameters
        ----------
        study : Study
        """
        settings = _settings(study)
        training, sets, rates = (settings.pop(k) for k in ("training", "sets", "learning_rates"))
        methods = {each.name: _method(study, each) for each in study.methods}
        check_options(
            study, {name: {**training, **each["training"]} for name, each in methods.items()}
        )
        trials, finals = [], []
        for data_set in study.data_sets:
            for method in study.methods:
                own = methods[method.name]
                rise = training.get("warmup", 0.0) * sets[data_set]["epochs"]
                if 0 < own["warm"] <= rise:
                    what = (
                        f"needs more epochs than the {rise:g} in which the rate of {data_set} rises"
                    )
                    study.fields(method).wrong("warm", what)
                place = {
                    "study": study.name,
                    "protocol": self.signature,
                    "data_set": data_set,
                    "method": method.name,
                    **settings,
                    **{key: sets[data_set][key] for key in ("rows", "test_rows")},
                    "warm": own["warm"],
                    "training": {**training, "epochs": sets[data_set]["epochs"], **own["training"]},
                }
                if len(rates) > 1:
                    trials += [
                        {
                            **place,
                            "stage": "trial",
                            "trial": k,
                            "learning_rate": rate,
                            "seed": TRIAL_SEED,
                        }
                        for k, rate in enumerate(rates)
                    ]
                finals += [
                    {**place, "stage": "final", "learning_rates": rates, "seed": seed}
                    for seed in method.seeds
                ]
        return trials + sorted(finals, key=lambda each: int(each["seed"]))

    def needs(
        self, specification: Specification, plan: Sequence[Specification]
    ) -> list[Specification]:
        """The trials of the rates of which the best is to be used."""
        return trials_of(specification, plan)

    def run(self, specification: Specification, context: Context) -> Result:
        """Try a learning rate, or train with the best one and look at test rows.

        Parameters
        ----------
        specification : dict
            One of `plan`.
        context : Context
            Knows, at the end, results of all trials.
        """
        spec, begun = specification, time.perf_counter()
        is_trial = spec["stage"] == "trial"
        held_out = spec["held_out"] if is_trial else 0.0
        parts = spec["rows"], spec["test_rows"], held_out
        name, encoder = spec["data_set"].removeprefix(COLLECTION), spec["encoder"]
        data = _numbered(name, encoder, context.data_dir, spec["tokens"], parts)
        train, test, _ = data
        chosen: Mapping[str, Any] = spec
        if not is_trial:
            (rate, *others), trials = spec["learning_rates"], context.known.values()
            chosen = best_of(trials) if others else {"learning_rate": rate}
        model = _model(data, encoder, spec["seed"], context)
        last, curve = _trained(model, train, spec, chosen["learning_rate"], context)
        logits = last.predict(test)
        said = logits.argmax(1)
        found: Result = {
            "learning_rate": chosen["learning_rate"],
            "curve": [round(accuracy, 5) for accuracy in curve],
            "train_rows": len(train),
            "test_rows": len(test),
            "processor": processor(),
        }
        accuracy = float((said == test.target).double().mean())
        if is_trial:
            found["validation_accuracy"] = accuracy
        else:
            found |= {
                "validation_accuracy": chosen.get("validation_accuracy"),
                "test_accuracy": accuracy,
                "train_accuracy": last.evaluate(train)["accuracy"],
                # How often the most frequent answer is given.
                "most_said": float(said.bincount().max()) / len(said),
                # Without the embeddings of tokens that do not occur.
                "trained_parameters": sum(each.numel() for each in model.parameters()),
            }
        return {**found, "seconds": round(time.perf_counter() - begun, 3)}

    def cells(self, specification: Specification, result: Result) -> list[Cell]:
        """Accuracies in percent of what was trained at the end, for the report."""
        if specification["stage"] == "trial":
            return []
        place = specification["data_set"], specification["method"]
        return [(f"{kind}_accuracy", *place, 100 * result[f"{kind}_accuracy"]) for kind in KINDS]

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Differences from the first method, and how training went."""
        from hitrate_lab.studies.text.fine_tuning_tables import tables

        return tables(study, [(run.specification, run.result) for run in runs])

    def score_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]] | None:
        """Test accuracies by data set and method, means over seeds."""
        from hitrate_lab.studies.text.fine_tuning_tables import scores

        return scores(study, [(run.specification, run.result) for run in runs])


def best_of(trials: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The trial with the highest accuracy on held-out rows; of several, that of the lowest rate.

    Parameters
    ----------
    trials : iterable of mappings
        Their results.
    """
    return max(trials, key=lambda each: (each["validation_accuracy"], -each["learning_rate"]))


def _trained(
    model: nn.Module, rows: Ragged, spec: Specification, rate: float, context: Context
) -> tuple[Trainer, list[float]]:
    """The last trainer, and training accuracy in each epoch."""
    from hitrate_lab.studies.networks.images import options_of
    from hitrate_lab.training import Trainer

    curve: list[float] = []
    training = {**spec["training"], "learning_rate": rate}
    for number, part in enumerate(stages_of(training, spec["warm"])):
        folder = None if context.scratch is None else context.scratch / str(number)
        seed = seed_of(spec["seed"], ORDERS, number)
        trainer = Trainer(model, rows, options_of(part), folder=folder, seed=seed)
        trainer.fit()
        curve += [epoch.train_accuracy for epoch in trainer.epochs]
    return trainer, curve


def stages_of(training: Mapping[str, Any], warm: int) -> list[dict[str, Any]]:
    """Trainings one after the other: epochs of cross entropy, if any, and the method's own.

    The learning rate rises in the first part of the first one, and falls to nothing over all.

    Parameters
    ----------
    training : mapping
        Of all epochs.
    warm : int
        Epochs of cross entropy.
    """
    from hitrate.schedules import linear

    epochs = training["epochs"]
    parts = [
        ("cross_entropy", {}, 0, warm),
        (training["recipe"], training["changes"], warm, epochs),
    ]
    return [
        {
            **training,
            "recipe": recipe,
            "changes": changes,
            "epochs": end - start,
            "rate": linear(1 - start / epochs, 1 - end / epochs),
            "warmup": 0.0 if start else training.get("warmup", 0.0) * epochs / end,
        }
        for recipe, changes, start, end in parts
        if end > start
    ]


@functools.lru_cache(maxsize=4)
def _numbered(
    name: str, encoder: str, data_dir: Path | None, tokens: int, parts: tuple[int, int, float]
) -> tuple[Ragged, Ragged, int]:
    """Tokens, to learn from and to test on, and how many classes there are."""
    from hitrate_lab.datasets.encoders import encoder_folder, padding_of, tokens_of
    from hitrate_lab.datasets.texts import read_texts
    from hitrate_lab.studies.text.rows import rows_of, texts_of

    data, folder = read_texts(name, data_dir=data_dir), encoder_folder(encoder, data_dir)
    padding = padding_of(folder)
    train, test = (
        rows_of(tokens_of(folder, part.first, part.second, most=tokens), part.labels, padding)
        for part in texts_of(data, *parts)
    )
    return train, test, len(data.classes)


def _model(
    data: tuple[Ragged, Ragged, int], encoder: str, seed: int, context: Context
) -> nn.Module:
    """The encoder as it comes, with the seed's linear layer on it."""
    import torch

    from hitrate_lab.datasets.encoders import Encoder, encoder_folder
    from hitrate_lab.models.networks.sentence_classifier import SentenceClassifier

    *parts, classes = data
    used = {token for part in parts for row in part.x for token in row.tolist()}
    inner = Encoder(encoder_folder(encoder, context.data_dir), used)
    longest = max(len(row) for part in parts for row in part.x)
    if longest > inner.positions:
        most = f"{encoder} has {inner.positions} positions"
        raise BadInput(f"a text of {longest} tokens is too long: {most}; settings.tokens cuts it")
    torch.manual_seed(seed_of(seed, WEIGHTS))
    return SentenceClassifier(inner, inner.width, classes).to(context.device)


def _settings(study: Study) -> dict[str, Any]:
    """The table [settings], checked."""
    fields = study.fields()
    of_sets = fields.table("sets")
    found: dict[str, Any] = {
        "encoder": fields.text("encoder"),
        "tokens": fields.whole("tokens", 1),
        "held_out": held_out_of(fields, above=True),
        "learning_rates": learning_rates_of(fields),
        "training": fields.table("training").rest(),
        "sets": {},
    }
    for name in study.data_sets:
        own = of_sets.table(name)
        found["sets"][name] = {key: own.whole(key, 1) for key in ("rows", "test_rows", "epochs")}
        own.end()
    of_sets.end()
    fields.end()
    return found


def _method(study: Study, method: StudyMethod) -> dict[str, Any]:
    fields = study.fields(method)
    # Epochs of cross entropy before it.
    found = {"training": recipe_of(fields), "warm": fields.whole("warm", default=0)}
    fields.end()
    return found
