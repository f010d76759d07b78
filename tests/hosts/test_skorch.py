"""skorch: resuming, grid search, probabilities, evaluation."""

import pickle

import numpy as np
import pytest
import torch
from host_cases import CLASSES, FEATURES, problem, weights
from host_cases import model as make_model

import hitrate
from hitrate import schedules

pytest.importorskip("skorch")
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback

from hitrate.integrations.skorch import AccuracyCallback

RECIPES = ["annealed", "mixed_gradual", "exact_networks"]


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = make_model()

    def forward(self, x):
        return self.layer(x)


def data():
    x, y = problem()
    return x.numpy(), y.numpy()


def net(recipe="annealed", *others, epochs=4, changes=None, **options):
    settings = {
        "criterion": torch.nn.CrossEntropyLoss,
        "optimizer": torch.optim.SGD,
        "optimizer__momentum": 0.9,
        "lr": 0.1,
        "batch_size": 16,
        "max_epochs": epochs,
        "train_split": None,
        "verbose": 0,
        **options,
    }
    accuracy = ("accuracy", AccuracyCallback(recipe, **(changes or {})))
    return NeuralNetClassifier(Linear, callbacks=[accuracy, *others], **settings)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_resumed_training_ends_bit_equal(recipe, tmp_path):
    x, y = data()
    whole = net(recipe).fit(x, y)
    files = {f"f_{part}": tmp_path / part for part in ("params", "optimizer", "history")}
    first = net(recipe).initialize()
    first.partial_fit(x, y, epochs=2)
    first.save_params(**files)
    second = net(recipe).initialize()
    second.load_params(**files)
    second.partial_fit(x, y, epochs=2)
    assert torch.equal(weights(second.module_), weights(whole.module_))
    plan = dict(second.callbacks_)["accuracy"].plan_
    assert all(schedule.steps_done == 16 for schedule in plan.schedules)


def test_beyond_the_last_epoch_nothing_moves():
    x, y = data()
    trained = net().fit(x, y)
    trained.partial_fit(x, y, epochs=1)
    assert float(trained.criterion_.q) == 1.0


def test_probabilities_are_the_loss_s_own():
    x, y = data()
    trained = net("exact", changes={"sigma": 2.0}).fit(x, y)
    with torch.no_grad():
        logits = trained.module_(torch.from_numpy(x))
    own = hitrate.class_probabilities(logits, 2.0)
    np.testing.assert_allclose(trained.predict_proba(x), own, atol=1e-6)
    assert np.abs(trained.predict_proba(x) - logits.softmax(1).numpy()).max() > 0.01
    assert (trained.predict(x) == logits.argmax(1).numpy()).all()
    given = net(predict_nonlinearity=lambda z: z.softmax(1)).fit(x, y)
    with torch.no_grad():
        expected = given.module_(torch.from_numpy(x)).softmax(1)
    np.testing.assert_allclose(given.predict_proba(x), expected, atol=1e-6)


def test_a_grid_searches_recipes_and_their_changes():
    x, y = data()
    grid = {
        "callbacks__accuracy__recipe": ["cross_entropy", "annealed"],
        "callbacks__accuracy__label_smoothing": [0.0, 0.1],
    }
    search = GridSearchCV(net(), grid, cv=2, scoring="accuracy").fit(x, y)
    assert len(search.cv_results_["params"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = search.best_params_
    chosen = dict(search.best_estimator_.callbacks)["accuracy"].get_params()
    assert chosen["recipe"] == best["callbacks__accuracy__recipe"]
    assert chosen["label_smoothing"] == best["callbacks__accuracy__label_smoothing"]


def test_it_is_cloned_with_its_changes_and_pickled_when_trained():
    x, y = data()
    original = net("exact", changes={"sigma": schedules.geometric(4.0, 1.0)})
    copied = clone(original)
    assert dict(copied.callbacks)["accuracy"].get_params()["sigma"](1.0) == 1.0
    trained = copied.fit(x, y)
    again = pickle.loads(pickle.dumps(trained))
    np.testing.assert_array_equal(again.predict_proba(x), trained.predict_proba(x))
    refitted = clone(trained).fit(x, y)
    np.testing.assert_allclose(refitted.predict_proba(x), trained.predict_proba(x), atol=1e-6)


class Modes(Callback):
    def __init__(self):
        self.seen = set()

    def on_batch_end(self, net, batch=None, training=None, **kwargs):
        self.seen.add((training, net.criterion_.training))


def test_in_validation_the_loss_is_in_evaluation_mode():
    from skorch.dataset import ValidSplit

    x, y = data()
    modes = Modes()
    net("exact_networks", ("modes", modes), train_split=ValidSplit(4)).fit(x, y)
    assert modes.seen == {(True, True), (False, False)}


def test_class_weights_and_smoothing():
    x, y = data()
    changes = {"weight": torch.linspace(1, 2, CLASSES), "label_smoothing": 0.1}
    trained = net("cross_entropy", changes=changes).fit(x, y)
    logits, target = torch.randn(5, CLASSES), torch.randint(CLASSES, (5,))
    expected = torch.nn.functional.cross_entropy(logits, target, **changes)
    torch.testing.assert_close(trained.criterion_(logits, target), expected)
    assert FEATURES == trained.module_.layer.in_features
