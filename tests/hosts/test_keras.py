"""Keras on torch: the order of arguments, kinds of targets, resuming, evaluation."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import numpy as np
import pytest
import torch
from host_cases import CLASSES, FEATURES, problem

import hitrate

pytest.importorskip("keras")
import keras

from hitrate.integrations.keras import AccuracyCallback, Loss

RECIPES = ["annealed", "mixed_gradual"]


def data():
    x, y = problem()
    return x.numpy(), y.numpy()


def network():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(CLASSES)])


def weights(model):
    return np.concatenate([np.ravel(w) for w in model.get_weights()])


def compiled(recipe, **changes):
    accuracy = AccuracyCallback(recipe, **changes)
    model = network()
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(optimizer=optimizer, loss=accuracy.loss, metrics=["accuracy"])
    return model, accuracy


def fit(model, accuracy, **options):
    x, y = data()
    return model.fit(x, y, batch_size=16, shuffle=False, verbose=0, callbacks=[accuracy], **options)


@pytest.mark.parametrize("targets", ["classes", "column", "one hot", "probabilities"])
def test_every_kind_of_target_is_understood(targets):
    x, y = data()
    made = {
        "classes": y,
        "column": y[:, None],
        "one hot": np.eye(CLASSES, dtype="float32")[y],
        "probabilities": 0.8 * np.eye(CLASSES, dtype="float32")[y] + 0.2 / CLASSES,
    }[targets]
    model = network()
    model.compile(optimizer="sgd", loss=Loss(hitrate.MixedLoss(0.25)))
    found = model.evaluate(x, made, verbose=0)
    logits = torch.as_tensor(model.predict(x, verbose=0))
    target = torch.from_numpy(made if made.ndim == 2 and targets != "column" else y)
    assert found == pytest.approx(float(hitrate.mixed_loss(logits, target, 0.25)), rel=1e-4)


def test_weights_of_samples_and_classes():
    x, y = data()
    model = network()
    model.compile(optimizer="sgd", loss=Loss(hitrate.CrossEntropyLoss()))
    sample = np.linspace(0, 1, len(y)).astype("float32")
    found = model.evaluate(x, y, sample_weight=sample, batch_size=len(y), verbose=0)
    logits = torch.as_tensor(model.predict(x, verbose=0))
    rows = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y), reduction="none")
    assert found == pytest.approx(float((rows * torch.from_numpy(sample)).mean()), rel=1e-4)


def test_targets_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="neither classes nor probabilities"):
        Loss(hitrate.MixedLoss()).call(torch.zeros(4, 3), torch.zeros(4, CLASSES))


def test_images_have_their_classes_last():
    loss = Loss(hitrate.MixedLoss(0.25))
    logits, labels = torch.randn(2, 5, 6, CLASSES), torch.randint(CLASSES, (2, 5, 6))
    expected = hitrate.mixed_loss(logits.movedim(-1, 1), labels, 0.25, reduction="none")
    torch.testing.assert_close(loss.call(labels.float(), logits), expected)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_resumed_training_ends_bit_equal(recipe, tmp_path):
    whole, accuracy = compiled(recipe)
    fit(whole, accuracy, epochs=3)
    first, accuracy = compiled(recipe)
    stop = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: setattr(first, "stop_training", epoch == 0)
    )
    x, y = data()
    first.fit(x, y, batch_size=16, shuffle=False, verbose=0, epochs=3, callbacks=[accuracy, stop])
    first.save(tmp_path / "model.keras", include_optimizer=True)
    second, accuracy = compiled(recipe)
    second.optimizer.build(second.trainable_variables)
    second.load_weights(tmp_path / "model.keras")
    saved = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    assert saved is not None
    for ours, theirs in zip(second.optimizer.variables, first.optimizer.variables, strict=True):
        ours.assign(theirs)
    fit(second, accuracy, epochs=3, initial_epoch=1)
    np.testing.assert_array_equal(weights(second), weights(whole))
    assert all(schedule.steps_done == 12 for schedule in accuracy.plan.schedules)


def test_parts_of_a_batch_equal_the_batch():
    whole, accuracy = compiled("annealed")
    fit(whole, accuracy, epochs=2)
    accuracy = AccuracyCallback("annealed")
    parts = network()
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=4)
    parts.compile(optimizer=optimizer, loss=accuracy.loss)
    x, y = data()
    parts.fit(x, y, batch_size=4, shuffle=False, verbose=0, epochs=2, callbacks=[accuracy])
    assert accuracy.plan.schedules[0].steps_done == 8
    np.testing.assert_allclose(weights(parts), weights(whole), atol=1e-5)


def test_evaluation_is_an_expected_error_rate():
    model, accuracy = compiled("exact_networks", normalize_gradient=False)
    x, y = data()
    history = fit(model, accuracy, epochs=2, validation_data=(x, y))
    logits = torch.as_tensor(model.predict(x, verbose=0))
    sigma = float(accuracy.plan.loss.sigma)
    plain = float(hitrate.exact_loss(logits, torch.from_numpy(y), sigma))
    assert history.history["val_loss"][-1] == pytest.approx(plain, rel=1e-4)
    assert accuracy.plan.loss.training
    found = model.evaluate(x, y, verbose=0, callbacks=[accuracy])[0]
    assert found == pytest.approx(plain, rel=1e-4)


def test_a_recipe_that_normalises_gradients_is_refused_with_a_word():
    with pytest.raises(ValueError, match="say normalize_gradient=False"):
        AccuracyCallback("exact_networks")


def test_label_smoothing_is_the_recipe_s():
    model, accuracy = compiled("cross_entropy", label_smoothing=0.1)
    x, y = data()
    found = model.evaluate(x, y, verbose=0)[0]
    logits = torch.as_tensor(model.predict(x, verbose=0))
    expected = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y), label_smoothing=0.1)
    assert found == pytest.approx(float(expected), rel=1e-4)
    assert accuracy.plan.loss.reduction == "none"
