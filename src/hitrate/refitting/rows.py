"""Penultimate features as the refit sees them: in pieces, on one device, with a good scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hitrate.links import Link

# Bytes of float32 features that may lie on the device; more are moved there piece by piece.
ROOM = 4 << 30
# With more features their second moments cost more than the steps they save.
WHITEN_UP_TO = 1024
# Rows that the second moments are taken of; any scale is right, a good one only saves steps.
ENOUGH = 20_000
# Numbers in a piece of a pass: on a CPU it should stay in the cache between its two products.
IN_CACHE, ON_DEVICE = 1 << 20, 1 << 26


class Rows:
    r"""Features and classes, and the mean loss of a linear head on them.

    A head is moved in coordinates in which the features are uncorrelated,
    :math:`W = A V`, if there are not too many of them; else in those in which they have one scale.

    Parameters
    ----------
    features : Tensor or array, shape (N, F)
        Anything that gives some rows when it is indexed by a tensor or a slice, such as a
        memory-mapped array.
    target : Tensor of int, shape (N,)
    classes : int
        C.
    device : torch.device
    scaled : bool
        Whether a head is to be moved; else rows are only looked at.
    """

    def __init__(
        self,
        features: Any,
        target: Tensor,
        classes: int,
        device: torch.device,
        *,
        scaled: bool = True,
    ) -> None:
        self.device = device
        self.target = target.to(device)
        self.classes = classes
        self.places: Tensor | None = None
        self._features = features
        # Whether all are in float32 on the device.
        self._is_there = 4 * features.shape[0] * features.shape[1] <= ROOM
        if self._is_there:
            self._features = self._moved(features)
        if not scaled:
            return
        self.center, self.scale = self._center_and_scale()
        self._factor = self._inverse = None
        wrong = (~self.center.isfinite()).nonzero()
        if len(wrong):
            raise ValueError(
                f"headroom: features must be finite; column {int(wrong[0])} has values that are not"
            )
        if self.width <= WHITEN_UP_TO:
            self._factor = self._cholesky_factor()
            eye = torch.eye(self.width, dtype=torch.float64)
            self._inverse = torch.linalg.solve_triangular(self._factor, eye, upper=False)

    def __len__(self) -> int:
        return len(self.target)

    @property
    def width(self) -> int:
        """F."""
        return int(self._features.shape[1])

    def part(self, places: Tensor) -> Rows:
        """Some of the rows, in the same coordinates."""
        part = object.__new__(Rows)
        part.__dict__.update(self.__dict__)
        part.target = self.target[places.to(self.device)]
        if self._is_there:
            part._features = self._features[places.to(self._features.device)]
        else:
            part.places = places if self.places is None else self.places[places]
        return part

    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """Slices of the rows with their features in float32, on the device."""
        most = IN_CACHE if self.device.type == "cpu" else ON_DEVICE
        size = max(64, most // (self.width + 4 * self.classes))
        for start in range(0, len(self), size):
            some = slice(start, min(start + size, len(self)))
            taken: Any = some
            if self.places is not None:
                taken = self.places[some]
                if not isinstance(self._features, Tensor):
                    taken = taken.numpy()
            yield some, self._moved(self._features[taken])

    def loss(self, link: Link, head: Tensor) -> tuple[float, Tensor]:
        """Mean of link(log softmax) over the rows, and its slopes in a head (C, F + 1).

        The head is in float64 on the CPU and ends with the bias; products are in float32.
        """
        weight, bias = self._split(head)
        value = torch.zeros((), dtype=torch.float64)
        slopes, for_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        for some, x in self.pieces():
            log_p = torch.log_softmax(torch.nn.functional.linear(x, weight, bias), 1)
            column = self.target[some, None]
            each, steep = link.formula(log_p.gather(1, column)[:, 0], *link.numbers)
            value += each.sum(dtype=torch.float64).cpu()
            slope = log_p.exp_()
            slope.scatter_add_(1, column, slope.new_full((1, 1), -1.0).expand(len(slope), 1))
            slope.mul_(-steep[:, None])
            # In this order: for few classes the other one takes four times as long on a CPU.
            slopes.addmm_(slope.T, x)
            for_bias += slope.sum(0)
        joined = torch.cat([slopes, for_bias[:, None]], 1).double().cpu()
        return float(value) / len(self), joined / len(self)

    def scores(self, head: Tensor) -> Tensor:
        """Logits (N, C), on the CPU."""
        weight, bias = self._split(head)
        found = [torch.nn.functional.linear(x, weight, bias).cpu() for _, x in self.pieces()]
        return torch.cat(found)

    def right(self, head: Tensor) -> Tensor:
        """Which rows (N,) have their class on top."""
        return self.scores(head).argmax(1) == self.target.cpu()

    def to_steps(self, head: Tensor) -> Tensor:
        """A head (C, F + 1) in the coordinates of steps."""
        weight, bias = head[:, :-1], head[:, -1] + head[:, :-1] @ self.center
        scaled = weight * self.scale
        if self._factor is not None:
            scaled = scaled @ self._factor
        return torch.cat([scaled, bias[:, None]], 1)

    def to_head(self, steps: Tensor) -> Tensor:
        """The head of steps (C, F + 1)."""
        scaled = steps[:, :-1]
        if self._inverse is not None:
            scaled = scaled @ self._inverse
        weight = scaled / self.scale
        return torch.cat([weight, (steps[:, -1] - weight @ self.center)[:, None]], 1)

    def slopes_of_steps(self, slopes: Tensor) -> Tensor:
        """Slopes in the head to those in steps."""
        inner = (slopes[:, :-1] - torch.outer(slopes[:, -1], self.center)) / self.scale
        if self._inverse is not None:
            inner = inner @ self._inverse.T
        return torch.cat([inner, slopes[:, -1:]], 1)

    def _split(self, head: Tensor) -> tuple[Tensor, Tensor]:
        weight = head[:, :-1].float().to(self.device).contiguous()
        return weight, head[:, -1].float().to(self.device)

    def _moved(self, features: Any) -> Tensor:
        if not isinstance(features, Tensor):
            # A copy: torch wants no array that cannot be written to.
            features = torch.from_numpy(np.array(features, dtype=np.float32))
        moved: Tensor = features.to(self.device, torch.float32)
        return moved

    def _center_and_scale(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (F,) of each feature; 1 for one that is constant."""
        total = torch.zeros(self.width, dtype=torch.float64)
        for _, x in self.pieces():
            total += x.sum(0, dtype=torch.float64).cpu()
        center = total / len(self)
        square = torch.zeros_like(center)
        for _, x in self.pieces():
            square += (x - center.to(x)).square_().sum(0, dtype=torch.float64).cpu()
        scale = (square / len(self)).sqrt()
        return center, torch.where(scale > 1e-6 * center.abs().clamp(min=1e-30), scale, 1.0)

    def _cholesky_factor(self) -> Tensor:
        """L with L L' about the correlations (F, F), a little of their mean on the diagonal."""
        moments = torch.zeros(self.width, self.width, device=self.device)
        stride = max(1, len(self) // ENOUGH)
        count = 0
        for _, x in self.pieces():
            z = (x[::stride] - self.center.to(x)) / self.scale.to(x)
            moments.addmm_(z.T, z)
            count += len(z)
        found = moments.double().cpu() / count
        found.diagonal().add_(1e-4 * max(float(found.diagonal().mean()), 1e-12))
        factor: Tensor = torch.linalg.cholesky(found)
        return factor
