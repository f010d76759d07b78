"""What is counted on rows that were held out, beside accuracy: classes apart, and the first k."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def by_class(logits: Tensor, target: Tensor, learnt: Tensor, classes: int) -> dict[str, list[int]]:
    """Rows that were learnt from, rows held out, and how many of these are right, of each class.

    They are right "adjusted" where the logits less the logarithm of the class's share in training
    are highest at the target: logit adjustment of a network that was trained without.

    Parameters
    ----------
    logits : Tensor, shape (N, C)
    target : Tensor, shape (N,)
    learnt : Tensor, shape (M,)
        Classes of the training rows.
    classes : int
    """
    import torch

    counts = torch.bincount(learnt, minlength=classes)
    shifted = logits.double() - counts.clamp(min=1).double().log()
    found = {"learnt": counts, "rows": torch.bincount(target, minlength=classes)}
    for key, scores in (("right", logits), ("right_adjusted", shifted)):
        hit = target[scores.argmax(1) == target]
        found[key] = torch.bincount(hit, minlength=classes)
    return {key: counted.tolist() for key, counted in found.items()}


def balanced(counted: Mapping[str, Sequence[int]], key: str = "right") -> float:
    """The share of each class's rows that are right, averaged over classes that have any.

    >>> balanced({"rows": [10, 5, 0], "right": [8, 1, 0]})
    0.5
    """
    pairs = zip(counted[key], counted["rows"], strict=True)
    shares = [right / rows for right, rows in pairs if rows]
    return sum(shares) / len(shares) if shares else math.nan


def top_k_accuracy(logits: Tensor, target: Tensor, k: int) -> float:
    """The share of rows whose class is among the k with the highest logits.

    Parameters
    ----------
    logits : Tensor, shape (N, C)
    target : Tensor, shape (N,)
    k : int
    """
    hit = (logits.topk(k).indices == target[:, None]).any(1)
    return float(hit.double().mean())
