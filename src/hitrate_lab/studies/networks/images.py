"""Networks on images: the papers' tables, and comparisons of losses of our own.

One run is a data set, a network, a share of wrong labels, a method and a seed. It keeps
checkpoints, so that a kill costs an epoch. Data sets are "images/NAME", a NAME of `IMAGE_SETS`.
"""

from __future__ import annotations

import base64
import functools
import inspect
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets.long_tail import long_tailed
from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.seeds import seed_of
from hitrate_lab.studies.changes import moving, told, told_before
from hitrate_lab.studies.networks.counted import balanced, by_class, top_k_accuracy
from hitrate_lab.studies.networks.settings import (
    BALANCED_MEASURE,
    COLLECTION,
    Settings,
    Trained,
    measure_of,
    methods_of,
    settings_of,
    top_measure,
)
from hitrate_lab.studies.protocol import Cell, Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hitrate_lab.datasets.images import ImageSet
    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study
    from hitrate_lab.training import Options, Rows, Trainer

# What is drawn from a seed, beside what the trainer draws.
WEIGHTS, LABELS, SPLIT = 11, 12, 13
# Images that the first layer of a network may look at.
LOOKED_AT = 5000


class ImageNetworks(Protocol):
    """Any network of `NETWORKS`, trained by `Trainer` with the same options but for the loss."""

    name = "image networks"
    version = 1
    uses_device = True
    has_one_thread = False

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        settings_of(study)
        methods_of(study)

    def plan(self, study: Study) -> list[Specification]:
        """Specifications, seed by seed: each cell has its first number early.

        Parameters
        ----------
        study : Study
        """
        settings = settings_of(study)
        methods = methods_of(study)
        plan = [
            {
                "study": study.name,
                "protocol": self.signature,
                "data_set": data_set,
                "model": model,
                "noise": noise,
                "method": method.name,
                "rows": settings.rows,
                "validation": settings.validation,
                "keep_hits": settings.keep_hits,
                "mirrored": settings.mirrored,
                "changes": {**settings.changes_of(model), **methods[method.name][data_set].network},
                "training": {
                    **settings.training,
                    "epochs": settings.epochs_of(data_set),
                    "augment": settings.augment_of(data_set),
                    **methods[method.name][data_set].training,
                },
                "seed": seed,
                **_asked(settings, methods[method.name][data_set]),
            }
            for seed in sorted({seed for method in study.methods for seed in method.seeds})
            for data_set in study.data_sets
            for model in settings.models_of(data_set)
            for noise in settings.noise
            for method in study.methods
            if seed in method.seeds
        ]
        _check(study, plan)
        return plan

    def run(self, specification: Specification, context: Context) -> Result:
        """Train and evaluate.

        Parameters
        ----------
        specification : dict
            One of `plan`.
        context : Context
        """
        import torch

        spec, device = specification, torch.device(context.device)
        if device.type == "cuda":
            torch.backends.cudnn.benchmark = True
        name = spec["data_set"].removeprefix(COLLECTION)
        rows, held_out = parts_of(read_set(name, context.data_dir), spec)
        classes = _classes(name, context.data_dir)
        model = model_of(spec, rows, classes).to(device)
        begun = time.perf_counter()
        trainer = trainer_of(model, rows, spec, classes, context.scratch)
        trainer.fit()
        seconds = time.perf_counter() - begun
        logits = trainer.predict(held_out)
        hit = (logits.argmax(1) == held_out.target).numpy()
        found: Result = {
            "test_accuracy": float(hit.mean()),
            "test_log_loss": _log_loss(logits, held_out.target),
            "train_accuracy": trainer.evaluate(rows)["accuracy"],
            "train_loss": trainer.epochs[-1].train_loss,
            "curve": [round(epoch.train_accuracy, 5) for epoch in trainer.epochs],
            "parameters": sum(p.numel() for p in model.parameters()),
            "train_rows": len(rows),
            "test_rows": len(held_out),
            "steps": trainer.steps_done,
            # Of all its parts, if it was killed between.
            "training_seconds": round(sum(epoch.seconds for epoch in trainer.epochs), 3),
            "seconds": round(seconds, 3),
            "processor": processor(),
            "device": _device_name(context.device),
        }
        if spec["keep_hits"]:
            found["hits"] = packed(hit)
        if "k" in spec:
            found["top_k_accuracy"] = top_k_accuracy(logits, held_out.target, spec["k"])
        if "imbalance" in spec:
            found["by_class"] = by_class(logits, held_out.target, rows.target, classes)
        return found

    def cells(self, specification: Specification, result: Result) -> list[Cell]:
        """Accuracies in percent, for the report."""
        spec = specification
        return [
            (
                measure_of(kind, spec["model"], spec["noise"]),
                spec["data_set"],
                spec["method"],
                100 * result[f"{kind}_accuracy"],
            )
            for kind in ("test", "train")
        ] + [
            (measure, spec["data_set"], spec["method"], 100 * value)
            for measure, value in _unmixed(spec, result).items()
        ]

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Differences from the first method, and what else was looked at, for the report."""
        from hitrate_lab.studies.networks.differences import summary_of
        from hitrate_lab.studies.networks.wanted import tables

        return summary_of(study, runs) + tables(study, runs)

    def score_tables(self, study: Study, runs: Sequence[Any]) -> list[dict[str, Any]] | None:
        """Ranks are over data sets; a handful of images' sets is too few for them."""
        return []


def _asked(settings: Settings, method: Trained) -> dict[str, Any]:
    """Parts of a specification that are there only where a study asks for them."""
    found: dict[str, Any] = {}
    if settings.imbalance > 1:
        found["imbalance"] = settings.imbalance
    if settings.k > 1:
        found["k"] = settings.k
    if method.balance != "none":
        found["balance"] = method.balance
        found["largest_margin"] = method.largest_margin
    return found


def _unmixed(spec: Specification, result: Result) -> dict[str, float]:
    """Accuracies by measures that name no network."""
    found = {f"{kind}_accuracy": result[f"{kind}_accuracy"] for kind in ("test", "train")}
    if "top_k_accuracy" in result:
        found[top_measure(spec["k"])] = result["top_k_accuracy"]
    if "by_class" in result:
        found[BALANCED_MEASURE] = balanced(result["by_class"])
    return found


def _check(study: Study, plan: Sequence[Specification]) -> None:
    """Of networks, options and k. Not in `check`: to read a file should not load torch."""
    from hitrate_lab.datasets.images import IMAGE_SETS
    from hitrate_lab.models.networks import NETWORKS

    k = plan[0].get("k", 1)
    for data_set in study.data_sets:
        images = IMAGE_SETS.get(data_set.removeprefix(COLLECTION))
        if images is not None and k > images.classes:
            study.fields().wrong(
                "k", f"{k} is more than the {images.classes} classes of {data_set}"
            )
    seen: set[str] = set()
    for spec in plan:
        if spec["model"] not in NETWORKS:
            known = ", ".join(NETWORKS)
            study.fields().wrong("networks", f"{spec['model']!r} is none of {known}")
        place = f"{spec['method']} {spec['data_set']}"
        if place not in seen:
            seen.add(place)
            try:
                options_of(spec["training"], told_before(spec.get("balance", "none")))
            except (TypeError, ValueError) as error:
                raise BadInput(f"{study.path}: methods[{spec['method']}]: {error}") from error


def options_of(training: Mapping[str, Any], known: Mapping[str, Any] | None = None) -> Options:
    """How a network is trained, from a specification, and what its loss is told of the classes."""
    import torch

    from hitrate import schedules
    from hitrate.recipes import recipe
    from hitrate_lab.training import Options

    fields = {**training, "changes": {**moving(training.get("changes", {})), **(known or {})}}
    last = fields.pop("last_learning_rate", None)
    if fields.get("rate") == "exponential":
        if last is None:
            raise ValueError("rate 'exponential' needs last_learning_rate")
        fields["rate"] = schedules.geometric(1.0, last / fields["learning_rate"])
    elif isinstance(fields.get("rate"), list):
        # [[1, 0.1, 0.01], [0.5, 0.75]]: levels, and where they change.
        fields["rate"] = schedules.phases(*fields["rate"])
    elif last is not None:
        raise ValueError("last_learning_rate goes with the rate 'exponential'")
    known = inspect.signature(Options).parameters
    for name in fields:
        if name not in known:
            raise ValueError(f"{name} is no option of training: {', '.join(known)}")
    options = Options(**fields)
    # Complains of names and arguments, before anything is trained.
    some = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    recipe(options.recipe, total_steps=1, optimizer=some, **options.changes)
    return options


def parts_of(data: ImageSet, spec: Specification) -> tuple[Rows, Rows]:
    """Rows to train on, some with wrong labels, and those that are held out.

    With `validation` rows of the training part these are held out, and test rows are not seen.
    """
    import torch

    from hitrate_lab.training import Rows

    count = len(data.train_labels)
    # The same for all seeds and methods.
    order = np.random.default_rng(seed_of(0, SPLIT)).permutation(count)
    held, kept = order[: spec["validation"]], order[spec["validation"] :]
    kept = kept[: spec["rows"]] if spec["rows"] else kept
    if "imbalance" in spec:
        kept = kept[long_tailed(data.train_labels[kept], data.classes, spec["imbalance"])]
    labels = wrong_labels(data.train_labels, data.classes, spec["noise"])
    train = Rows(torch.tensor(data.train_images[kept]), torch.tensor(labels[kept]).long())
    if len(held):
        images, target = data.train_images[held], data.train_labels[held]
    else:
        images, target = data.test_images, data.test_labels
    return train, Rows(torch.tensor(images), torch.tensor(target).long())


def wrong_labels(labels: Any, classes: int, share: float) -> Any:
    """Labels of which this share is another class, any with the same chance."""
    if not share:
        return labels
    random = np.random.default_rng(seed_of(0, LABELS))
    is_wrong = random.random(len(labels)) < share
    other = (labels + random.integers(1, classes, len(labels))) % classes
    return np.where(is_wrong, other, labels)


def model_of(spec: Specification, rows: Rows, classes: int) -> nn.Module:
    """The network with the seed's weights, behind the standardisation of the training images."""
    import torch

    from hitrate_lab.models.networks import Mirrored, Standardized, network
    from hitrate_lab.models.networks.fast import Fast

    images: Tensor = rows.x
    _, channels, side, _ = images.shape
    torch.manual_seed(seed_of(spec["seed"], WEIGHTS))
    inner = network(spec["model"], classes, channels=channels, side=side, **spec["changes"])
    sample = images[:: max(1, len(images) // LOOKED_AT)].float() / 255
    mean, std = sample.mean((0, 2, 3)), sample.std((0, 2, 3))
    if isinstance(inner, Fast):
        inner.fit((sample - mean.view(-1, 1, 1)) / std.view(-1, 1, 1))
    model: nn.Module = Standardized(inner, mean, std)
    return model if spec["mirrored"] is None else Mirrored(model, spec["mirrored"])


def packed(hits: Any) -> str:
    """Truth values as text: eight to a byte, in base64."""
    return base64.b64encode(np.packbits(hits).tobytes()).decode()


def unpacked(text: str, count: int) -> Any:
    """Those of `packed`."""
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8), count=count).astype(bool)


def trainer_of(
    model: nn.Module, rows: Rows, spec: Specification, classes: int, scratch: Path | None = None
) -> Trainer:
    """What trains the network: all that a specification says of it."""
    from hitrate_lab.training import Trainer

    balance, largest = spec.get("balance", "none"), spec.get("largest_margin", 0.0)
    options = options_of(spec["training"], told(balance, largest, rows.target, classes))
    return Trainer(model, rows, options, folder=scratch, seed=spec["seed"])


def _log_loss(logits: Tensor, target: Tensor) -> float:
    import torch

    return float(torch.nn.functional.cross_entropy(logits.double(), target))


@functools.lru_cache(maxsize=2)
def read_set(name: str, data_dir: Path | None) -> ImageSet:
    """An image set, kept for the next run."""
    from hitrate_lab.datasets.images import read_images

    return read_images(name, data_dir=data_dir)


def _classes(name: str, data_dir: Path | None) -> int:
    return read_set(name, data_dir).classes


def _device_name(device: str) -> str:
    if not device.startswith("cuda"):
        return device
    import torch

    return torch.cuda.get_device_name(device)
