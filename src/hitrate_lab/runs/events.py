"""What a comparison or a study tells while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    """Something that happened to the runs of a plan.

    `kind` is "planned", once at the beginning; "started", when a run is handed to a process;
    "finished", with the result that the store keeps; or "failed", with the error in one line. What
    the store had already is told as "finished" and `stored`. `done`, `failed` and `planned` count
    runs. `left` is a guess, in seconds, of how long the rest takes; None where nothing is known.
    """

    kind: str
    done: int
    failed: int
    planned: int
    specification: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: str | None = None
    stored: bool = False
    left: float | None = None


def run_name(specification: dict[str, Any]) -> str:
    """A run in a few words.

    Examples
    --------
    >>> run_name({"data_set": "exact/car", "method": "EXACT", "seed": 3, "steps": 8000})
    'exact/car, EXACT, seed 3'
    """
    names = ("data_set", "method", "model")
    words = [str(specification[key]) for key in names if key in specification]
    words += [f"{key} {specification[key]}" for key in ("trial", "seed") if key in specification]
    return ", ".join(words)
