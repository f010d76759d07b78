"""Boosted trees of both hosts, evaluated row by row as their formats say."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

# Scores are compared as far as rounding leaves digits of them.
SLACK = 1e-5


def scores(model: Path, x: Any, classes: int) -> np.ndarray | None:
    """Scores (N, C) of rows x, that of class 0 being 0 for two classes.

    None without trees, and where numbers are so large that their sum depends on its order.
    """
    if (model / "trees.json").exists():
        f = _xgboost(json.loads((model / "trees.json").read_text()), _with_gaps(x))
    elif (model / "trees.txt").exists():
        dense = x.toarray() if sparse.issparse(x) else np.asarray(x)
        f = _lightgbm((model / "trees.txt").read_text(), dense)
    else:
        return None
    if f is None:
        return None
    return np.column_stack([np.zeros(len(f)), f]) if classes == 2 else f


def _with_gaps(x: Any) -> np.ndarray:
    """Dense; what a sparse matrix does not hold is missing."""
    if not sparse.issparse(x):
        return np.asarray(x)
    held = sparse.coo_matrix(x)
    dense = np.full(held.shape, np.nan)
    dense[held.row, held.col] = held.data
    return dense


def _xgboost(given: Any, x: np.ndarray) -> np.ndarray | None:
    learner = given["learner"]
    model = learner["gradient_booster"]["model"]
    base = np.atleast_1d(json.loads(learner["learner_model_param"]["base_score"]))
    groups = max(model["tree_info"]) + 1
    lost = np.abs(base).max()
    if learner["objective"]["name"] == "binary:logistic":
        lost = (1 / (base * (1 - base))).max()
        base = np.log(base / (1 - base))
    for tree in model["trees"]:
        leaves = np.array(tree["left_children"]) == -1
        lost += np.abs(np.array(tree["split_conditions"])[leaves]).max()
    if lost * np.finfo(np.float32).eps > SLACK:
        return None
    f = np.zeros((len(x), groups)) + base
    rows = x.astype(np.float32)
    for group, tree in zip(model["tree_info"], model["trees"], strict=True):
        conditions = np.float32(tree["split_conditions"])
        for k, row in enumerate(rows):
            node = 0
            while tree["left_children"][node] != -1:
                value = row[tree["split_indices"][node]]
                left = tree["default_left"][node] if np.isnan(value) else value < conditions[node]
                node = tree["left_children" if left else "right_children"][node]
            f[k, group] += conditions[node]
    return f


def _lightgbm(text: str, x: np.ndarray) -> np.ndarray | None:
    header, *blocks = text.split("end of trees")[0].split("Tree=")
    (groups,) = (
        int(line.partition("=")[2])
        for line in header.splitlines()
        if line.startswith("num_tree_per_iteration=")
    )
    f, lost = np.zeros((len(x), groups)), 0.0
    for place, block in enumerate(blocks):
        tree = dict(line.split("=", 1) for line in block.splitlines()[1:] if line)
        numbers = {
            name: [float(each) for each in value.split()]
            for name, value in tree.items()
            if not name.endswith(("weight", "gain"))
        }
        lost += max(map(abs, numbers["leaf_value"]))
        for k, row in enumerate(x):
            f[k, place % groups] += numbers["leaf_value"][_leaf(numbers, row)]
    return None if lost * np.finfo(np.float64).eps > SLACK else f


def _leaf(tree: dict[str, list[float]], row: np.ndarray) -> int:
    node = 0 if tree["num_leaves"][0] > 1 else -1
    while node >= 0:
        value, kind = row[int(tree["split_feature"][node])], int(tree["decision_type"][node])
        missing = kind >> 2
        if np.isnan(value) and missing != 2:
            value = 0.0
        if (missing == 1 and abs(value) <= 1e-35) or (missing == 2 and np.isnan(value)):
            left = bool(kind & 2)
        else:
            left = value <= tree["threshold"][node]
        node = int(tree["left_child" if left else "right_child"][node])
    return ~node
