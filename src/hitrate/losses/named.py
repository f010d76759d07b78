"""Named losses of the family: each is a noise and a link, and cross entropy's options.

The noise is Gumbel's, whose p is the softmax, unless a class says otherwise. A new loss is a class
here, its function, and its name in `__all__`; the tests take it in from there.
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from hitrate.links import Error, Focal, Focused, Log, Mixed, Tamed
from hitrate.losses.base import function_of
from hitrate.losses.link_loss import LinkLoss, LinkOptions

__all__ = [
    "CrossEntropyLoss",
    "ExpectationLoss",
    "FocalLoss",
    "MeanAbsoluteErrorLoss",
    "MixedLoss",
    "TamedCrossEntropyLoss",
    "cross_entropy_loss",
    "expectation_loss",
    "focal_loss",
    "mean_absolute_error_loss",
    "mixed_loss",
    "tamed_cross_entropy_loss",
]


class CrossEntropyLoss(LinkLoss):
    r"""Cross entropy, as a point of the family.

    .. math::

        L = -\log p_y

    The value and gradient of `torch.nn.CrossEntropyLoss`, by the family's own path: studies treat
    it like the others. Where p is close to 1, it keeps the digits of 1 - p.

    Parameters
    ----------
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.
    k : int
        How many of the highest scores count as a hit.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.CrossEntropyLoss()(logits, torch.tensor([0, 0]))
    tensor(1.4076)

    References
    ----------
    Bridle. Probabilistic interpretation of feedforward classification network outputs. 1990.
    """

    make_link = Log

    def __init__(self, **options: Unpack[LinkOptions]) -> None:
        super().__init__(self.make_link(), **options)


class ExpectationLoss(LinkLoss):
    r"""Expected error of a class drawn from the softmax: one minus the target's probability.

    .. math::

        L = 1 - p_y

    Also known as half the mean absolute error, and, in the fine-tuning of language models, as DFT.
    Its gradient vanishes where p does: alone, it may not get off the ground.

    Parameters
    ----------
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.
    k : int
        How many of the highest scores count as a hit.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.ExpectationLoss()(logits, torch.tensor([0, 0]))
    tensor(0.6224)

    References
    ----------
    Battash, Hazan, Wolf. Mixing between the Cross Entropy and the Expectation Loss Terms. 2021.
    """

    make_link = Error

    def __init__(self, **options: Unpack[LinkOptions]) -> None:
        super().__init__(self.make_link(), **options)


class MeanAbsoluteErrorLoss(LinkLoss):
    r"""Absolute difference of softmax and one-hot target, summed over classes.

    .. math::

        L = \lVert e_y - p \rVert_1 = 2 (1 - p_y)

    Probability targets q cost :math:`\sum_c q_c \, 2 (1 - p_c)`, the mean over targets from q.

    Parameters
    ----------
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.
    k : int
        How many of the highest scores count as a hit.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.MeanAbsoluteErrorLoss()(logits, torch.tensor([0, 0]))
    tensor(1.2447)

    References
    ----------
    Ghosh, Kumar, Sastry. Robust Loss Functions under Label Noise for Deep Neural Networks. 2017.
    """

    @staticmethod
    def make_link() -> Mixed:
        """Twice the error."""
        return Mixed(0.0, 2.0)

    def __init__(self, **options: Unpack[LinkOptions]) -> None:
        super().__init__(self.make_link(), **options)


class MixedLoss(LinkLoss):
    r"""Cross entropy plus expectation loss, with the largest gradient at p = F.

    .. math::

        L = -\alpha \log p_y + \beta (1 - p_y), \qquad \alpha = 1, \ \beta = \frac{1}{1 - 2F}

    At F = 0.5, alpha = 0 and beta = 1: the expectation loss alone. For other mixtures:
    ``ExactLoss(noise="gumbel", link=Mixed(alpha, beta))``.

    Parameters
    ----------
    focus : float
        F, from 0 to 0.5. The paper moves it during training: see `hitrate.schedules`.
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.
    k : int
        How many of the highest scores count as a hit.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.MixedLoss(focus=0.25)(logits, torch.tensor([0, 0]))
    tensor(2.6523)

    References
    ----------
    Battash, Hazan, Wolf. Mixing between the Cross Entropy and the Expectation Loss Terms. 2021.
    """

    make_link = Focused

    def __init__(self, focus: float | Tensor = 0.0, **options: Unpack[LinkOptions]) -> None:
        super().__init__(self.make_link(focus), **options)


class FocalLoss(LinkLoss):
    r"""Cross entropy with less weight on rows that are already right.

    .. math::

        L = -(1 - p_y)^\gamma \log p_y

    The factor alpha that some give it is a constant; put it into `weight`.

    Parameters
    ----------
    gamma : float
        At 0 this is cross entropy.
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.
    k : int
        How many of the highest scores count as a hit.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.FocalLoss()(logits, torch.tensor([0, 0]))
    tensor(1.0196)

    References
    ----------
    Lin, Goyal, Girshick, He, Dollár. Focal Loss for Dense Object Detection. 2017.
    """

    make_link = Focal

    def __init__(self, gamma: float | Tensor = 2.0, **options: Unpack[LinkOptions]) -> None:
        super().__init__(self.make_link(gamma), **options)


class TamedCrossEntropyLoss(LinkLoss):
    r"""Cross entropy that grows more slowly where it is large.

    .. math::

        L = \frac{(1 - \log p_y)^{1 - \alpha} - 1}{1 - \alpha}

    Zero at p = 1. (The formula as printed in the mixing paper, equation (4), differs from this one
    by a constant and has another value there.)

    Parameters
    ----------
    alpha : float
        0 is cross entropy; at 1 the loss is log(1 - log p); above 1 it is bounded.
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.
    k : int
        How many of the highest scores count as a hit.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.TamedCrossEntropyLoss()(logits, torch.tensor([0, 0]))
    tensor(1.0324)

    References
    ----------
    Martinez, Stiefelhagen. Taming the Cross Entropy Loss. 2018.
    """

    make_link = Tamed

    def __init__(self, alpha: float | Tensor = 0.5, **options: Unpack[LinkOptions]) -> None:
        super().__init__(self.make_link(alpha), **options)


cross_entropy_loss = function_of(CrossEntropyLoss)
expectation_loss = function_of(ExpectationLoss)
mean_absolute_error_loss = function_of(MeanAbsoluteErrorLoss)
mixed_loss = function_of(MixedLoss)
focal_loss = function_of(FocalLoss)
tamed_cross_entropy_loss = function_of(TamedCrossEntropyLoss)
