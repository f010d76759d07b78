"""Many small networks on images at once: what is gained, by width and share of wrong labels.

One run is a data set, a width and a share of wrong labels. All candidates of all methods are
trained together, with a seed of their own; validation rows, as wrong as the training rows, choose
one of each method. The chosen ones are trained together from fresh seeds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.seeds import seed_of
from hitrate_lab.studies.mixing.fields import check_made, check_methods, learning_rates_of
from hitrate_lab.studies.networks.images import SPLIT, read_set, wrong_labels
from hitrate_lab.studies.networks.settings import COLLECTION, KINDS, measure_of
from hitrate_lab.studies.protocol import Cell, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from hitrate_lab.datasets.images import ImageSet
    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study, StudyMethod
    from hitrate_lab.training.batched import Split, Variant

# Weights of every layer, and the weight decay and learning rate they were trained with.
Trained = tuple[float, float, "list[Tensor]"]


class CapacityMap(Protocol):
    """Networks of no or one hidden layer, each method with as many candidates."""

    name = "capacity map"
    version = 1

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        settings = _settings(study)
        for name in study.data_sets:
            if not name.startswith(COLLECTION):
                study.wrong("data_sets", f"{name!r} is none of {COLLECTION}NAME")
        known = {
            measure_of(kind, model_name(hidden), noise)
            for kind in KINDS
            for hidden in settings["hidden"]
            for noise in settings["noise"]
        }
        for measure in study.measures:
            if measure not in known:
                study.wrong("measures", f"{measure!r} is none of {', '.join(sorted(known))}")
        if len({method.seeds for method in study.methods}) > 1:
            study.wrong("methods", "all need the same seeds, of which they are trained together")
        if settings["tuning_seed"] in study.methods[0].seeds:
            study.fields().wrong("tuning_seed", "is one of the seeds, which should be fresh")
        for key in ("baseline", "judged"):
            check_methods(study, key, [settings[key]])
        for method in study.methods:
            _variant(study, method)

    def plan(self, study: Study) -> list[Specification]:
        """Specifications, narrow networks first: they take the least time.

        Parameters
        ----------
        study : Study
        """
        from hitrate_lab.training.batched import Variant

        settings = _settings(study)
        widths, shares = settings.pop("hidden"), settings.pop("noise")
        # What the report needs, and no result depends on.
        del settings["baseline"], settings["judged"]
        methods = [_variant(study, method) for method in study.methods]
        check_made(study, methods, lambda method: Variant(**method).plan(epochs=1))
        return [
            {
                "study": study.name,
                "protocol": self.signature,
                "data_set": data_set,
                "hidden": hidden,
                "noise": noise,
                "methods": methods,
                "seeds": list(study.methods[0].seeds),
                **settings,
            }
            for hidden in widths
            for noise in shares
            for data_set in study.data_sets
        ]

    def run(self, specification: Specification, context: Context) -> Result:
        """Choose a learning rate and a weight decay for each method, and train from fresh seeds.

        Parameters
        ----------
        specification : dict
            One of `plan`.
        context : Context
        """
        from hitrate_lab.training.batched import Variant

        spec, begun = specification, time.perf_counter()
        data = read_set(spec["data_set"].removeprefix(COLLECTION), context.data_dir)
        rows = split_of(data, spec)
        variants = [Variant(**each) for each in spec["methods"]]
        chosen = _tuned(rows, spec, variants)
        methods: dict[str, Any] = {}
        for decay, rate in dict.fromkeys(place for place, _ in chosen.values()):
            some = [each for each in variants if chosen[each.name][0] == (decay, rate)]
            found = _trained(rows, spec, some, decay, [rate], spec["seeds"])
            for name, models in found.items():
                methods[name] = {
                    "learning_rate": rate,
                    "weight_decay": decay,
                    "validation": chosen[name][1],
                    **{
                        kind: [_accuracy(model[2], part) for model in models]
                        for kind, part in (("train", rows.train), ("test", rows.test))
                    },
                }
        parameters = sum(part.numel() for part in models[0][2])
        candidates = len(spec["learning_rates"]) * len(spec["weight_decays"])
        return {
            "methods": {each.name: methods[each.name] for each in variants},
            "parameters": parameters,
            "classes": rows.classes,
            "train_rows": len(rows.train[1]),
            "test_rows": len(rows.test[1]),
            "copies": len(variants) * (candidates + len(spec["seeds"])),
            "seconds": round(time.perf_counter() - begun, 3),
            "processor": processor(),
        }

    def cells(self, specification: Specification, result: Result) -> list[Cell]:
        """Accuracies in percent, for the report: one number for each method and seed."""
        spec, model = specification, model_name(specification["hidden"])
        return [
            (measure_of(kind, model, spec["noise"]), spec["data_set"], name, 100 * accuracy)
            for kind in KINDS
            for name, each in result["methods"].items()
            for accuracy in each[kind]
        ]

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """The map, and what the gain goes with, for the report."""
        from hitrate_lab.studies.networks.capacity_summary import tables

        return tables(study, [(run.specification, run.result) for run in runs])

    def pictures(self, study: Study, runs: Sequence[Run]) -> dict[str, str]:
        """The map, and gains over training error and headroom."""
        from hitrate_lab.studies.networks.capacity_pictures import pictures

        return pictures(study, [(run.specification, run.result) for run in runs])

    def score_tables(self, study: Study, runs: Sequence[Any]) -> list[dict[str, Any]] | None:
        """Ranks are over data sets; two are too few for them."""
        return []


def model_name(hidden: int) -> str:
    """A network's name in measures: those of `NETWORKS`.

    >>> model_name(0), model_name(16)
    ('linear', 'mlp_16')
    """
    return f"mlp_{hidden}" if hidden else "linear"


def split_of(data: ImageSet, spec: Specification) -> Split:
    """Rows to train on and to choose by, both with wrong labels, and the test part, which is right.

    Parameters
    ----------
    data : ImageSet
    spec : dict
        `rows`, `validation`, `noise`, and `pool`: so many pixels by so many become their mean.
    """
    import torch

    from hitrate_lab.training.batched import Split

    # The same for all seeds, methods, widths and shares.
    order = np.random.default_rng(seed_of(0, SPLIT)).permutation(len(data.train_labels))
    held = order[: spec["validation"]]
    kept = order[spec["validation"] :][: spec["rows"]]
    labels = wrong_labels(data.train_labels, data.classes, spec["noise"])
    pixels = [
        _pooled(torch.tensor(images), spec["pool"])
        for images in (data.train_images[kept], data.train_images[held], data.test_images)
    ]
    mean, std = pixels[0].mean(), pixels[0].std()
    train, validation, test = (
        ((each - mean) / std, torch.tensor(target).long())
        for each, target in zip(pixels, (labels[kept], labels[held], data.test_labels), strict=True)
    )
    return Split(train, validation, test, data.classes)


def _pooled(images: Tensor, pool: int) -> Tensor:
    """Rows (N, features) of images (N, channels, H, W), from 0 to 1."""
    from torch.nn.functional import avg_pool2d

    return avg_pool2d(images.float() / 255, pool).flatten(1)


def _tuned(
    rows: Split, spec: Specification, variants: Sequence[Variant]
) -> dict[str, tuple[tuple[float, float], float]]:
    """Weight decay and learning rate by method, and its validation accuracy; of ties the first."""
    chosen: dict[str, tuple[tuple[float, float], float]] = {}
    for decay in spec["weight_decays"]:
        rates, seed = spec["learning_rates"], [spec["tuning_seed"]]
        for name, models in _trained(rows, spec, variants, decay, rates, seed).items():
            for _, rate, weights in models:
                accuracy = _accuracy(weights, rows.validation)
                if name not in chosen or accuracy > chosen[name][1]:
                    chosen[name] = (decay, rate), accuracy
    return chosen


def _trained(
    rows: Split,
    spec: Specification,
    variants: Sequence[Variant],
    decay: float,
    rates: Sequence[float],
    seeds: Sequence[int],
) -> dict[str, list[Trained]]:
    """Models of each method, seed by seed, of each seed one for each learning rate."""
    from hitrate_lab.training.batched import Optimizer, Setting, Split, train_many

    setting = Setting(
        "one hidden layer" if spec["hidden"] else "linear",
        spec["epochs"],
        spec["batch_size"],
        Optimizer("adam", weight_decay=decay, falls=True),
        spec["hidden"] or None,
    )
    # What is looked at after every epoch is of no use here, where the last one counts.
    one = rows.train[0][:1], rows.train[1][:1]
    alone = Split(rows.train, one, one, rows.classes)
    done = train_many(alone, setting, variants, rates, seeds)
    return {
        name: [
            (decay, rate, [part[k, place] for part in history.weights])
            for k in range(len(seeds))
            for place, rate in enumerate(rates)
        ]
        for name, history in done.items()
    }


def _accuracy(weights: list[Tensor], part: tuple[Tensor, Tensor]) -> float:
    from hitrate_lab.studies.gain.law import hits

    return float(hits(weights, part).double().mean())


def _settings(study: Study) -> dict[str, Any]:
    """The table [settings], checked."""
    fields = study.fields()
    found: dict[str, Any] = {
        "hidden": fields.seeds("hidden"),
        "noise": fields.numbers("noise"),
        "rows": fields.whole("rows", 1),
        "validation": fields.whole("validation", 1),
        "pool": fields.whole("pool", 1),
        "epochs": fields.whole("epochs", 1),
        "batch_size": fields.whole("batch_size", 1),
        "learning_rates": learning_rates_of(fields),
        "weight_decays": fields.numbers("weight_decays"),
        "tuning_seed": fields.whole("tuning_seed"),
        "baseline": fields.text("baseline"),
        "judged": fields.text("judged"),
    }
    fields.end()
    if any(share >= 1 for share in found["noise"]):
        fields.wrong("noise", "needs shares below 1")
    return found


def _variant(study: Study, method: StudyMethod) -> dict[str, Any]:
    """What a method trains with, as arguments of `Variant`."""
    fields = study.fields(method)
    found = {
        "name": method.name,
        "recipe": fields.text("recipe"),
        "settings": fields.taken("parameters", dict, "a table", default={}),
    }
    fields.end()
    return found
