"""Trials of parameters, of which the best one's are used with each seed at the end."""

from __future__ import annotations

from collections.abc import Sequence

from hitrate_lab.runs.work import Specification


def trials_of(specification: Specification, plan: Sequence[Specification]) -> list[Specification]:
    """The trials of the same method on the same data set; a trial itself needs none.

    Parameters
    ----------
    specification : dict
        One of the plan, with "stage", "data_set" and "method".
    plan : sequence of dict
    """
    if specification["stage"] == "trial":
        return []
    place = specification["data_set"], specification["method"]
    return [
        spec
        for spec in plan
        if spec["stage"] == "trial" and (spec["data_set"], spec["method"]) == place
    ]
