"""The losses of two classes written out as functions of u = y f, and their sums over points."""

import numpy as np
from scipy.special import expit, log_expit, log_ndtr, ndtr

from hitrate_lab.toy.examples import FIRST, SECOND

ROOT_2 = np.sqrt(2)


def mpce(u):
    gap = np.maximum(expit(u), expit(-u)) - expit(u)
    return -gap * log_expit(u)


OF_MARGIN = {
    "cross entropy": lambda u: -log_expit(u),
    "EXACT": lambda u: ndtr(-u / ROOT_2),
    "expectation": lambda u: expit(-u),
    "mixed": lambda u: -log_expit(u) + expit(-u),
    "focal": lambda u: -(expit(-u) ** 2) * log_expit(u),
    "mean absolute error": lambda u: 2 * expit(-u),
    "GCE": lambda u: (1 - expit(u) ** 0.7) / 0.7,
    "tamed cross entropy": lambda u: (np.sqrt(1 - log_expit(u)) - 1) / 0.5,
    "hinge": lambda u: np.maximum(0, 1 - u),
    "complement objective": lambda u: -log_expit(u),
    "MPCE": mpce,
    "max-Mahalanobis": lambda u: (1 - u) ** 2 / 2,
    "truncated GCE": lambda u: (1 - np.maximum(expit(u), 0.5) ** 0.7) / 0.7,
    "probit": lambda u: -log_ndtr(u / ROOT_2),
    # Of the whole batch: -log of the mean of 1 minus this.
    "EXACT, batch log": lambda u: ndtr(-u / ROOT_2),
}


def arrays(example):
    return np.array(example.points), np.array(example.labels)


def mean_loss(name, example, weight, bias):
    x, y = arrays(example)
    mean = OF_MARGIN[name](y * (weight * x + bias)).mean()
    return -np.log1p(-mean) if name == "EXACT, batch log" else mean


__all__ = ["FIRST", "OF_MARGIN", "ROOT_2", "SECOND", "arrays", "mean_loss"]
