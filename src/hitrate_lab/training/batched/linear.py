"""Many linear classifiers of one table at once, each trained as in EXACT's section 5.4.

`linear_one.train_linear` trains one of them as a plain loop of torch's, and is what this is tested
against. Shape letters as in `hitrate_lab.training`; F features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hitrate import exact_loss
from hitrate.losses.normalization import EPSILON
from hitrate.optim.gradient_normalizer import shortest
from hitrate_lab.training.batched.linear_one import STARTS, Floats, Labels, sigma_curve

# What all copies have in common; they may differ in the rest.
COMMON = ("loss", "start", "steps", "batch_size", "momentum", "samples", "rivals")
# Of the running mean of gradient norms; the paper's smoothing factor.
SMOOTHING = 0.9
# Places of rows that are made and moved to the device at a time.
AHEAD = 1 << 20
# Scores that are computed at a time when rows are classified.
AT_ONCE = 16_000_000

# Mean loss's gradient at the logits (S, V, B, C), and at log sigma (S, V) where it is learned.
Slopes = tuple[Tensor, Tensor | None]
Trainings = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Linears:
    """Trained classifiers.

    Parameters
    ----------
    weights : Tensor, shape (S, V, F + 1, C - 1)
        The intercepts in the last row; the score of the first class is 0.
    norms : Tensor, shape (S, V, windows)
        Mean norm of the gradient, before it is clipped or normalised, in equal parts of the
        training.
    """

    weights: Tensor
    norms: Tensor

    @torch.no_grad()
    def predicted(self, x: Floats) -> NDArray[np.int64]:
        """Classes (S, V, N) with the highest score; the first where several have it."""
        seeds, copies, inputs, outputs = self.weights.shape
        wide = self.weights.permute(2, 0, 1, 3).reshape(inputs, -1)
        parts = []
        for some in torch.split(_rows(x, wide.device), max(1, AT_ONCE // wide.shape[1])):
            scores = (some @ wide).view(-1, seeds, copies, outputs)
            parts.append(torch.nn.functional.pad(scores, (1, 0)).argmax(3).cpu())
        found: NDArray[np.int64] = torch.cat(parts).permute(1, 2, 0).numpy()
        return found


def train_linears(
    x: Floats,
    y: Labels,
    classes: int,
    trainings: Trainings,
    seeds: Sequence[int],
    *,
    device: str | torch.device = "cpu",
    windows: int = 0,
) -> Linears:
    """Train a classifier for every training and seed, all of them in one computation.

    Parameters
    ----------
    x : array, shape (N, F)
        Standardised.
    y : array of int, shape (N,)
    classes : int
        C.
    trainings : sequence of dict
        Each as for `train_linear`; what is in `COMMON` is the same for all.
    seeds : sequence of int
        Of the first weights and of the order of rows, the same for all trainings.
    device : str or torch.device
    windows : int
        Parts of the training whose gradient norms are kept.

    Returns
    -------
    Linears
    """
    different = [key for key in COMMON if len({repr(each[key]) for each in trainings}) > 1]
    if different:
        raise ValueError(f"train_linears: trainings differ in {', '.join(different)}")
    device = torch.device(device)
    common = trainings[0]
    steps, outputs = common["steps"], classes - 1
    random = [torch.Generator().manual_seed(seed) for seed in seeds]
    start = STARTS[common["start"]]
    first = [start((x.shape[1] + 1, outputs), each) for each in random]
    # (S, F + 1, V, C - 1): a batch times it is one product for all copies of a seed.
    weights = torch.stack(first)[:, :, None].repeat(1, 1, len(trainings), 1).to(device)
    rows, target = _rows(x, device), torch.from_numpy(y).to(device)
    log_sigma = torch.zeros((len(seeds), len(trainings)), device=device)
    slopes = SLOPES[common["loss"]](trainings, log_sigma, seeds[0])
    update = _Update(weights, log_sigma, trainings)
    norms = torch.zeros((len(seeds), len(trainings), max(windows, 1)), device=device)
    with torch.no_grad():
        for step, some in enumerate(_places(random, len(rows), common, device)):
            inputs = rows[some]  # (S, B, F + 1)
            scores = torch.bmm(inputs, weights.flatten(2)).view(*some.shape, *weights.shape[2:])
            logits = torch.nn.functional.pad(scores.transpose(1, 2), (1, 0))
            slope, to_sigma = slopes(logits, target[some], step)
            slope = slope[..., 1:].transpose(1, 2).flatten(2)
            gradient = torch.bmm(inputs.transpose(1, 2), slope).view_as(weights)
            norms[..., step * norms.shape[2] // steps] += update(gradient, to_sigma)
    each = torch.bincount(torch.arange(steps) * norms.shape[2] // steps, minlength=norms.shape[2])
    mean = norms.cpu() / each.clamp(min=1)
    return Linears(weights.permute(0, 2, 1, 3).contiguous(), mean[..., :windows])


class _Update:
    """Steps of SGD with momentum, each copy with its own rates, clipping and normalizer."""

    def __init__(self, weights: Tensor, log_sigma: Tensor, trainings: Trainings) -> None:
        self._weights, self._velocity = weights, torch.zeros_like(weights)
        self._log_sigma, self._sigma_velocity = log_sigma, torch.zeros_like(log_sigma)
        self._momentum = trainings[0]["momentum"]

        def of(number: Callable[[dict[str, Any]], float]) -> Tensor:
            numbers = [float(number(each)) for each in trainings]
            return torch.tensor(numbers, device=weights.device)

        steps = max(trainings[0]["steps"] - 1, 1)
        self._rates = of(lambda each: each["learning_rate"])
        self._falls = of(
            lambda each: (each["last_learning_rate"] / each["learning_rate"]) ** (1 / steps)
        )
        self._decay = of(lambda each: each["weight_decay"])[:, None]
        self._clip = of(lambda each: math.inf if each["clip"] is None else each["clip"])
        self._normalized = of(lambda each: each["normalize_gradient"]).bool()
        self._mean = torch.zeros_like(log_sigma)

    def __call__(self, gradient: Tensor, to_sigma: Tensor | None) -> Tensor:
        """Take a step along a gradient (S, F + 1, V, C - 1); its norms (S, V)."""
        squares = gradient.square().sum((1, 3))
        if to_sigma is not None:
            squares = squares + to_sigma.square()
        norm = squares.sqrt()
        # As torch's clip_grad_norm_.
        factor = (self._clip / (norm + 1e-6)).clamp(max=1.0)
        clipped = norm * factor
        # The first norm that is not zero starts the mean.
        smooth = SMOOTHING * self._mean + (1 - SMOOTHING) * clipped
        self._mean = torch.where(self._mean > 0, smooth, clipped)
        divisor = self._mean.clamp(min=shortest(self._mean.dtype))
        divisor = torch.where(self._normalized & (self._mean > 0), divisor, 1.0)
        gradient = gradient * factor[:, None, :, None] / divisor[:, None, :, None]
        self._velocity.mul_(self._momentum).add_(gradient)
        self._velocity.addcmul_(self._weights, self._decay)
        self._weights.addcmul_(self._velocity, self._rates[:, None], value=-1)
        if to_sigma is not None:
            self._sigma_velocity.mul_(self._momentum).add_(to_sigma * factor / divisor)
            self._log_sigma.addcmul_(self._sigma_velocity, self._rates, value=-1)
        self._rates.mul_(self._falls)
        return norm


class _CrossEntropy:
    """Softmax less one hot."""

    def __init__(self, trainings: Trainings, log_sigma: Tensor, seed: int) -> None:
        del trainings, log_sigma, seed

    def __call__(self, logits: Tensor, target: Tensor, step: int) -> Slopes:
        """Slopes at logits (S, V, B, C) of rows with classes (S, B)."""
        slope = logits.softmax(3)
        place = target[:, None, :, None].expand(*logits.shape[:3], 1)
        slope.scatter_add_(3, place, slope.new_full((), -1.0).expand(place.shape))
        return slope / logits.shape[2], None


class _Hinge:
    """One for each rival within the margin, or for the worst of them alone."""

    def __init__(self, trainings: Trainings, log_sigma: Tensor, seed: int) -> None:
        self._margin = _margins(trainings, log_sigma.device)
        self._worst = trainings[0]["rivals"] == "max"

    def __call__(self, logits: Tensor, target: Tensor, step: int) -> Slopes:
        """As of `_CrossEntropy`."""
        place = target[:, None, :, None].expand(*logits.shape[:3], 1)
        within = (self._margin > logits.gather(3, place) - logits).to(logits.dtype)
        slope = within.scatter(3, place, 0.0) / logits.shape[2]
        if self._worst:
            worst = logits.scatter(3, place, -torch.inf).argmax(3, keepdim=True)
            slope = torch.zeros_like(slope).scatter_(3, worst, slope.gather(3, worst))
        else:
            slope = slope / (logits.shape[3] - 1)
        return slope.scatter(3, place, -slope.sum(3, keepdim=True)), None


class _Exact:
    """Expected error of normalised logits, by autograd."""

    def __init__(self, trainings: Trainings, log_sigma: Tensor, seed: int) -> None:
        self._log_sigma, self._sampled = log_sigma, {}
        if (samples := trainings[0]["samples"]) is not None:
            # One stream for all copies: a batch is always computed whole.
            random = torch.Generator(log_sigma.device).manual_seed(seed)
            self._sampled = {"method": "genz", "samples": samples, "generator": random}
        self._margin = _margins(trainings, log_sigma.device)
        learned = [each["sigma"][2] == "learned" for each in trainings]
        self._learned = torch.tensor(learned, device=log_sigma.device) if any(learned) else None
        # First and lowest value of a learned one.
        ends = torch.tensor([each["sigma"][:2] for each in trainings], device=log_sigma.device)
        self._first, self._lowest = ends.unbind(1)
        curves = [sigma_curve(each["sigma"]) for each in trainings]
        last = max(trainings[0]["steps"] - 1, 1)
        steps = range(trainings[0]["steps"])
        table = [[curve(step / last) if curve else 1.0 for curve in curves] for step in steps]
        self._sigmas = torch.tensor(table, device=log_sigma.device)

    def __call__(self, logits: Tensor, target: Tensor, step: int) -> Slopes:
        """As of `_CrossEntropy`."""
        rows = math.prod(logits.shape[:3])
        place = target[:, None, :, None].expand(*logits.shape[:3], 1)
        with torch.enable_grad():
            leaves = [logits.requires_grad_()]
            sigma = self._sigmas[step].expand_as(self._log_sigma)
            if self._learned is not None:
                leaves.append(self._log_sigma.detach().requires_grad_())
                own = torch.maximum(self._first * leaves[1].exp(), self._lowest)
                sigma = torch.where(self._learned, own, sigma)
            centred = logits - logits.mean((2, 3), keepdim=True)
            variance = centred.square().sum((2, 3), keepdim=True) / (centred[0, 0].numel() - 1)
            normal = centred * torch.rsqrt(variance + EPSILON)
            # A distance that is cut at the margin is a rival that comes no lower.
            cut = torch.maximum(normal, normal.gather(3, place) - self._margin)
            loss = exact_loss(
                cut.view(rows, -1),
                place.reshape(rows),
                sigma[:, :, None].expand(logits.shape[:3]).reshape(rows),
                reduction="none",
                **self._sampled,
            )
            slope, *to_sigma = torch.autograd.grad(loss.sum() / logits.shape[2], leaves)
        return slope, to_sigma[0] if to_sigma else None


SLOPES: dict[str, type[_CrossEntropy] | type[_Hinge] | type[_Exact]] = {
    "cross_entropy": _CrossEntropy,
    "hinge": _Hinge,
    "exact": _Exact,
}


def _margins(trainings: Trainings, device: torch.device) -> Tensor:
    """(V, 1, 1); without a margin, it is never reached."""
    given = [math.inf if each["margin"] is None else float(each["margin"]) for each in trainings]
    return torch.tensor(given, device=device)[:, None, None]


def _places(
    random: Sequence[torch.Generator], rows: int, common: dict[str, Any], device: torch.device
) -> Iterator[Tensor]:
    """Places (S, B) of each step's rows; the last batch of a pass may be smaller."""
    size, left = common["batch_size"], common["steps"]
    passes = max(1, AHEAD // (rows * len(random)))
    while True:
        orders = [torch.randperm(rows, generator=r) for _ in range(passes) for r in random]
        several = torch.stack(orders).view(passes, len(random), rows).to(device)
        for order in several:
            for some in torch.split(order, size, 1):
                yield some
                left -= 1
                if not left:
                    return


def _rows(x: Floats, device: torch.device) -> Tensor:
    """In float32, with a last feature that is 1."""
    rows = torch.from_numpy(np.ascontiguousarray(x, np.float32)).to(device)
    return torch.cat([rows, torch.ones_like(rows[:, :1])], 1)
