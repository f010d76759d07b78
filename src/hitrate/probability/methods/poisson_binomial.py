"""How many of a row's rivals are ahead: a Poisson binomial distribution, docs/math.md (40) to (43).

At a node of the integral the rivals are independent, and rival i is ahead with probability
1 - F_i. A group of rivals is a list of k tensors (N, groups, K): the probabilities that exactly
0, 1, ..., k - 1 of it are ahead. Two groups make one of twice the size, and so up to all rivals;
on the way back each group learns of all outside of it, down to a rival and the others. Every term
is positive, so nothing is ever subtracted.
"""

from __future__ import annotations

import torch
from torch import Tensor

Group = list[Tensor]

# Logs of probabilities are taken as no lower than minus this.
LOWEST = 1e30
# The smallest probability whose log is taken.
LEAST = 1e-300


def log_odds(log_cdf: Tensor) -> Tensor:
    """log((1 - F) / F) from log F."""
    return (-torch.expm1(log_cdf)).clamp_min(LEAST).log() - log_cdf


def tilt_of(log_cdf: Tensor, k: int) -> Tensor:
    """The logs theta (N, K) by which all odds are divided, math (42): 0 unless k or more are ahead.

    Parameters
    ----------
    log_cdf : Tensor, shape (N, C, K)
        log F of each rival at each node.
    k : int
    """
    odds = log_odds(log_cdf)
    kth = odds.topk(k, 1).values[:, -1]
    among = (odds - kth[:, None]).clamp_max(0.0).exp().sum(1)
    crowded = (-torch.expm1(log_cdf)).sum(1) >= k
    return torch.where(crowded, (kth + (among / k).log()).clamp_min(0.0), 0.0)


class Count:
    """The number of rivals ahead, at each node.

    Parameters
    ----------
    lose, ahead : Tensor, shape (N, C, K)
        Probability of each rival to be behind, and ahead; with a tilt, the tilted ones.
    k : int
        At least 2, and fewer than C.
    tilt, scale : Tensor, shape (N, K), optional
        A tilt, and the log of what it has multiplied all probabilities by. Without one, what is
        smaller than the smallest number is lost.

    Attributes
    ----------
    log_fewer : Tensor, shape (N, K)
        log P(fewer than k ahead).
    more : Tensor, shape (N, K)
        P(k or more ahead), with all digits where it is small.
    """

    def __init__(
        self,
        lose: Tensor,
        ahead: Tensor,
        k: int,
        tilt: Tensor | None = None,
        scale: Tensor | None = None,
    ) -> None:
        self._k, self._lose = k, lose
        self._levels, more = _levels([lose, ahead], k)
        # (N, K) each.
        exactly = [part[:, 0] for part in self._levels[-1]]
        if tilt is None or scale is None:
            self._fewer = torch.stack(exactly).sum(0)
            log_fewer = self._fewer.log()
            self.more = more
        else:
            terms = [part * ((j + 1 - k) * tilt).exp() for j, part in enumerate(exactly)]
            self._fewer = torch.stack(terms).sum(0)
            log_fewer = scale + (k - 1) * tilt + self._fewer.log()
            self.more = torch.where(tilt > 0, -torch.expm1(log_fewer), more)
        # Where it is close to 1, by the part that has the digits.
        near_one = torch.log1p(-self.more.clamp_max(0.5))
        self.log_fewer = torch.where(self.more < 0.5, near_one, log_fewer)

    @staticmethod
    def of(log_cdf: Tensor, k: int, tilt: Tensor | None = None) -> Count:
        """From log F (N, C, K), with the tilt of `tilt_of` or without one."""
        if tilt is None:
            return Count(log_cdf.exp(), -torch.expm1(log_cdf), k)
        theta, odds = tilt[:, None], log_odds(log_cdf)
        tilted = odds - theta
        # log F less that of the tilted F. Of odds in the millions a difference has no digits left:
        # there it is the tilt, with what log(1 - F) has changed by.
        by_ahead = log_cdf + odds - torch.nn.functional.logsigmoid(tilted) - theta
        by_behind = log_cdf - torch.nn.functional.logsigmoid(-tilted)
        scale = torch.where(odds > 0, by_ahead, by_behind).sum(1)
        return Count(torch.sigmoid(-tilted), torch.sigmoid(tilted), k, tilt, scale)

    def others(self) -> Tensor:
        """P(exactly k - 1 of the others are ahead), for each rival (N, C, K)."""
        return _others(self._levels, self._k)

    def decides(self) -> Tensor:
        """P(rival i is behind and exactly k - 1 others ahead | fewer than k ahead): (N, C, K)."""
        return self._lose * self.others() / self._fewer.clamp_min(LEAST)[:, None]


def _levels(rivals: Group, k: int) -> tuple[list[Group], Tensor]:
    """Groups twice as large at each level, up to one of all; and P(k or more ahead) (N, K)."""
    levels, more = [rivals], torch.zeros_like(rivals[0])
    while (count := more.shape[1]) > 1:
        group, half = levels[-1], count // 2
        x, y = _halves(group, half)
        joined = [_exactly(j, x, y) for j in range(min(2 * len(group) - 1, k))]
        above = _at_least(k, x, y, more[:, :half], more[:, half : 2 * half])
        if count % 2:
            # The last one has no partner, and goes on alone.
            alone = [part[:, -1:] for part in group]
            alone += [torch.zeros_like(alone[0])] * (len(joined) - len(alone))
            joined = [torch.cat(both, 1) for both in zip(joined, alone, strict=True)]
            above = torch.cat([above, more[:, -1:]], 1)
        levels.append(joined)
        more = above
    return levels, more[:, 0]


def _others(levels: list[Group], k: int) -> Tensor:
    """P(exactly k - 1 of the others are ahead), for each rival (N, C, K)."""
    root = levels[-1]
    # Of what is outside of a group: exactly `first`, first + 1, ..., k - 1 ahead. Nobody is
    # outside of all.
    outside = [torch.ones_like(root[0]), *[torch.zeros_like(root[0])] * (k - 1)]
    first = 0
    for depth in range(len(levels) - 2, -1, -1):
        # A group of 2^depth rivals: no more than those can be missing to k - 1.
        group, low = levels[depth], max(0, k - 2**depth)
        count = group[0].shape[1]
        half = count // 2
        x, y = _halves(group, half)
        pairs = [part[:, :half] for part in outside]
        found = []
        for j in range(low, k):
            sides = [_exactly(j - first, pairs, y), _exactly(j - first, pairs, x)]
            if count % 2:
                sides.append(outside[j - first][:, -1:])
            found.append(torch.cat(sides, 1))
        outside, first = found, low
    return outside[0]


def _halves(group: Group, half: int) -> tuple[Group, Group]:
    """Those that are joined with each other."""
    return [part[:, :half] for part in group], [part[:, half : 2 * half] for part in group]


def _exactly(count: int, x: Group, y: Group) -> Tensor:
    """P(exactly so many of two groups are ahead), math (41)."""
    found: Tensor | None = None
    for i in range(max(0, count - len(y) + 1), min(count, len(x) - 1) + 1):
        one, other = x[i], y[count - i]
        found = one * other if found is None else torch.addcmul(found, one, other)
    assert found is not None
    return found


def _at_least(k: int, x: Group, y: Group, more_x: Tensor, more_y: Tensor) -> Tensor:
    """P(k or more of two groups are ahead), from the same of each."""
    found, rest = more_x, more_y
    for i, exactly in enumerate(x):
        if 0 < i and k - i < len(y):
            rest = rest + y[k - i]
        found = torch.addcmul(found, exactly, rest)
    return found
