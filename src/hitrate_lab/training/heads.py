"""Many small classifiers on the same features: every loss, candidate and seed in one computation.

Shape letters: S seeds, M methods, L candidates of each (learning rate and weight decay), B rows of
a batch, I inputs, H hidden units, C classes. All copies of a seed see the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hitrate import losses
from hitrate.links import BatchLog, Link
from hitrate.losses.normalization import EPSILON
from hitrate.probability import log_expected_accuracy
from hitrate.recipes import Plan, recipe

# Of the running mean of a gradient's norm, as `GradientNormalizer` has it.
MOMENTUM = 0.9
BETAS = 0.9, 0.999


@dataclass(frozen=True)
class Method:
    """A loss with what moves during training, by a name of its own.

    Parameters
    ----------
    name, recipe : str
    changes : mapping
        Of the recipe.
    warm : int
        Epochs of cross entropy before it.
    """

    name: str
    recipe: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    warm: int = 0

    def plan(self, epochs: int) -> Plan:
        """The loss, to be stepped once per epoch."""
        found = recipe(self.recipe, normalize_gradient=False, **self.changes)
        return found.begin(epochs)

    @property
    def normalizes(self) -> bool:
        """Whether gradients are divided by the running mean of their norm."""
        return recipe(self.recipe, **self.changes).normalize_gradient


@dataclass(frozen=True)
class Training:
    """What all copies have in common.

    Parameters
    ----------
    epochs, batch_size : int
    hidden : int
        Units of a hidden layer, 0 for a linear classifier.
    """

    epochs: int
    batch_size: int
    hidden: int = 0


class Heads:
    """Copies (S, M, L) of a classifier, with Adam, decoupled decay and a rate that falls to 0.

    Parameters
    ----------
    methods : sequence of Method
    training : Training
    inputs, classes : int
    rates, decays : Tensor, shape (M, L)
    seeds : sequence of int
        Of starting weights and orders of rows.
    """

    def __init__(
        self,
        methods: Sequence[Method],
        training: Training,
        inputs: int,
        classes: int,
        rates: Tensor,
        decays: Tensor,
        seeds: Sequence[int],
    ) -> None:
        self.methods, self.training, self.classes = list(methods), training, classes
        self.seeds, self.shape = list(seeds), (len(seeds), *rates.shape)
        self.plans = [each.plan(training.epochs) for each in methods]
        self._cross_entropy = recipe("cross_entropy").begin(1)
        sizes = [(inputs, training.hidden), (training.hidden, classes)]
        if not training.hidden:
            sizes = [(inputs, classes)]
        # (S, M, L, outputs, inputs + 1), the bias last
        self.weights = [
            torch.stack(layer)[:, None, None].repeat(1, *rates.shape, 1, 1).requires_grad_()
            for layer in zip(*(_start(seed, sizes) for seed in seeds), strict=True)
        ]
        self._rates, self._decays = rates[..., None, None], decays[..., None, None]
        self._moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in self.weights]
        self._normalizes = torch.tensor([each.normalizes for each in methods])[:, None]
        self._mean_norm = torch.zeros(self.shape)
        self._steps = 0

    def fit(self, x: Tensor, y: Tensor) -> None:
        """Train all copies on rows x (N, I) of classes y (N,)."""
        size, orders = self.training.batch_size, [_random(seed, 1) for seed in self.seeds]
        total = self.training.epochs * -(-len(y) // size)
        ones = torch.cat([x, torch.ones_like(x[:, :1])], 1)
        for epoch in range(self.training.epochs):
            order = torch.stack([torch.randperm(len(y), generator=each) for each in orders])
            for some in torch.split(order, size, 1):
                self._step(ones[some], y[some], epoch, 1 - self._steps / total)
            for plan in self.plans:
                plan.step()

    def logits(self, x: Tensor) -> Tensor:
        """Of all copies (S, B, M, L, C), for rows (S, B, I + 1) of each seed, a one last."""
        first = self.weights[0]
        found = torch.bmm(x, first.flatten(1, 3).transpose(1, 2))
        found = found.view(*found.shape[:2], *first.shape[1:4])
        if len(self.weights) == 1:
            return found
        second = self.weights[1]
        hidden = found.relu().permute(0, 2, 3, 1, 4).flatten(0, 2)  # (S M L, B, H)
        flat = second.flatten(0, 2)
        out = torch.baddbmm(flat[:, None, :, -1], hidden, flat[:, :, :-1].transpose(1, 2))
        return out.view(*self.shape, *out.shape[1:]).permute(0, 3, 1, 2, 4)

    def losses(self, logits: Tensor, y: Tensor, epoch: int) -> Tensor:
        """Mean over the rows of each copy's batch (S, M, L); logits of `logits`, y (S, B).

        What sees the same noise shares log p; all else goes through its loss, copy by copy.
        """
        found: list[Tensor] = [logits.new_empty(0)] * len(self.methods)
        now = [
            self._cross_entropy.loss if epoch < method.warm else plan.loss
            for method, plan in zip(self.methods, self.plans, strict=True)
        ]
        groups: dict[Sight | None, list[int]] = {}
        for place, loss in enumerate(now):
            groups.setdefault(_sight(loss), []).append(place)
        for sight, places in groups.items():
            if sight is None:
                for place in places:
                    found[place] = _alone(now[place], logits[:, :, place], y)
                continue
            target = y[:, :, None, None].expand(*logits.shape[:2], len(places), logits.shape[3])
            some = logits if len(places) == len(found) else logits[:, :, places]
            log_p = _log_p(some, target, sight)
            for k, place in enumerate(places):
                found[place] = _mean(_link(now[place]), log_p[:, :, k])
        return torch.stack(found, 1)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Logits of rows (N, I), for all copies (S, N, M, L, C)."""
        ones = torch.cat([x, torch.ones_like(x[:, :1])], 1)
        return self.logits(ones.expand(len(self.seeds), *ones.shape))

    def _step(self, x: Tensor, y: Tensor, epoch: int, rate: float) -> None:
        total = self.losses(self.logits(x), y, epoch).sum()
        gradients = torch.autograd.grad(total, self.weights)
        scale = self._scale(gradients)
        self._steps += 1
        unbias = [1 - beta**self._steps for beta in BETAS]
        with torch.no_grad():
            for w, g, (mean, square) in zip(self.weights, gradients, self._moments, strict=True):
                g = g if scale is None else g * scale[..., None, None]
                mean.lerp_(g, 1 - BETAS[0])
                square.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
                spread = (square / unbias[1]).sqrt_().add_(1e-8)
                w.mul_(1 - rate * self._rates * self._decays)
                w.sub_(mean.div(spread).mul_(self._rates * (rate / unbias[0])))

    def _scale(self, gradients: Sequence[Tensor]) -> Tensor | None:
        """What the gradients of each copy (S, M, L) are multiplied by; None for 1."""
        if not bool(self._normalizes.any()):
            return None
        norm = sum((g.square().sum((3, 4)) for g in gradients), torch.zeros(self.shape)).sqrt()
        begun = self._mean_norm > 0
        moved = MOMENTUM * self._mean_norm + (1 - MOMENTUM) * norm
        self._mean_norm = torch.where(begun, moved, norm)
        return torch.where(self._normalizes, 1 / self._mean_norm.clamp_min(1e-18), 1.0)


def _random(seed: int, stream: int) -> torch.Generator:
    return torch.Generator().manual_seed((stream << 32) + seed)


def _start(seed: int, sizes: Sequence[tuple[int, int]]) -> list[Tensor]:
    """Weights (outputs, inputs + 1), uniform as those of `nn.Linear`."""
    random = _random(seed, 0)
    return [
        (2 * torch.rand(outputs, inputs + 1, generator=random) - 1) / math.sqrt(inputs)
        for inputs, outputs in sizes
    ]


class Sight(NamedTuple):
    """How a loss sees logits: losses that share it share log p."""

    noise: str
    sigma: float = 1.0
    margin: float | None = None
    normalize: bool = False


def _sight(loss: losses.ClassificationLoss) -> Sight | None:
    """That of a loss that is a link of log p alone; else None."""
    if not isinstance(loss, losses.LinkLoss) or loss.options.is_smoothed:
        return None
    if loss.weight is not None or loss.options.is_balanced:
        return None
    noise = str(getattr(loss.noise, "name", loss.noise))
    if not isinstance(loss, losses.ExactLoss):
        return Sight(noise)
    margin = None if loss.margin is None else float(loss.margin)
    return Sight(noise, float(loss.sigma), margin, loss.normalize)


def _link(loss: losses.ClassificationLoss) -> Link:
    assert isinstance(loss, losses.LinkLoss)
    return loss.link.fixed()


def _mean(link: Link, log_p: Tensor) -> Tensor:
    """Of each copy's batch (S, L), from log p (S, B, L)."""
    if isinstance(link, BatchLog):
        return math.log(log_p.shape[1]) - log_p.logsumexp(1)
    return link(log_p).mean(1)


def _log_p(logits: Tensor, target: Tensor, sight: Sight) -> Tensor:
    """(S, B, m, L) of logits (S, B, m, L, C)."""
    if sight.normalize:
        centred = logits - logits.mean((1, 4), keepdim=True)
        count = logits.shape[1] * logits.shape[4]
        variance = centred.square().sum((1, 4), keepdim=True) / (count - 1)
        logits = centred * torch.rsqrt(variance + EPSILON)
    if sight.noise == "gumbel" and sight.sigma == 1.0 and sight.margin is None:
        return logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]
    noise, sigma, margin, _ = sight
    flat = logits.flatten(0, -2), target.flatten()
    return log_expected_accuracy(*flat, sigma, margin=margin, noise=noise).view(target.shape)


def _alone(loss: losses.ClassificationLoss, logits: Tensor, y: Tensor) -> Tensor:
    """Means (S, L) of logits (S, B, L, C) and classes (S, B), each copy with a batch of its own."""
    rows = [
        torch.stack([loss(logits[s, :, k], y[s]) for k in range(logits.shape[2])])
        for s in range(len(y))
    ]
    return torch.stack(rows)
