"""What the file of a study of networks on images may say, checked without loading torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hitrate_lab.studies.changes import BALANCES
from hitrate_lab.studies.mixing.fields import check_methods

if TYPE_CHECKING:
    from hitrate_lab.studies.fields import Fields
    from hitrate_lab.studies.study_file import Study

COLLECTION = "images/"
KINDS = ("test", "train")


@dataclass(frozen=True)
class Settings:
    """The table [settings].

    Parameters
    ----------
    networks : dict
        Names of networks by data set.
    epochs, augment : dict
        By data set.
    changes : dict
        Other arguments of networks, by their name.
    training : dict
        `Options` of all methods.
    noise : list of float
        Shares of wrong labels.
    rows, validation : int
        Training rows that are used, 0 for all; rows of the training part that are held out in the
        place of the test part.
    mirrored : int or None
        Whether the mean over mirror images is evaluated, and over how far shifted ones.
    keep_hits : bool
        Whether each run keeps which images it got right.
    imbalance : float
        How many times as many rows the most frequent class has as the rarest, which is made by
        leaving out rows; 1 leaves out none.
    k : int
        Top-k accuracy is looked at as well; 1 is without.
    beside : list of str
        Methods that the others are compared with; by default the first.
    """

    networks: dict[str, list[str]]
    epochs: dict[str, int]
    augment: dict[str, dict[str, float]]
    changes: dict[str, dict[str, Any]]
    training: dict[str, Any]
    noise: list[float]
    rows: int
    validation: int
    mirrored: int | None
    keep_hits: bool
    imbalance: float
    k: int
    beside: list[str]

    def models_of(self, data_set: str) -> list[str]:
        """Names of networks."""
        return self.networks[data_set]

    def epochs_of(self, data_set: str) -> int:
        """Passes over the training rows."""
        return self.epochs[data_set]

    def augment_of(self, data_set: str) -> dict[str, float]:
        """`Options.augment`."""
        return self.augment[data_set]

    def changes_of(self, model: str) -> dict[str, Any]:
        """Other arguments of a network."""
        return self.changes.get(model, {})

    @property
    def models(self) -> list[str]:
        """All networks, each once."""
        return list(dict.fromkeys(model for models in self.networks.values() for model in models))


def measure_of(kind: str, model: str, noise: float) -> str:
    """What the report calls the accuracy of one network, at one share of wrong labels."""
    suffix = f"_noise_{round(100 * noise)}" if noise else ""
    return f"{model}{suffix}_{kind}_accuracy"


def top_measure(k: int) -> str:
    """What the report calls top-k accuracy on test rows."""
    return f"top_{k}_accuracy"


BALANCED_MEASURE = "balanced_accuracy"


def settings_of(study: Study) -> Settings:
    """The table [settings], checked."""
    fields = study.fields()
    for name in study.data_sets:
        if not name.startswith(COLLECTION):
            study.wrong("data_sets", f"{name!r} is none of {COLLECTION}NAME")
    of_sets, epochs = fields.table("networks"), fields.table("epochs")
    networks = {name: of_sets.texts(name) for name in study.data_sets}
    augment = fields.table("augment", default={})
    changes = fields.table("changes", default={})
    found = Settings(
        networks=networks,
        epochs={name: epochs.whole(name, 1) for name in study.data_sets},
        augment={name: _numbers(augment, name) for name in study.data_sets},
        changes={name: dict(changes.taken(name, dict, "a table")) for name in changes.keys()},
        training=fields.table("training", default={}).rest(),
        noise=fields.numbers("noise") if "noise" in fields.keys() else [0.0],
        rows=fields.whole("rows", default=0),
        validation=fields.whole("validation", default=0),
        mirrored=fields.whole("mirrored", default=None),
        keep_hits=fields.flag("keep_hits", default=False),
        imbalance=fields.number("imbalance", 1.0, default=1.0) or 1.0,
        k=fields.whole("k", 1, default=1),
        beside=fields.texts("beside", default=[study.methods[0].name]),
    )
    for table in (of_sets, epochs, augment):
        table.end()
    fields.end()
    if any(share >= 1 for share in found.noise):
        fields.wrong("noise", "needs shares below 1")
    known = {measure_of(kind, m, n) for kind in KINDS for m in found.models for n in found.noise}
    mixing = {f"{kind}_accuracy" for kind in KINDS}
    mixing |= {BALANCED_MEASURE} if found.imbalance > 1 else set()
    mixing |= {top_measure(found.k)} if found.k > 1 else set()
    known |= mixing
    for measure in study.measures:
        if measure not in known:
            study.wrong("measures", f"{measure!r} is none of {', '.join(sorted(known))}")
        if measure in mixing:
            several = [name for name in study.data_sets if len(networks[name]) > 1]
            if several or len(found.noise) > 1:
                study.wrong(
                    "measures", f"{measure!r} would mix several networks or shares of noise"
                )
    check_methods(study, "beside", found.beside)
    return found


@dataclass(frozen=True)
class Trained:
    """What a method has of its own on one data set.

    Parameters
    ----------
    training : dict
        `Options` that differ.
    network : dict
        Arguments of the network that differ.
    balance : str
        Of `hitrate_lab.studies.changes.BALANCES`.
    largest_margin : float
        Where that has margins.
    """

    training: dict[str, Any]
    network: dict[str, Any]
    balance: str
    largest_margin: float


def methods_of(study: Study) -> dict[str, dict[str, Trained]]:
    """What is trained otherwise, by method and data set: what a method says, then of the set."""
    found: dict[str, dict[str, Trained]] = {}
    for method in study.methods:
        fields = study.fields(method)
        of_sets = fields.table("parameters", default={})
        network = fields.taken("network", dict, "a table", default={})
        balance = fields.choice("balance", BALANCES, default="none")
        largest = float(fields.number("largest_margin", default=0.5) or 0.0)
        own = fields.rest()
        if not isinstance(own.get("recipe"), str):
            fields.wrong("recipe", "is missing; needs the name of a recipe or loss")
        found[method.name] = {}
        for name in study.data_sets:
            of_set = dict(of_sets.taken(name, dict, "a table", default={}))
            changes = {**own.get("changes", {}), **of_set.pop("changes", {})}
            training = {**own, **of_set, "changes": changes}
            found[method.name][name] = Trained(training, dict(network), balance, largest)
        of_sets.end()
    return found


def _numbers(fields: Fields, data_set: str) -> dict[str, float]:
    table = fields.table(data_set, default={})
    return {name: float(table.number(name) or 0.0) for name in table.keys()}
