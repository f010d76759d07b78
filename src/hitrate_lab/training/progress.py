"""A training with a bar: steps, time left, and what the last epoch reached."""

from __future__ import annotations

from hitrate_lab.training.trainer import Epoch, Trainer


def fit_with_progress(trainer: Trainer) -> None:
    """`Trainer.fit`, shown on the terminal by the first process; needs ``hitrate[cli]``."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, disable=not trainer.place.is_first) as progress:
        start = told(trainer.epochs[-1]) if trainer.epochs else "epoch 1"
        bar = progress.add_task(start, total=trainer.total_steps, completed=trainer.steps_done)
        trainer.fit(
            on_epoch=lambda epoch: progress.update(bar, description=told(epoch)),
            on_step=lambda done, _: progress.update(bar, completed=done),
        )


def told(epoch: Epoch) -> str:
    """An epoch in a line."""
    parts = [f"epoch {epoch.epoch}", f"training {epoch.train_accuracy:.2%}"]
    if epoch.accuracy is not None:
        parts.append(f"held out {epoch.accuracy:.2%}")
    return ", ".join(parts)
