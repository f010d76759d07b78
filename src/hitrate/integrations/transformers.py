"""A leaf: train for accuracy in the Trainer of transformers; needs ``hitrate[transformers]``.

A whole program::

    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    from hitrate.integrations.transformers import AccuracyCallback

    config = BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_labels=3)
    model = BertForSequenceClassification(config)
    tokens = torch.randint(100, (64, 8))
    rows = [{"input_ids": t, "labels": t[0] % 3} for t in tokens]

    accuracy = AccuracyCallback("annealed")
    trainer = Trainer(
        model=model,
        args=TrainingArguments("out", num_train_epochs=2, report_to=[]),
        train_dataset=rows,
        eval_dataset=rows,
        compute_loss_func=accuracy.compute_loss,
        callbacks=[accuracy],
    )
    trainer.train()
    print(trainer.evaluate()["eval_loss"])  # reads as an expected error rate
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hitrate import recipes
from hitrate.losses import linear_loss

try:
    from transformers import TrainerCallback
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
except ImportError as error:
    raise ImportError(
        "hitrate.integrations.transformers needs transformers: pip install 'hitrate[transformers]'"
    ) from error

__all__ = ["AccuracyCallback"]


class AccuracyCallback(TrainerCallback):  # type: ignore[misc]
    """A recipe in the Trainer: its loss is `compute_loss`, and the callback moves its numbers.

    Everything goes by the Trainer's own count of steps, so gradient accumulation and resuming are
    right by themselves; the mean norm of recipes that normalise gradients is in the optimizer's
    state. A batch is divided by the number of its labels on all processes and in all of its
    parts, as in the models' own losses; class weights are not divided by their mean.

    Parameters
    ----------
    recipe : str
        A name for `hitrate.recipe`.
    shift : bool, optional
        Whether a label is that of the position before it, as in causal language models; by default
        as the model's own loss does.
    keep_logits : bool
        False for causal language models with a large vocabulary: in training the last layer and
        the loss are one, `hitrate.linear_loss`, and the logits are never all there.
    **changes
        As for `hitrate.recipe`; label smoothing is one of them, and not the Trainer's own.

    Attributes
    ----------
    plan : Plan
    """

    def __init__(
        self, recipe: str, *, shift: bool | None = None, keep_logits: bool = True, **changes: Any
    ) -> None:
        self.plan = recipes.recipe(recipe, **changes)
        self.shift = shift
        self.keep_logits = keep_logits
        self._shifts = bool(shift)
        self._parts = 1
        self._head: nn.Linear | None = None

    def compute_loss(
        self, outputs: Any, labels: Tensor | None, num_items_in_batch: Any = None
    ) -> Tensor:
        """The loss of a model's outputs: the Trainer's `compute_loss_func`.

        In evaluation, where nothing is differentiated, it is in evaluation mode.

        Parameters
        ----------
        outputs : ModelOutput or tuple
        labels : Tensor, shape (N,), (N, T), or of probabilities (N, C)
        num_items_in_batch : Tensor or int, optional
        """
        if labels is None:
            raise ValueError("AccuracyCallback.compute_loss: the batch has no labels")
        training, loss = torch.is_grad_enabled(), self.plan.loss
        # A batch may come in parts, of which each is a sum divided by what all of them have.
        reduction = "mean" if num_items_in_batch is None else "sum"
        if loss.training != training or loss.reduction != reduction:
            loss.train(training)
            loss.reduction = reduction
        scores: Tensor = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        is_soft = labels.is_floating_point() and labels.shape == scores.shape
        if self._shifts and not is_soft:
            labels = nn.functional.pad(labels, (0, 1), value=loss.ignore_index)[..., 1:]
        rows = scores.reshape(-1, scores.shape[-1])
        target = labels.reshape(rows.shape if is_soft else -1).to(rows.device)
        if self._head is not None and training:
            found = linear_loss(rows, self._head.weight, target, bias=self._head.bias, loss=loss)
        else:
            found = loss(rows, target)
        if num_items_in_batch is None:
            # The Trainer does not divide by the parts of a batch itself.
            return found / self._parts if training else found
        # Of probabilities it has counted each one.
        items = num_items_in_batch / scores.shape[-1] if is_soft else num_items_in_batch
        return found / (items.to(found.device) if isinstance(items, Tensor) else items)

    def on_init_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Look at the arguments and the model."""
        if args.label_smoothing_factor:
            raise ValueError(
                "AccuracyCallback: the Trainer's label_smoothing_factor does nothing beside "
                f"another loss; say label_smoothing={args.label_smoothing_factor} to the callback"
            )
        self._parts = args.gradient_accumulation_steps
        if self.shift is None:
            self._shifts = is_causal(objects["model"])

    def on_train_begin(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Begin, or go on, where the Trainer is."""
        self.plan.loss.to(args.device)
        self.plan.begin(state.max_steps, objects["optimizer"]).goto(state.global_step)
        if not self.keep_logits:
            self._head = without_logits(objects["model"])

    def on_step_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Move on with the Trainer."""
        self.plan.goto(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Leave the model as it was."""
        if self._head is not None:
            del self._head.forward
            self._head = None


def is_causal(model: Any) -> bool:
    """Whether a model's own loss takes a label as that of the position before it."""
    # An adapter stands around the model.
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    if getattr(getattr(inner, "config", None), "is_encoder_decoder", False):
        return False
    is_named = type(inner).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    return is_named or getattr(inner, "loss_type", None) == "ForCausalLM"


def without_logits(model: nn.Module) -> nn.Linear:
    """Let a model give, while it is trained, hidden states in the place of logits.

    Returns its last layer; ``del layer.forward`` puts things right again.
    """
    head = model.get_output_embeddings()  # type: ignore[operator]
    if not isinstance(head, nn.Linear) or type(head).forward is not nn.Linear.forward:
        raise ValueError(
            f"keep_logits=False: the last layer has to be a torch.nn.Linear, and is "
            f"{type(head).__name__}"
        )

    def forward(input: Tensor) -> Tensor:
        is_trained = head.training and torch.is_grad_enabled()
        return input if is_trained else nn.functional.linear(input, head.weight, head.bias)

    # Whatever else a model does to its logits, it would do to hidden states.
    tokens = torch.zeros(1, 2, dtype=torch.long, device=head.weight.device)
    mode = model.training
    with torch.no_grad():
        logits = model.eval()(input_ids=tokens).logits
        head.forward = lambda input: input  # type: ignore[method-assign]
        hidden = model(input_ids=tokens).logits
        del head.forward
        expected = head(hidden.to(head.weight.dtype))
    model.train(mode)
    if logits.shape != expected.shape or not torch.allclose(
        logits.float(), expected.float(), atol=1e-3
    ):
        raise ValueError(
            f"keep_logits=False: {type(model).__name__} does more to its logits than its last layer"
        )
    head.forward = forward  # type: ignore[method-assign]
    return head
