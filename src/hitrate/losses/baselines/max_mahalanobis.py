"""Max-Mahalanobis centres: features pulled to fixed centres as far apart as can be."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor, nn

from hitrate.losses.base import function_of
from hitrate.losses.row_loss import RowLoss, Rule
from hitrate.losses.ways.reduction import LossOptions
from hitrate.probability.execution import full_precision

__all__ = [
    "MaxMahalanobisCenterLoss",
    "MaxMahalanobisHead",
    "max_mahalanobis_center_loss",
    "max_mahalanobis_centers",
]


def max_mahalanobis_centers(classes: int, features: int, radius: float = 10.0) -> Tensor:
    r"""Class centres on a sphere, each pair at the same and largest possible angle.

    The vertices of a simplex, one coordinate more with each centre, so that
    :math:`\mu_i \cdot \mu_j = -r^2 / (C - 1)` for all pairs.

    Parameters
    ----------
    classes : int
        C, at least 2.
    features : int
        Their dimension, at least C - 1.
    radius : float
        r, the length of each centre.

    Returns
    -------
    Tensor, shape (C, features)

    Examples
    --------
    >>> import hitrate
    >>> hitrate.max_mahalanobis_centers(3, 2, radius=1.0)
    tensor([[ 1.0000,  0.0000],
            [-0.5000,  0.8660],
            [-0.5000, -0.8660]])

    References
    ----------
    Pang, Xu, Dong, Du, Chen, Zhu. Rethinking Softmax Cross-Entropy Loss for Adversarial Robustness.
    2020. Pang, Du, Zhu. Max-Mahalanobis Linear Discriminant Analysis Networks. 2018. Algorithm 1.
    """
    if classes < 2 or features < classes - 1 or not radius > 0:
        raise ValueError(
            f"max_mahalanobis_centers(classes={classes}, features={features}, radius={radius}): "
            "needs two classes or more, features >= classes - 1, radius > 0"
        )
    centers = torch.zeros(classes, features, dtype=torch.float64)
    # All later centres agree in the coordinates of the earlier ones; `shared` is their product.
    shared = 0.0
    for j in range(classes - 1):
        own = math.sqrt(1 - shared)
        other = -(1 / (classes - 1) + shared) / own
        centers[j, j] = own
        centers[j + 1 :, j] = other
        shared += other * other
    return (radius * centers).to(torch.get_default_dtype())


class MaxMahalanobisHead(nn.Module):
    r"""Last layer with logits :math:`-\tfrac12 \lVert z - \mu_c \rVert^2` of features z.

    The centres are fixed. The predicted class is that of the closest centre.

    Parameters
    ----------
    classes, features, radius
        As in `max_mahalanobis_centers`.

    Examples
    --------
    >>> import torch, hitrate
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 5), hitrate.MaxMahalanobisHead(3, 5))
    >>> loss = hitrate.MaxMahalanobisCenterLoss()
    >>> loss(model(torch.randn(4, 8)), torch.tensor([0, 1, 2, 0])).backward()
    """

    centers: Tensor

    def __init__(self, classes: int, features: int, radius: float = 10.0) -> None:
        super().__init__()
        self.classes = classes
        self.features = features
        self.radius = radius
        self.register_buffer("centers", max_mahalanobis_centers(classes, features, radius))

    def forward(self, z: Tensor) -> Tensor:
        """Features (..., features) to logits (..., C)."""
        dtype = torch.promote_types(z.dtype, self.centers.dtype)
        # |z - mu|^2 without a tensor of all differences; squares need their digits.
        with full_precision(z):
            z, centers = z.to(dtype), self.centers.to(dtype)
            squares = z.square().sum(-1, keepdim=True) + self.radius**2
            return z @ centers.T - 0.5 * squares

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.classes}, {self.features}, radius={self.radius}"


class MaxMahalanobisCenterLoss(RowLoss):
    r"""Half the squared distance to the target's centre.

    .. math::

        L = \tfrac12 \lVert z - \mu_y \rVert^2 = -\text{logit}_y

    For the logits of a `MaxMahalanobisHead`; with others it has no lower bound.

    Parameters
    ----------
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = hitrate.MaxMahalanobisHead(2, 1, radius=1.0)(torch.tensor([[0.5]]))
    >>> hitrate.MaxMahalanobisCenterLoss()(logits, torch.tensor([0]))
    tensor(0.1250)

    References
    ----------
    Pang, Xu, Dong, Du, Chen, Zhu. Rethinking Softmax Cross-Entropy Loss for Adversarial Robustness.
    2020.
    """

    def __init__(self, **options: Unpack[LossOptions]) -> None:
        super().__init__({}, **options)

    @staticmethod
    def make_rule() -> Rule:
        """The rule: minus the target's logit."""
        return Rule(lambda rows, y: -rows.gather(1, y[:, None])[:, 0], lambda rows: -rows)


max_mahalanobis_center_loss = function_of(MaxMahalanobisCenterLoss)
