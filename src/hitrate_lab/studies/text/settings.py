"""What the files of studies of networks on texts have in common, checked without loading torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hitrate_lab.bad_input import BadInput

if TYPE_CHECKING:
    from hitrate_lab.studies.fields import Fields
    from hitrate_lab.studies.study_file import Study

COLLECTION = "texts/"


def check_names(study: Study, measures: Iterable[str]) -> None:
    """Complain of data sets that are no texts, and of measures that there are not."""
    known = list(measures)
    for measure in study.measures:
        if measure not in known:
            study.wrong("measures", f"{measure!r} is none of {', '.join(known)}")
    for name in study.data_sets:
        if not name.startswith(COLLECTION):
            study.wrong("data_sets", f"{name!r} is none of {COLLECTION}NAME")


def recipe_of(fields: Fields) -> dict[str, Any]:
    """What a method trains with, as `Options` have it."""
    return {
        "recipe": fields.text("recipe"),
        "changes": fields.taken("parameters", dict, "a table", default={}),
    }


def held_out_of(fields: Fields, **options: Any) -> float:
    """The share of the training rows that is held out, below 1.

    Parameters
    ----------
    fields : Fields
    **options
        Of `Fields.number`.
    """
    share = fields.number("held_out", **options)
    assert share is not None
    if share >= 1:
        fields.wrong("held_out", f"needs a share below 1, not {share:g}")
    return share


def check_options(study: Study, trainings: dict[str, dict[str, Any]]) -> None:
    """Complain of options of training that there are not.

    For `plan` and not for `check`: to read a study's file should not load torch.

    Parameters
    ----------
    study : Study
    trainings : dict
        By the names of methods.
    """
    from hitrate_lab.studies.networks.images import options_of

    for name, training in trainings.items():
        try:
            options_of(training)
        except (TypeError, ValueError) as error:
            raise BadInput(f"{study.path}: methods[{name}]: {error}") from error
