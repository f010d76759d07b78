"""Train a network: any Module under any recipe, on one device or several, resumed bit for bit.

What a step does depends on nothing but the state, the seed and the step's number: the order of the
rows, their augmentation and dropout are drawn from those. So a training that was killed and goes on
from its last checkpoint ends with the same weights.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import hitrate
from hitrate.optim import ASAM
from hitrate_lab.seeds import seed_of
from hitrate_lab.training import checkpoint, processes
from hitrate_lab.training.batches import Batches, Part, there
from hitrate_lab.training.interruption import Interruption
from hitrate_lab.training.optimizers import optimizer_of
from hitrate_lab.training.options import Options
from hitrate_lab.training.rows import Source

# What is drawn from a seed, beside what batches draw.
MODEL = 3


@dataclass(frozen=True)
class Epoch:
    """What an epoch left behind."""

    epoch: int  # From 1.
    learning_rate: float
    train_loss: float
    train_accuracy: float
    accuracy: float | None  # Of the rows that were held out.
    loss: float | None
    seconds: float


class Trainer:
    """A network, its rows and how it is trained.

    Parameters
    ----------
    model : nn.Module
        From a batch of features to logits (N, C).
    rows : Source
        To train on; `Rows` move to the device.
    options : Options
    held_out : Source, optional
        What is evaluated after every epoch.
    folder : path, optional
        Where the state is kept. A training that is there goes on.
    seed : int
        Of everything random, but for the model's weights, which are as they come.
    place : Place, optional
        Of `processes.group`; by default this process alone, on the model's device.

    Attributes
    ----------
    epochs : list of Epoch
        Those that are done.
    steps_done, total_steps : int

    Examples
    --------
    >>> import torch
    >>> from hitrate_lab.training import Options, Rows, Trainer
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(512, 8, generator=generator)
    >>> rows = Rows(x, x[:, :4].argmax(1))
    >>> model = torch.nn.Linear(8, 4)
    >>> options = Options("annealed", epochs=20, batch_size=64)
    >>> trainer = Trainer(model, rows[:384], options, held_out=rows[384:])
    >>> trainer.fit()
    >>> trainer.epochs[-1].accuracy > 0.9
    True
    """

    def __init__(
        self,
        model: nn.Module,
        rows: Source,
        options: Options,
        *,
        held_out: Source | None = None,
        folder: str | Path | None = None,
        seed: int = 0,
        place: processes.Place | None = None,
    ) -> None:
        self.options = options
        self.place = place or processes.place(next(model.parameters()).device)
        self.seed = seed
        self.folder = None if folder is None else Path(folder)
        device = self.place.device
        self.model = model.to(device)
        if options.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        classes = _width(self.model, rows, device) if options.mixes else 0
        self._batches = Batches(rows, options, seed, self.place, classes)
        self._held_out = there(held_out, device)
        self.total_steps = options.epochs * self._batches.steps
        self.steps_done = 0
        self.epochs: list[Epoch] = []
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)  # Losses, hits, rows.
        self._seconds = 0.0

        self._optimizer = optimizer_of(self.model, options)
        self._plan = hitrate.recipe(
            options.recipe,
            total_steps=self.total_steps,
            optimizer=self._optimizer,
            **options.changes,
        )
        self._plan.loss.to(device)
        self._scaler = torch.amp.GradScaler(device.type, enabled=options.precision == "float16")
        self._average: AveragedModel | None = None
        if options.average is not None:
            update = get_ema_multi_avg_fn(options.average)  # type: ignore[no-untyped-call]
            self._average = AveragedModel(self.model, multi_avg_fn=update, use_buffers=True)
        self._resume()
        # Behind the state: the processes start with the first one's weights.
        self._network: nn.Module = self.model
        if self.place.size > 1:
            ids = [device] if device.type == "cuda" else None
            self._network = DistributedDataParallel(self.model, device_ids=ids)
        if options.compile:
            self._network = torch.compile(self._network)  # type: ignore[assignment]

    def fit(
        self,
        on_epoch: Callable[[Epoch], None] | None = None,
        on_step: Callable[[int, int], None] | None = None,
    ) -> None:
        """Train to the end; what a folder has is not done again.

        Ctrl-C ends it behind a step, with the state in the folder.

        Parameters
        ----------
        on_epoch : callable, optional
            Gets each `Epoch` when it is done.
        on_step : callable, optional
            Gets the number of steps that are done, and of all.
        """
        every = self.options.save_every or self._batches.steps
        # Several processes would not stop behind the same step.
        with Interruption(is_kept=self.place.size == 1) as interruption:
            while self.steps_done < self.total_steps:
                started = time.perf_counter()
                self._step()
                self.steps_done += 1
                self._seconds += time.perf_counter() - started
                if on_step is not None:
                    on_step(self.steps_done, self.total_steps)
                is_last = self.steps_done % self._batches.steps == 0
                if is_last:
                    self._end_epoch()
                is_kept = self.steps_done % every == 0 or self.steps_done == self.total_steps
                if interruption.has_come or is_kept:
                    self.save()
                if is_last and on_epoch is not None:
                    on_epoch(self.epochs[-1])
                interruption.raise_if_come()

    def evaluate(self, rows: Source | None = None) -> dict[str, float]:
        """Accuracy and the loss, in evaluation mode, of all rows; by default of those held out."""
        source = self._held_out if rows is None else there(rows, self.place.device)
        if source is None:
            raise ValueError("Trainer.evaluate: which rows? None were held out")
        sums = torch.zeros(3, dtype=torch.float64, device=self.place.device)
        with self._evaluating():
            for logits, target in self._logits(source):
                sums += _counted(self._plan.loss(logits, target), logits, target)
        loss, hits, count = self.place.summed(sums).tolist()
        return {"accuracy": hits / count, "loss": loss / count}

    def predict(self, rows: Source) -> Tensor:
        """Logits (N, C) of all rows, on the CPU; each process computes all of them."""
        source = there(rows, self.place.device)
        with self._evaluating():
            found = [logits.cpu() for logits, _ in self._logits(source, is_dealt=False)]
        return torch.cat(found)

    def save(self) -> None:
        """Write the state to the folder, where there is one."""
        if self.folder is None or not self.place.is_first:
            return
        state = {
            "belongs to": self._identity(),
            "steps_done": self.steps_done,
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "sums": self._sums,
            "seconds": self._seconds,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "plan": self._plan.state_dict(),
            "scaler": self._scaler.state_dict(),
            "average": None if self._average is None else self._average.state_dict(),
        }
        checkpoint.save(self.folder, self.steps_done, state)

    def _resume(self) -> None:
        state = None if self.folder is None else checkpoint.load(self.folder)
        if state is None:
            return
        for key, value in self._identity().items():
            was = state["belongs to"].get(key)
            if was != value:
                raise ValueError(
                    f"Trainer: {self.folder} has a training with {key}={was!r}, not {value!r}: "
                    "take another folder"
                )
        self.steps_done = state["steps_done"]
        self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]
        self._seconds = state["seconds"]
        self._sums.copy_(state["sums"])
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._plan.load_state_dict(state["plan"])
        self._scaler.load_state_dict(state["scaler"])
        if self._average is not None:
            self._average.load_state_dict(state["average"])

    def _identity(self) -> dict[str, Any]:
        """What a state has to belong to."""
        own = {"seed": self.seed, "rows": len(self._batches.rows)}
        return {**own, **self.options.described()}

    def _step(self) -> None:
        """One step of the optimizer by a batch of all processes."""
        options = self.options
        parts = self._batches.parts(self.steps_done)
        rate = options.rate_at(self.steps_done / self.total_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate * group["faster"]
        _seed(seed_of(self.seed, MODEL, self.steps_done, self.place.rank), self.place.device)
        self._network.train()
        self._plan.train()
        self._sums += self._backward(parts)
        if isinstance(self._optimizer, ASAM):
            with self._optimizer.perturbed(self.model):
                self._backward(parts)
        if options.clip is not None:
            self._scaler.unscale_(self._optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), options.clip)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad()
        self._plan.step()
        if self._average is not None:
            self._average.update_parameters(self.model)

    def _backward(self, parts: list[Part]) -> Tensor:
        """Gradients of the mean over all parts; sums of losses, hits and rows."""
        sums = torch.zeros_like(self._sums)
        for number, (x, goal, target) in enumerate(parts):
            is_last = number + 1 == len(parts)
            with contextlib.nullcontext() if is_last else self._without_exchange():
                with self._autocast():
                    logits = self._network(x)
                    loss = self._plan.loss(logits, goal)
                self._scaler.scale(loss / len(parts)).backward()
            sums += _counted(loss.detach(), logits.detach(), target)
        return sums

    def _end_epoch(self) -> None:
        loss, hits, count = self.place.summed(self._sums).tolist()
        held_out: dict[str, float] = {} if self._held_out is None else self.evaluate()
        self.epochs.append(
            Epoch(
                epoch=len(self.epochs) + 1,
                learning_rate=self.options.rate_at((self.steps_done - 1) / self.total_steps),
                train_loss=loss / count,
                train_accuracy=hits / count,
                accuracy=held_out.get("accuracy"),
                loss=held_out.get("loss"),
                seconds=self._seconds,
            )
        )
        self._sums.zero_()
        self._seconds = 0.0

    def _logits(self, source: Source, *, is_dealt: bool = True) -> Iterator[tuple[Tensor, Tensor]]:
        """Of a source's rows, some at a time; of each process's share, if they are dealt."""
        start, stride = (self.place.rank, self.place.size) if is_dealt else (0, 1)
        network = self.model if self._average is None else self._average
        mine = torch.arange(start, len(source), stride)
        for rows in torch.split(mine, self.options.batch_size):
            x, target = source.batch(rows, self.place.device)
            if self.options.channels_last:
                x = x.contiguous(memory_format=torch.channels_last)
            with self._autocast():
                yield network(x), target

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        self.model.eval()
        if self._average is not None:
            self._average.eval()
        self._plan.eval()
        with torch.no_grad():
            yield

    def _autocast(self) -> torch.autocast:
        precision = self.options.precision
        return torch.autocast(
            self.place.device.type,
            dtype=torch.float16 if precision == "float16" else torch.bfloat16,
            enabled=precision != "float32",
        )

    def _without_exchange(self) -> contextlib.AbstractContextManager[None]:
        """Gradients that stay here, until the last part of a batch."""
        if isinstance(self._network, DistributedDataParallel):
            return self._network.no_sync()
        return contextlib.nullcontext()


def _seed(seed: int, device: torch.device) -> None:
    """Of all that a model draws. For a GPU that is not used torch would write down where it was."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def _counted(loss: Tensor, logits: Tensor, target: Tensor) -> Tensor:
    """Sums over rows: of losses, hits, and rows."""
    hits = (logits.argmax(1) == target).sum()
    # Filled where it is: a tensor made of a number would wait for the GPU.
    count = torch.full((), len(target), dtype=torch.float64, device=loss.device)
    return torch.stack([loss.double() * len(target), hits.double(), count])


def _width(model: nn.Module, rows: Source, device: torch.device) -> int:
    was = model.training
    x, _ = rows.batch(torch.zeros(1, dtype=torch.long), device)
    with torch.no_grad():
        width = model.eval()(x).shape[1]
    model.train(was)
    return int(width)
