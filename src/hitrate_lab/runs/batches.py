"""Runs that are computed together, and runs that need others' results."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hitrate_lab.runs.store import key_of
from hitrate_lab.runs.work import Specification, Work


def batches_of(
    work: Work, plan: Sequence[Specification], missing: Sequence[Specification]
) -> dict[int, list[Specification]]:
    """Whole batches of which one or more runs are missing, by number.

    Parameters
    ----------
    work : Work
    plan, missing : sequence of dict
        All runs of the study, and those that are to be run.
    """
    batches: dict[str, list[Specification]] = {}
    for spec in plan:
        batches.setdefault(work.batch_of(spec), []).append(spec)
    wanted = dict.fromkeys(work.batch_of(spec) for spec in missing)
    return {number: batches[key] for number, key in enumerate(wanted)}


def needed_by(
    work: Work, specifications: Sequence[Specification], plan: Sequence[Specification]
) -> list[str]:
    """Keys of the runs whose results some others need.

    Parameters
    ----------
    work : Work
    specifications, plan : sequence of dict
        The others, and all runs of the study.
    """
    return list(
        dict.fromkeys(key_of(other) for spec in specifications for other in work.needs(spec, plan))
    )


def held_up(
    work: Work,
    plan: Sequence[Specification],
    missing: Sequence[Specification],
    failed: Collection[str],
) -> set[str]:
    """Keys of missing runs that cannot begin: what they need has failed, or cannot begin either.

    Parameters
    ----------
    work : Work
    plan, missing : sequence of dict
    failed : collection of str
        Keys.
    """
    if not failed:
        return set()
    keys = set(map(key_of, missing))
    batches = [
        (keys.intersection(map(key_of, specs)), needed_by(work, specs, plan))
        for specs in batches_of(work, plan, missing).values()
    ]
    stopped = set(failed)
    while more := [
        own for own, needed in batches if not stopped.isdisjoint(needed) and not own <= stopped
    ]:
        stopped.update(*more)
    return stopped & keys
