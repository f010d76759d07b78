"""Mixing's motivating example: which of the images that a network has wrong are still learnt.

One run is a data set, a network, a method and a seed. Near the end of training test images are put
into groups: those that are right, and those that are wrong by p_y, the softmax of their own class.
At the end it is counted how many of each group are right.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.studies.networks.images import (
    ImageNetworks,
    model_of,
    parts_of,
    read_set,
    trainer_of,
)
from hitrate_lab.studies.networks.settings import COLLECTION

if TYPE_CHECKING:
    from torch import Tensor

    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study

# Of p_y. What is wrong is below a half.
EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


class LearntGroups(ImageNetworks):
    """Networks that are looked at twice."""

    name = "learnt groups"
    has_one_thread = True

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        epochs = study.fields().table("epochs", default={})
        looked_at = study.fields().whole("looked_at", 1)
        if any(looked_at >= epochs.whole(name, 1) for name in study.data_sets):
            study.fields().wrong("looked_at", "needs an epoch before the last one")
        super().check(_without(study))

    def plan(self, study: Study) -> list[Specification]:
        """Specifications, with the epoch after which the groups are made.

        Parameters
        ----------
        study : Study
        """
        looked_at = study.settings["looked_at"]
        return [{**spec, "looked_at": looked_at} for spec in super().plan(_without(study))]

    def run(self, specification: Specification, context: Context) -> Result:
        """Train, look, train to the end, look again. A kill costs the whole run.

        Parameters
        ----------
        specification : dict
            One of `plan`.
        context : Context
        """
        import torch

        spec = specification
        data = read_set(spec["data_set"].removeprefix(COLLECTION), context.data_dir)
        rows, held_out = parts_of(data, spec)
        model = model_of(spec, rows, data.classes).to(torch.device(context.device))
        trainer = trainer_of(model, rows, spec, data.classes)
        seen: list[Tensor] = []

        def look(_: object) -> None:
            if len(trainer.epochs) == spec["looked_at"]:
                seen.append(trainer.predict(held_out))

        begun = time.perf_counter()
        trainer.fit(on_epoch=look)
        then, now = seen[0], trainer.predict(held_out)
        hit = now.argmax(1) == held_out.target
        return {
            "groups": groups(then, now, held_out.target),
            "test_accuracy": float(hit.double().mean()),
            "train_accuracy": trainer.evaluate(rows)["accuracy"],
            "test_rows": len(held_out),
            "steps": trainer.steps_done,
            "seconds": round(time.perf_counter() - begun, 3),
            "processor": processor(),
        }

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Groups and how many of each are right in the end, for the report."""
        from hitrate_lab.studies.networks.learnt_summary import tables

        return tables(study, [(run.specification, run.result) for run in runs])

    def pictures(self, study: Study, runs: Sequence[Run]) -> dict[str, str]:
        """The same drawn."""
        from hitrate_lab.studies.networks.learnt_summary import pictures

        return pictures(study, [(run.specification, run.result) for run in runs])


def groups(then: Tensor, now: Tensor, target: Tensor) -> dict[str, list[list[int]]]:
    """Rows of each group, and how many of them are right at the end.

    Parameters
    ----------
    then, now : Tensor, shape (N, C)
        Logits.
    target : Tensor, shape (N,)

    Returns
    -------
    dict
        "right" has one pair, "wrong" one for each step between `EDGES`.

    Examples
    --------
    >>> import torch
    >>> then = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.1, 0.0]])
    >>> groups(then, then.flip(1), torch.tensor([0, 1, 1]))
    {'right': [[1, 0]], 'wrong': [[0, 0], [1, 1], [0, 0], [0, 0], [1, 1]]}
    """
    right, is_hit = then.argmax(1) == target, now.argmax(1) == target
    p = then.double().softmax(1).gather(1, target[:, None])[:, 0]
    # A tie of two classes has a half.
    p = p.clamp(max=EDGES[-1] - 1e-9)
    some = [right, *(~right & (low <= p) & (p < high) for low, high in pairwise(EDGES))]
    pairs = [[int(each.sum()), int((each & is_hit).sum())] for each in some]
    return {"right": pairs[:1], "wrong": pairs[1:]}


def _without(study: Study) -> Study:
    """The study as `ImageNetworks` knows it."""
    settings = {key: value for key, value in study.settings.items() if key != "looked_at"}
    return replace(study, settings=settings)
