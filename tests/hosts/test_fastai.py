"""fastai: activation and decoded predictions, mixup, resuming, accumulation, evaluation."""

import warnings
from functools import partial

import pytest
import torch
from host_cases import CLASSES, problem, weights
from host_cases import model as make_model

import hitrate

# It warns of itself when it is imported.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("fastai.vision.all")
from fastai.callback.core import Callback
from fastai.callback.mixup import MixUp
from fastai.callback.training import GradientAccumulation
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.metrics import accuracy as hits
from fastai.optimizer import OptimWrapper

from hitrate.integrations.fastai import AccuracyCallback, LossFlat

RECIPES = ["annealed", "mixed_gradual", "exact_networks"]


class Modes(Callback):
    order = 50

    def before_fit(self):
        self.seen = set()

    def after_loss(self):
        self.seen.add((self.training, self.learn.loss_func.loss.training))


def learner(recipe="annealed", *others, size=16, changes=None, **options):
    data = torch.utils.data.TensorDataset(*problem())
    loaders = DataLoaders(*(DataLoader(data, bs=size) for _ in range(2)))
    callback = AccuracyCallback(recipe, **(changes or {}))
    settings = {
        "opt_func": partial(OptimWrapper, opt=torch.optim.SGD, momentum=0.9),
        "lr": 0.1,
        "metrics": hits,
        **options,
    }
    made = Learner(loaders, make_model(), callback.loss_func, cbs=[callback, *others], **settings)
    return made, callback


def quietly(learn, epochs, **options):
    with learn.no_bar(), learn.no_logging():
        learn.fit(epochs, **options)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_resumed_training_ends_bit_equal(recipe, tmp_path):
    whole, _ = learner(recipe)
    quietly(whole, 3)

    class Stop(Callback):
        order = 60

        def after_epoch(self):
            if self.epoch == 0:
                self.learn.save(tmp_path / "one", with_opt=True)

    first, _ = learner(recipe, Stop())
    quietly(first, 3)
    second, callback = learner(recipe)
    second.create_opt()
    second.load(tmp_path / "one", with_opt=True)
    quietly(second, 3, start_epoch=1)
    assert torch.equal(weights(second.model), weights(whole.model))
    assert all(schedule.steps_done == 12 for schedule in callback.plan.schedules)


def test_parts_of_a_batch_equal_the_batch():
    whole, _ = learner("cross_entropy")
    quietly(whole, 2)
    parts, _ = learner("cross_entropy", GradientAccumulation(16), size=4)
    quietly(parts, 2)
    torch.testing.assert_close(weights(parts.model), weights(whole.model), rtol=0, atol=1e-5)


def test_predictions_are_the_loss_s_own_probabilities_and_decoded():
    learn, callback = learner("exact", changes={"sigma": 2.0})
    quietly(learn, 1)
    x, _ = problem()
    with torch.no_grad():
        logits = learn.model(x)
    with learn.no_bar():
        p, _, decoded = learn.get_preds(with_decoded=True)
    torch.testing.assert_close(p, hitrate.class_probabilities(logits, 2.0))
    assert torch.equal(decoded, logits.argmax(1))
    assert callback.loss_func.y_int


def test_images_have_their_classes_on_the_first_axis():
    loss = LossFlat(hitrate.MixedLoss(0.25), axis=1)
    logits, labels = torch.randn(2, CLASSES, 5, 6), torch.randint(CLASSES, (2, 5, 6))
    torch.testing.assert_close(loss(logits, labels), hitrate.mixed_loss(logits, labels, 0.25))
    torch.testing.assert_close(loss.activation(logits), logits.softmax(1))
    assert torch.equal(loss.decodes(logits), logits.argmax(1))


def test_in_validation_the_loss_is_in_evaluation_mode():
    modes = Modes()
    learn, callback = learner("exact_networks", modes)
    quietly(learn, 2)
    assert modes.seen == {(True, True), (False, False)}
    x, y = problem()
    with learn.no_bar():
        found = learn.validate()[0]
    with torch.no_grad():
        plain = hitrate.exact_loss(learn.model(x), y, float(callback.plan.loss.sigma))
    assert found == pytest.approx(float(plain), rel=1e-4)


def test_mixup_trains():
    learn, _ = learner("annealed", MixUp(0.4))
    quietly(learn, 2)
    assert weights(learn.model).isfinite().all()


def test_class_weights_and_smoothing():
    changes = {"weight": torch.linspace(1, 2, CLASSES), "label_smoothing": 0.1}
    _, callback = learner("cross_entropy", changes=changes)
    logits, target = torch.randn(5, CLASSES), torch.randint(CLASSES, (5,))
    expected = torch.nn.functional.cross_entropy(logits, target, **changes)
    torch.testing.assert_close(callback.loss_func(logits, target), expected)


def test_fastai_s_own_optimizer_has_no_place_for_normalised_gradients():
    from fastai.optimizer import SGD

    learn, _ = learner("exact_networks", opt_func=SGD)
    with pytest.raises(TypeError, match=r"is no torch\.optim\.Optimizer"):
        quietly(learn, 1)
