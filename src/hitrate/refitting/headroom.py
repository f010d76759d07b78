"""What training for accuracy could gain, told from a network's penultimate features."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hitrate.links import GCE
from hitrate.refitting.checks import checked
from hitrate.refitting.descent import minimum
from hitrate.refitting.rows import Rows

__all__ = ["Headroom", "headroom"]

# After the likelihood: GCE's power q, L2 as a part of what is best for the likelihood, whose slopes
# are larger, and steps at most.
PATH = ((0.5, 1.0, 15), (0.5, 0.1, 25), (1.0, 0.1, 30))
STEPS, TOLERANCE = 30, 1e-4
# N l2 that are tried; without L2 separable rows have their likelihood's maximum at infinity.
STRENGTHS = tuple(10.0**k for k in range(3, -4, -1))
SMALLEST_L2 = 1e-7
# Every row is held out once where there are few, one part of three where there are many.
FEW, SOME = 5_000, 20_000
# A network has fitted its rows where so few are wrong that nothing can be gained.
FITTED = 0.002


@dataclass(frozen=True)
class Headroom:
    r"""What a refit of the last layer for accuracy says; accuracies and gains are shares.

    Parameters
    ----------
    now : float
        Training accuracy of the head that was given, or of one fitted by likelihood.
    reachable : float
        The highest training accuracy on the way from there to the lowest expected error.
    noise : float
        What a fit gains where nothing is to be learnt, about
        :math:`\tfrac12 \sqrt{P e (1 - e) / N}` with P parameters and e the error now.
    gain : float
        Accuracy on held-out rows of the head trained for accuracy, less that of the other.
    low, high : float
        Its interval, from the rows on which the two differ.
    level : float
        Of the interval.
    rows, held_out : int
        How many were trained with, and how many `gain` is of.
    has_test : bool
        Whether these are test rows that were given; else inner splits of the training rows.
    l2 : float
        Chosen by held-out likelihood.
    q : float
        Where the refitted head's path ends: 0 at the likelihood, 1 at the expected error.
    weight : Tensor, shape (C, F)
        The refitted head, in float32 on the CPU.
    bias : Tensor, shape (C,)
    """

    now: float
    reachable: float
    noise: float
    gain: float
    low: float
    high: float
    level: float
    rows: int
    held_out: int
    has_test: bool
    l2: float
    q: float
    weight: Tensor
    bias: Tensor

    @property
    def headroom(self) -> float:
        """Training accuracy to be gained, less what is gained on noise."""
        return self.reachable - self.now - self.noise

    @property
    def sentence(self) -> str:
        """What to do, in one sentence."""
        now = f"{100 * self.now:.1f} %"
        between = f"{100 * self.low:+.1f} to {100 * self.high:+.1f}"
        interval = f"{100 * self.level:g} % interval {between}"
        if 1 - self.now <= FITTED:
            return (
                f"Your network fits its training rows ({now}): training for accuracy will not help."
            )
        if self.low > 0:
            return (
                f"Training the last layer for accuracy gains about {100 * self.gain:+.1f} points "
                f"on new rows ({interval})."
            )
        if self.high < 0:
            return (
                f"Training the last layer for accuracy loses about {-100 * self.gain:.1f} points "
                f"on new rows ({interval}): keep cross entropy."
            )
        if self.headroom <= 0:
            return (
                f"No headroom: of the training rows {now} are right, and no more than noise is "
                f"left to gain; on new rows {100 * self.gain:+.1f} points ({interval})."
            )
        return (
            f"Not to be told from noise: there are {100 * self.headroom:.1f} points of headroom in "
            f"training, and {100 * self.gain:+.1f} points on new rows ({interval})."
        )

    def __str__(self) -> str:
        return (
            f"training accuracy {100 * self.now:.2f} %, reachable {100 * self.reachable:.2f} %, "
            f"headroom {100 * self.headroom:+.2f} points beyond noise of "
            f"{100 * self.noise:.2f}\n{self.sentence}"
        )

    def head(self) -> nn.Linear:
        """The refitted head as a layer, to be put in the place of the network's last."""
        layer = nn.Linear(self.weight.shape[1], self.weight.shape[0])
        layer.load_state_dict({"weight": self.weight, "bias": self.bias})
        return layer


def headroom(
    features: Any,
    target: Any,
    head: nn.Linear | tuple[Any, Any] | None = None,
    *,
    test: tuple[Any, Any] | None = None,
    level: float = 0.95,
    rows: int = 100_000,
    device: str | torch.device | None = None,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
) -> Headroom:
    r"""What training for accuracy could gain: refit the last layer alone, in seconds.

    From the head that a network has, or from the likelihood's maximum, it follows the minima of

    .. math::

        \frac1N \sum_n \frac{1 - p_n^q}{q} + \frac{l_2}{2} \lVert W \rVert^2,
        \qquad q = 0 \to \tfrac12 \to 1

    with p the softmax of the target: first a likelihood, at the end the expected error. The head is
    kept from where on this path inner splits have the most held-out rows right.

    With test rows `gain` compares the refitted head with the one that was given, there. Without, it
    compares heads that were trained by likelihood and for accuracy on a part of the rows, on the
    other part, whose halves choose for one another where the path ends. If the network was trained
    with these rows, its features know their classes: then give `test`, or features of rows that it
    was not trained with.

    Parameters
    ----------
    features : Tensor or array, shape (N, F)
        What the network's last layer gets: of any float dtype, and memory-mapped if it likes.
    target : Tensor or array of int, shape (N,)
        Class indices.
    head : Linear or (weight, bias), optional
        The network's last layer, (C, F) and (C,); the bias may be None.
    test : (features, target), optional
        Rows that the network was not trained with.
    level : float
        Of the interval.
    rows : int
        Of more rows so many are drawn.
    device : str or torch.device, optional
        Where to compute; by default where the features are.
    seed : int
        Of rows and splits.
    progress : callable, optional
        Told what is being done.

    Returns
    -------
    Headroom

    Examples
    --------
    A boundary that one tenth of the rows, far away, has pulled aside:

    >>> import torch, hitrate
    >>> generator = torch.Generator().manual_seed(0)
    >>> features = torch.randn(2000, 2, generator=generator)
    >>> target = (features[:, 0] > 0).long()
    >>> features[:200], target[:200] = torch.tensor([6.0, 0.0]), 0
    >>> found = hitrate.headroom(features, target)
    >>> found.headroom > 0.05 and found.low > 0.05
    True
    >>> found.head()
    Linear(in_features=2, out_features=2, bias=True)
    """
    say = progress or (lambda _: None)
    given = checked(features, target, head, test, level, rows, device, seed)
    random = torch.Generator().manual_seed(seed)
    say("reading")
    table = Rows(given.features, given.target, given.classes, given.device)
    splits = _splits(given.target, random)
    say("choosing L2")
    l2, starts = _chosen(table, splits, random)
    hits = []
    for number, (split, start) in enumerate(zip(splits, starts, strict=True), 1):
        say(f"held-out rows, split {number} of {len(splits)}")
        inside, out = table.part(_others(len(table), split)), table.part(split)
        scaled = l2 * len(table) / len(inside)
        hits.append(torch.stack([out.right(each) for each in _path(inside, start, scaled)]))
    stop, difference = _choice(torch.cat(hits, 1), random)

    say("refitting")
    near = given.head
    if near is None:
        # Of many rows some have the likelihood's maximum close by.
        near = starts[0] if len(splits) == 1 else torch.zeros_like(starts[0])
    every = list(_path(table, near, l2))
    begun, fitted = given.head, every[stop]
    if begun is None:
        begun = _minimum(table, 0.0, every[0], SMALLEST_L2)
    say("what is reachable")
    every += [begun, _minimum(table, 1.0, every[-1], SMALLEST_L2)]
    accuracy = [table.right(each).double().mean().item() for each in every]
    now = accuracy[-2]
    error = 1 - now
    parameters = (given.classes - 1) * (table.width + 1)
    noise = 0.5 * math.sqrt(parameters / len(table) * error * (1 - error))
    if given.test is not None:
        new = Rows(*given.test, given.classes, given.device, scaled=False)
        base = every[0] if given.head is None else given.head
        difference = new.right(fitted).double() - new.right(base).double()
    gain, low, high = _interval(difference, level)
    fitted = fitted.float()
    return Headroom(
        now=now,
        reachable=max(accuracy),
        noise=noise,
        gain=gain,
        low=low,
        high=high,
        level=level,
        rows=len(table),
        held_out=len(difference),
        has_test=given.test is not None,
        l2=l2,
        q=0.0 if stop == 0 else PATH[stop - 1][0],
        weight=fitted[:, :-1].contiguous(),
        bias=fitted[:, -1].contiguous(),
    )


def _minimum(rows: Rows, q: float, head: Tensor, l2: float, most: int = STEPS) -> Tensor:
    return minimum(rows, GCE(q), head, l2=l2, most=most, tol=TOLERANCE)


def _path(rows: Rows, head: Tensor, l2: float) -> Iterator[Tensor]:
    """The likelihood's maximum, found from a head near it, and the minima after it."""
    yield (head := _minimum(rows, 0.0, head, l2))
    for q, part, most in PATH:
        yield (head := _minimum(rows, q, head, part * l2, most))


def _choice(hits: Tensor, random: torch.Generator) -> tuple[int, Tensor]:
    """The best place on the path, and what a choice gains on rows that had no part in it.

    Parameters
    ----------
    hits : Tensor of bool, shape (places, rows)
        The first place is that of the likelihood.
    random : Generator
        Of the halves that choose for one another.
    """
    hits = hits.double()
    gained = torch.empty_like(hits[0])
    halves = torch.randperm(len(gained), generator=random).chunk(2)
    for one, other in (halves, halves[::-1]):
        gained[one] = (hits[_best(hits[:, other]), one]) - hits[0, one]
    return _best(hits), gained


def _best(hits: Tensor) -> int:
    """The place with the most hits; of those that tie the first, which is the smoothest."""
    total = hits.sum(1)
    return int((total == total.max()).nonzero()[0])


def _splits(target: Tensor, random: torch.Generator) -> list[Tensor]:
    """Held-out places of each split, every class spread over them."""
    rows = len(target)
    count = 5 if rows <= FEW else 3
    shuffled = torch.randperm(rows, generator=random)
    in_order = shuffled[torch.argsort(target.cpu()[shuffled], stable=True)]
    found = [in_order[k::count].sort().values for k in range(count)]
    return found if rows <= SOME else found[:1]


def _others(rows: int, places: Tensor) -> Tensor:
    kept = torch.ones(rows, dtype=torch.bool)
    kept[places] = False
    return kept.nonzero()[:, 0]


def _chosen(
    table: Rows, splits: list[Tensor], random: torch.Generator
) -> tuple[float, list[Tensor]]:
    """L2 with the highest held-out likelihood, and the heads that it gave, one for each split."""
    losses = torch.zeros(len(STRENGTHS), dtype=torch.float64)
    many = len(splits) == 1
    every = []
    for split in splits:
        inside = _others(len(table), split)
        if len(inside) > SOME:
            inside = inside[torch.randperm(len(inside), generator=random)[:SOME].sort().values]
        part, out = table.part(inside), table.part(split)
        head = torch.zeros(table.classes, table.width + 1, dtype=torch.float64)
        found = []
        for k, strength in enumerate(STRENGTHS):
            # As many rows as it will have: L2 falls with their number.
            head = _minimum(part, 0.0, head, strength / len(part))
            losses[k] += out.loss(GCE(0.0), head)[0] * len(out)
            found.append(head)
            # The weakest take the most steps.
            if many and k and losses[k] > losses[k - 1]:
                losses[k + 1 :] = torch.inf
                break
        every.append(found)
    best = int(losses.argmin())
    return STRENGTHS[best] / len(table), [found[best] for found in every]


def _interval(difference: Tensor, level: float) -> tuple[float, float, float]:
    """Mean of paired differences (n,) and the ends of its interval.

    One row more on either side keeps an interval from having no width.
    """
    rows = len(difference)
    mean = float(difference.mean())
    square = (float(difference.square().sum()) + 2) / (rows + 2)
    error = math.sqrt(max(square - mean * mean, 0.0) / rows)
    reach = math.sqrt(2) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64))) * error
    return mean, mean - reach, mean + reach
