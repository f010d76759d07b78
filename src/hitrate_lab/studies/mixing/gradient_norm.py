r"""The control of Mixing's equations 20 to 22: cross entropy with a mixture's size of gradients.

The paper compares areas under gradients at the logits, as functions of probabilities that are
uniform on [0, 1]. For :math:`-\alpha \log p + \beta (1 - p)` they are, by equation 13,

.. math::

    \int_0^1 (1 - p_y)(\alpha + \beta p_y) \, dp_y = \frac\alpha2 + \frac\beta6, \qquad
    \int_0^1 \!\! \int_0^1 p_j (\alpha + \beta p_y) \, dp_y \, dp_j = \frac\alpha2 + \frac\beta4

for the logit of the target (21) and of another class (22), and 1/2 for cross entropy.

One run is a data set and an architecture: all methods, learning rates and seeds are trained
together, and then, with one learning rate, followed to measure their gradients.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.studies.mixing.fields import (
    check_made,
    check_methods,
    check_names,
    data_of,
    learning_rates_of,
    models_of,
    optimizer_of,
    setting_of,
)
from hitrate_lab.studies.mixing.table import MEASURES, accuracy_cells, best_of, chosen
from hitrate_lab.studies.protocol import Cell, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from hitrate.links import Mixed
    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study, StudyMethod
    from hitrate_lab.training.batched import Setting, Split, Variant

# Area under cross entropy's gradient, equation 20.
CROSS_ENTROPY = 0.5


def factors(loss: Mixed) -> tuple[float, float]:
    """What cross entropy is multiplied by to have a mixture's area: by equation 21, and by 22."""
    alpha, beta = float(loss.alpha), float(loss.beta)
    return (alpha / 2 + beta / 6) / CROSS_ENTROPY, (alpha / 2 + beta / 4) / CROSS_ENTROPY


class MixingGradientNorm(Protocol):
    """Mixtures beside cross entropy with their size of gradients."""

    name = "mixing gradient norm"
    version = 1

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        settings = _settings(study)
        check_names(study, MEASURES, "all need the same seeds, of which they are trained together")
        for method in study.methods:
            _method(study, method)
        check_methods(study, "baseline", [settings["baseline"]])
        check_methods(study, "measured", settings["measured"])
        check_methods(study, "pairs", [name for pair in pairs(study) for name in pair])

    def plan(self, study: Study) -> list[Specification]:
        """Specifications, one architecture after the other.

        Parameters
        ----------
        study : Study
        """
        settings = _settings(study)
        models = settings.pop("models")
        methods = [_method(study, method) for method in study.methods]
        check_made(study, methods, lambda method: mixtures(variant(method), 1))
        return [
            {
                "study": study.name,
                "protocol": self.signature,
                "data_set": data_set,
                "model": model,
                "seeds": list(study.methods[0].seeds),
                "methods": methods,
                **settings,
            }
            for model in models
            for data_set in study.data_sets
        ]

    def run(self, specification: Specification, context: Context) -> Result:
        """Train all models of a data set, and measure gradients on the way of some of them.

        Parameters
        ----------
        specification : dict
            One of `plan`.
        context : Context
        """
        from hitrate_lab.training.batched import Split, train_many

        spec = specification
        begun = time.perf_counter()
        split, setting = Split.of(data_of(spec, context)), setting_of(spec, spec["epochs"])
        variants = {method["name"]: variant(method) for method in spec["methods"]}
        trained = train_many(
            split, setting, list(variants.values()), spec["learning_rates"], spec["seeds"]
        )
        held = len(split.validation[1]), len(split.test[1])
        return {
            "chosen": {name: chosen(history, spec, held) for name, history in trained.items()},
            "best": {name: best_of(history) for name, history in trained.items()},
            "norms": norms(spec, setting, split, [variants[name] for name in spec["measured"]]),
            "train_rows": len(split.train[1]),
            "validation_rows": held[0],
            "test_rows": held[1],
            "features": split.inputs,
            "classes": split.classes,
            "seconds": round(time.perf_counter() - begun, 3),
            "processor": processor(),
        }

    def cells(self, specification: Specification, result: Result) -> list[Cell]:
        """Test accuracy in percent, for the report: one number for each method and seed."""
        return accuracy_cells(specification, result)

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Gradients beside the equations, and mixtures beside their controls, for the report."""
        from hitrate_lab.studies.mixing.gradient_norm_summary import tables

        return tables(study, [(run.specification, run.result) for run in runs])


def variant(method: dict[str, Any]) -> Variant:
    """What a method trains with; a list of factors is of cross entropy, in phases of equal length.

    Parameters
    ----------
    method : dict
        Of a specification.
    """
    from hitrate.schedules import phases
    from hitrate_lab.training.batched import Variant

    if not isinstance(method["factor"], list):
        return Variant(**method)
    if method["recipe"] != "cross_entropy" or method["settings"]:
        raise ValueError("a list of factors is for the recipe 'cross_entropy' alone")
    settings = {"noise": "gumbel", "link": "mixed", "alpha": phases(method["factor"]), "beta": 0.0}
    return Variant(method["name"], "exact", settings)


def norms(
    spec: dict[str, Any], setting: Setting, split: Split, variants: Sequence[Variant]
) -> dict[str, list[list[dict[str, float]]]]:
    """Mean gradients of rows, by method, for each seed, after some epochs.

    Returns
    -------
    dict
        "logit" is the mean size of the gradient at the target's logit, "weights" the mean norm of
        that of the weights, both with the loss as it was in that epoch; "ce_logit" and "ce_weights"
        are those of cross entropy at the same weights.
    """
    from hitrate_lab.training.curvature import flat, log_p, network_logits, row_norms

    logits = network_logits(setting.layers(split))
    x, y = split.train[0].double(), split.train[1]
    found: dict[str, list[list[dict[str, float]]]] = {
        each.name: [[] for _ in spec["seeds"]] for each in variants
    }
    losses = {each.name: mixtures(each, setting.epochs) for each in variants}
    for epoch, weights in _followed(spec, setting, split, variants):
        for k, each in enumerate(variants if epoch in spec["measured_at"] else []):
            loss = losses[each.name][epoch - 1]
            for seed, into in enumerate(found[each.name]):
                w = flat([part[seed, k] for part in weights])
                p = log_p(logits(w, x), y).exp()
                size = row_norms(logits, w, x, y)
                steep = each.factor * (loss.alpha + loss.beta * p)
                numbers = {
                    "logit": float((steep * (1 - p)).mean()),
                    "ce_logit": float((1 - p).mean()),
                    "weights": float((steep * size).mean()),
                    "ce_weights": float(size.mean()),
                }
                into.append({"epoch": epoch, **{k: float(f"{v:.6g}") for k, v in numbers.items()}})
    return found


def mixtures(variant: Variant, epochs: int) -> list[Mixed]:
    """Alpha and beta of each epoch."""
    planned = variant.plan(epochs)
    found = []
    for _ in range(epochs):
        found.append(_mixture(planned.loss))
        planned.step()
    return found


def pairs(study: Study) -> list[tuple[str, str]]:
    """Mixtures and their controls."""
    return [(pair[0], pair[1]) for pair in study.settings["pairs"]]


def _followed(
    spec: dict[str, Any], setting: Setting, split: Split, variants: Sequence[Variant]
) -> Iterator[tuple[int, list[Tensor]]]:
    """Weights (S, V, outputs, inputs + 1) of each layer after each epoch, at one learning rate."""
    import torch

    from hitrate_lab.training.batched.copies import Copies
    from hitrate_lab.training.batched.many import epochs_of_many

    cpu = torch.device("cpu")
    copies = Copies(setting, split, variants, [spec["norm_rate"]], spec["seeds"], cpu)
    assert copies.variants == list(variants)
    for epoch in epochs_of_many(copies, split, setting, spec["seeds"], cpu):
        yield epoch, copies.weights()


def _mixture(loss: Any) -> Mixed:
    """A loss, as it stands now, as alpha and beta."""
    from hitrate_lab.training.batched.variants import softmax_link

    link = softmax_link(loss)
    mixed = None if link is None else link.mixture
    if mixed is None:
        raise ValueError(f"{loss} is no sum of cross entropy and expectation loss")
    return mixed


def _settings(study: Study) -> dict[str, Any]:
    """The table [settings], checked, without what only the report needs."""
    fields = study.fields()
    models = models_of(fields, MEASURES)
    rates = learning_rates_of(fields)
    optimizer = optimizer_of(fields)
    found: dict[str, Any] = {
        "models": models,
        "baseline": fields.text("baseline"),
        "epochs": fields.whole("epochs", 1),
        "batch_size": fields.whole("batch_size", 1),
        "learning_rates": rates,
        "optimizer": optimizer,
        "measured": fields.texts("measured"),
        "measured_at": sorted(fields.seeds("measured_at")),
        "norm_rate": fields.number("norm_rate", above=True),
    }
    if not 1 <= min(found["measured_at"]) <= max(found["measured_at"]) <= found["epochs"]:
        fields.wrong("measured_at", f"needs epochs from 1 to {found['epochs']}")
    for pair in fields.taken("pairs", list, "a list of pairs"):
        if not isinstance(pair, list) or len(pair) != 2:
            fields.wrong("pairs", f"needs pairs of methods, but has {pair!r}")
    fields.number("rope")
    fields.end()
    if found["baseline"] not in found["measured"]:
        fields.wrong("measured", f"needs the baseline, {found['baseline']!r}")
    return found


def _method(study: Study, method: StudyMethod) -> dict[str, Any]:
    """What a method trains with, for `variant`."""
    fields = study.fields(method)
    factor = fields.taken("factor", int | float | list, "a number or a list of them", default=1.0)
    for each in factor if isinstance(factor, list) else [factor]:
        if isinstance(each, bool) or not isinstance(each, int | float) or not each > 0:
            fields.wrong("factor", f"needs numbers above 0, but has {each!r}")
    found = {
        "name": method.name,
        "recipe": fields.text("recipe"),
        "settings": fields.taken("parameters", dict, "a table", default={}),
        "factor": factor,
    }
    fields.end()
    return found
