"""timm: soft targets of mixup, schedules by updates, resuming, accumulation."""

import pytest
import torch
from host_cases import CLASSES, problem, weights
from host_cases import model as make_model

import hitrate

pytest.importorskip("timm")
from timm.data import Mixup
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from timm.scheduler import CosineLRScheduler
from timm.task import ClassificationTask

from hitrate.integrations.timm import AccuracyScheduler, create_loss

RECIPES = ["annealed", "mixed_gradual", "exact_networks"]
EPOCHS, UPDATES = 3, 4


def train(recipe, *, parts=1, stop=None, state=None):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss, _ = create_loss(recipe)
    task = ClassificationTask(model, loss, verbose=False)
    cosine = CosineLRScheduler(optimizer, t_initial=EPOCHS)
    scheduler = AccuracyScheduler(cosine, loss, EPOCHS, UPDATES)
    first = 0
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"]
        # As timm's training does.
        scheduler.step(first)
    x, y = problem()
    for epoch in range(first, EPOCHS if stop is None else stop):
        for update in range(UPDATES):
            rows = slice(16 * update, 16 * update + 16)
            for part in zip(x[rows].chunk(parts), y[rows].chunk(parts), strict=True):
                (task(*part)["loss"] / parts).backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step_update(epoch * UPDATES + update + 1)
        scheduler.step(epoch + 1)
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    return weights(model), {**saved, "epoch": stop, "scheduler": scheduler}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_resumed_training_ends_bit_equal(recipe):
    whole, ending = train(recipe)
    _, state = train(recipe, stop=1)
    assert torch.equal(train(recipe, state=state)[0], whole)
    plan = ending["scheduler"].plan
    assert all(schedule.steps_done == EPOCHS * UPDATES for schedule in plan.schedules)


@pytest.mark.parametrize("recipe", RECIPES[:-1])
def test_parts_of_a_batch_equal_the_batch(recipe):
    torch.testing.assert_close(train(recipe, parts=4)[0], train(recipe)[0], rtol=0, atol=1e-5)


def test_mixup_s_targets_and_timm_s_own_losses():
    torch.manual_seed(0)
    logits, target = torch.randn(8, CLASSES), torch.randint(CLASSES, (8,))
    mixup = Mixup(mixup_alpha=1.0, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=CLASSES)
    _, soft = mixup(torch.randn(8, 3, 8, 8), target)
    train_loss, _ = create_loss("cross_entropy", smoothing=0.1, mixup=True)
    torch.testing.assert_close(train_loss(logits, soft), SoftTargetCrossEntropy()(logits, soft))
    train_loss, validate_loss = create_loss("cross_entropy", smoothing=0.1)
    expected = LabelSmoothingCrossEntropy(0.1)(logits, target)
    torch.testing.assert_close(train_loss(logits, target), expected)
    assert type(validate_loss) is torch.nn.CrossEntropyLoss
    annealed, _ = create_loss("annealed", mixup=True)
    assert annealed(logits.requires_grad_(), soft).isfinite()


def test_its_state_may_be_saved_too():
    loss, _ = create_loss("annealed")
    scheduler = AccuracyScheduler(None, loss, 2, 5)
    scheduler.step_update(7)
    scheduler.step(1)
    scheduler.step_update(7)
    other, _ = create_loss("annealed")
    again = AccuracyScheduler(None, other, 2, 5)
    again.load_state_dict(scheduler.state_dict())
    assert float(other.q) == float(loss.q) > 0


def test_other_losses_and_other_questions_are_answered():
    with pytest.raises(ValueError, match="create_loss"):
        AccuracyScheduler(None, hitrate.MixedLoss(), 2, 5)
    loss, _ = create_loss("annealed")
    cosine = CosineLRScheduler(torch.optim.SGD(make_model().parameters(), lr=0.1), t_initial=3)
    assert AccuracyScheduler(cosine, loss, 3, 2).t_initial == 3
