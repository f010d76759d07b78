"""Keras 3 on torch: a recipe compiled into a model."""

import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
from sklearn.datasets import load_digits

from hitrate.integrations.keras import AccuracyCallback

x, y = load_digits(return_X_y=True)
x = x.astype("float32") / 16

for recipe in ("cross_entropy", "annealed"):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(10)])
    accuracy = AccuracyCallback(recipe)
    optimizer = keras.optimizers.SGD(0.5, momentum=0.9)
    model.compile(optimizer=optimizer, loss=accuracy.loss, metrics=["accuracy"])
    model.fit(x[:1200], y[:1200], batch_size=60, epochs=10, verbose=0, callbacks=[accuracy])
    loss, found = model.evaluate(x[1200:], y[1200:], verbose=0, callbacks=[accuracy])
    print(f"{recipe:14} accuracy {found:.3f}, loss {loss:.3f}")
