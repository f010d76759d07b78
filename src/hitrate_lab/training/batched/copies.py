"""Weights of many copies of a model, and one step of all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from hitrate_lab.training.batched.gradients import LogitGradients
from hitrate_lab.training.batched.setting import Optimizer, Setting, Split, starting_weights
from hitrate_lab.training.batched.variants import Variant

# Numbers of a layer's output that are computed at once when rows are classified.
AT_ONCE = 4_000_000


class Copies:
    """Copies (S, V) of a model, one for each seed, and variant and learning rate.

    Inputs have a last feature of ones in the place of a bias. A batch is one matrix per seed, of
    which each copy sees all: the first layer of all copies of a seed is one product.

    Parameters
    ----------
    setting : Setting
    split : Split
        Says how many inputs and classes there are.
    variants : sequence of Variant
    learning_rates : sequence of float
    seeds : sequence of int
    device : torch.device
    """

    def __init__(
        self,
        setting: Setting,
        split: Split,
        variants: Sequence[Variant],
        learning_rates: Sequence[float],
        seeds: Sequence[int],
        device: torch.device,
    ) -> None:
        self._setting, self._epoch = setting, 0
        rates = torch.tensor(learning_rates, dtype=torch.float32, device=device)
        is_adam = setting.optimizer.name == "adam"
        # A gradient times its copy's learning rate is all that SGD needs; Adam takes it later.
        scale = torch.ones_like(rates) if is_adam else rates
        self._gradients = LogitGradients(variants, setting.epochs, scale)
        self.variants = self._gradients.variants
        self.shape = len(seeds), len(variants) * len(rates)
        self.classes = split.classes
        starts = zip(
            *(starting_weights(seed, setting.layers(split)) for seed in seeds), strict=True
        )
        # (S, V, outputs, inputs + 1) for each layer
        layers = [
            torch.stack(start)[:, None].to(device).repeat(1, self.shape[1], 1, 1)
            for start in starts
        ]
        # (S, V outputs, inputs + 1) for what sees the batch, (S V, C, H + 1) for what sees the
        # hidden layer.
        self._first = layers[0].flatten(1, 2)
        self._second = layers[1].flatten(0, 1) if len(layers) > 1 else None
        per_copy = rates.repeat(len(variants))  # (V,)
        self._first_update = _update(
            setting.optimizer, self._first, per_copy.repeat_interleave(layers[0].shape[2])[:, None]
        )
        self._updates = [self._first_update]
        if self._second is not None:
            copies = per_copy.repeat(len(seeds))[:, None, None]
            self._second_update = _update(setting.optimizer, self._second, copies)
            self._updates.append(self._second_update)

    def next_epoch(self) -> None:
        """Move on what moves in the losses."""
        self._gradients.next_epoch()
        self._epoch += 1
        factor = self._setting.optimizer.rate_at(self._epoch, self._setting.epochs)
        for update in self._updates:
            update.factor = factor

    @torch.no_grad()
    def step(self, inputs: Tensor, target: Tensor, one_hot: Tensor) -> None:
        """One step of all copies.

        Parameters
        ----------
        inputs : Tensor, shape (S, I + 1, B)
        target : Tensor of int, shape (S, 1, 1, B)
        one_hot : Tensor, shape (S, 1, C, B)
        """
        size = inputs.shape[2]
        shape = (*self.shape, self.classes, size)
        rows = inputs.transpose(1, 2)
        if self._second is None:
            logits = torch.bmm(self._first, inputs).view(shape)
            slope = self._gradients(logits, target, one_hot)
            self._first_update(slope.view(len(rows), -1, size), rows)
            return
        active = self._active(inputs)  # (S V, H + 1, B)
        logits = torch.bmm(self._second, active).view(shape)
        slope = self._gradients(logits, target, one_hot).view(-1, self.classes, size)
        # relu passes a gradient where its output is above zero.
        back = torch.bmm(self._second[:, :, :-1].transpose(1, 2), slope)
        back = torch.ops.aten.threshold_backward(back, active[:, :-1], 0)
        self._second_update(slope, active.transpose(1, 2))
        self._first_update(back.view(len(rows), -1, size), rows)

    def _active(self, inputs: Tensor) -> Tensor:
        """The hidden layer (S V, H + 1, B), with ones in the place of a bias."""
        copies = self.shape[0] * self.shape[1]
        hidden = torch.matmul(self._first, inputs).view(copies, -1, inputs.shape[-1])
        active = hidden.new_empty(copies, hidden.shape[1] + 1, hidden.shape[2])
        active[:, -1] = 1
        torch.clamp_min(hidden, 0, out=active[:, :-1])
        return active

    @torch.no_grad()
    def hits(self, inputs: Tensor, target: Tensor) -> Tensor:
        """How many rows each copy has right (S, V); inputs (I + 1, N), target (N,)."""
        total = torch.zeros(self.shape, dtype=torch.int64, device=target.device)
        widest = max(self._first.shape[1], self.shape[1] * self.classes)
        part = max(1, AT_ONCE // (self.shape[0] * widest))
        for some, y in zip(torch.split(inputs, part, 1), torch.split(target, part), strict=True):
            if self._second is None:
                logits = torch.matmul(self._first, some)
            else:
                logits = torch.bmm(self._second, self._active(some))
            best = logits.view(*self.shape, self.classes, -1).argmax(2)
            total += (best == y).sum(2)
        return total

    def weights(self) -> list[Tensor]:
        """(S, V, outputs, inputs + 1) of each layer."""
        seeds, copies = self.shape
        first = self._first.view(seeds, copies, -1, self._first.shape[2])
        if self._second is None:
            return [first]
        return [first, self._second.view(seeds, copies, *self._second.shape[1:])]


class _Descent:
    """SGD: a layer's weights less a product of matrices, which has the learning rates in it."""

    # Of `Optimizer.rate_at`, which is for Adam.
    factor = 1.0

    def __init__(self, weights: Tensor, rates: Tensor, optimizer: Optimizer) -> None:
        self._weights, self._momentum = weights, optimizer.momentum
        self._velocity = torch.zeros_like(weights) if optimizer.momentum else None
        self._decay = rates * optimizer.weight_decay if optimizer.weight_decay else None

    def __call__(self, left: Tensor, right: Tensor) -> None:
        """Weights (G, a, b) move along left (G, a, B) @ right (G, B, b)."""
        if self._velocity is None:
            if self._decay is not None:
                self._weights.mul_(1 - self._decay)
            self._weights.baddbmm_(left, right, alpha=-1)
            return
        self._velocity.baddbmm_(left, right, beta=self._momentum)
        if self._decay is not None:
            self._velocity.addcmul_(self._weights, self._decay)
        self._weights.sub_(self._velocity)


class _Adam:
    """Adam with the defaults of `torch.optim.Adam`."""

    def __init__(self, weights: Tensor, rates: Tensor, optimizer: Optimizer) -> None:
        self._weights, self._rates, self._decay = weights, rates, optimizer.weight_decay
        self._mean, self._square = torch.zeros_like(weights), torch.zeros_like(weights)
        self._steps, self.factor = 0, 1.0

    def __call__(self, left: Tensor, right: Tensor) -> None:
        """As of `_Descent`."""
        self._steps += 1
        gradient = torch.bmm(left, right)
        if self._decay:
            gradient.add_(self._weights, alpha=self._decay)
        self._mean.lerp_(gradient, 0.1)
        self._square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        spread = self._square.sqrt().div_(math.sqrt(1 - 0.999**self._steps)).add_(1e-8)
        rates = self._rates * (self.factor / (1 - 0.9**self._steps))
        self._weights.sub_(spread.reciprocal_().mul_(self._mean).mul_(rates))


def _update(optimizer: Optimizer, weights: Tensor, rates: Tensor) -> _Descent | _Adam:
    """The rule for a layer; rates have a size of 1 or that of the weights."""
    return (_Adam if optimizer.name == "adam" else _Descent)(weights, rates, optimizer)
