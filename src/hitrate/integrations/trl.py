"""A leaf: train for accuracy in TRL's SFTTrainer; needs ``hitrate[trl]``.

The class to make, and its use::

    from trl import SFTConfig, SFTTrainer
    from hitrate.integrations.transformers import AccuracyCallback
    from hitrate.integrations.trl import AccuracyMixin


    class AccuracyTrainer(AccuracyMixin, SFTTrainer):
        pass


    def train(model, tokenizer, conversations):
        trainer = AccuracyTrainer(
            model=model,
            args=SFTConfig("out"),
            train_dataset=conversations,
            processing_class=tokenizer,
            callbacks=[AccuracyCallback("annealed_softmax")],
        )
        trainer.train()
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hitrate.links import Link
from hitrate.losses import ExactLoss, LinkLoss
from hitrate.probability.arguments import noise_named
from hitrate.probability.noises import GUMBEL

try:
    import trl as _trl  # noqa: F401

    from hitrate.integrations.transformers import AccuracyCallback
except ImportError as error:
    raise ImportError("hitrate.integrations.trl needs TRL: pip install 'hitrate[trl]'") from error

__all__ = ["AccuracyMixin"]


class AccuracyMixin:
    """Before a SFTTrainer among the bases of a class: its loss is that of the `AccuracyCallback`.

    TRL's own last layer gives the log probability of every target token without keeping logits;
    the link of the loss takes it from there. So the loss has to be one of the softmax: with Gumbel
    noise, and without margin, class weights, smoothing or standardised logits. For others give
    `AccuracyCallback.compute_loss` to transformers' own Trainer.
    """

    callback_handler: Any

    def compute_loss(
        self,
        model: Any,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """TRL's loss, of what the link makes of the log probabilities."""
        linked = LinkedModel(model, self._accuracy())
        return super().compute_loss(  # type: ignore[misc]
            linked, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch
        )

    def _accuracy(self) -> AccuracyCallback:
        found = [c for c in self.callback_handler.callbacks if isinstance(c, AccuracyCallback)]
        if len(found) != 1:
            raise ValueError(
                f"AccuracyMixin: needs one AccuracyCallback among callbacks, has {len(found)}"
            )
        return found[0]


class LinkedModel:
    """A model whose log probabilities are, with another sign, losses."""

    def __init__(self, model: Any, accuracy: AccuracyCallback) -> None:
        self.model = model
        self.link = link_of(accuracy.plan.loss)

    def __call__(self, **inputs: Any) -> Any:
        """The model's outputs."""
        outputs = self.model(**inputs)
        log_p: Tensor | None = getattr(outputs, "log_probs", None)
        if log_p is None:
            raise ValueError(
                "AccuracyMixin: this version of TRL gives no log probabilities of targets; hand "
                "AccuracyCallback.compute_loss to Trainer as compute_loss_func"
            )
        # Tokens that do not count have log probability 0.
        outputs.log_probs = -torch.where(outputs.label_mask, self.link(log_p.float()), 0.0)
        return outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


def link_of(loss: torch.nn.Module) -> Link:
    """The link of a loss that is nothing but a link of the softmax."""
    plain = isinstance(loss, LinkLoss) and noise_named(loss.noise, "AccuracyMixin") == GUMBEL
    if plain and isinstance(loss, ExactLoss):
        plain = loss.margin is None and not loss.normalize and float(loss.sigma) == 1
    usual = isinstance(loss, LinkLoss) and not (
        loss.options.is_smoothed or loss.options.is_balanced
    )
    if not plain or not usual or loss.weight is not None or loss.link.of_batch:
        raise ValueError(
            f"AccuracyMixin: {loss} is more than a link of the softmax; take 'annealed_softmax', "
            "'mixed_gradual', 'expectation' or another loss with Gumbel noise, without options"
        )
    link: Link = loss.link
    return link
