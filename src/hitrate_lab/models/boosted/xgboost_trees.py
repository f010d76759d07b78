"""XGBoost's JSON of trees, read here before XGBoost reads it, and written anew.

XGBoost trusts its files: an index out of range is memory that is not its own. So it never gets the
bytes of a file. They are read as plain arrays, these are checked against one another and against
the model's columns and classes, and XGBoost gets a text made of them, with no other field. A
process of its own for XGBoost would guard no more than that, and take seconds for every model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from hitrate_lab.bad_input import BadInput
from hitrate_lab.models.boosted.number_json import read_json
from hitrate_lab.models.boosted.tree_arrays import (
    LARGEST,
    LARGEST_SCORE,
    Array,
    Floats,
    finite,
    parents_of,
    whole,
)

# How JSON of an object begins, and nothing else does.
OBJECT = re.compile(rb'\s*\{\s*"')
FLOAT32 = float(np.finfo(np.float32).max)
# The parent of a root.
NONE = 2**31 - 1
VERSIONS = (2, 100)
CATEGORIES = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
# Nothing is predicted with these, and they may be infinite or NaN.
STATISTICS = ("base_weights", "loss_changes", "sum_hessian")
TREE = frozenset(
    {
        *CATEGORIES,
        *STATISTICS,
        "default_left",
        "id",
        "left_children",
        "parents",
        "right_children",
        "split_conditions",
        "split_indices",
        "split_type",
        "tree_param",
    }
)


def checked_xgboost(text: bytes, features: int, classes: int) -> bytes:
    """Trees that are safe for XGBoost, if those of a text are.

    Parameters
    ----------
    text : bytes
        JSON, as `Booster.save_raw("json")` gives it for a classifier.
    features, classes : int
        F and C, that it must be for.

    Returns
    -------
    bytes
        JSON of the same trees, of nothing that was not checked.

    Raises
    ------
    BadInput
    """
    # XGBoost would read its binary formats, too.
    if not OBJECT.match(text):
        raise BadInput("the model's trees.json is not JSON: it must begin with {")
    if len(text) > LARGEST:
        raise BadInput(f"the model's trees.json is larger than {LARGEST >> 20} MiB")
    try:
        return _written(_model(read_json(text.decode("ascii")), features, classes)).encode()
    except BadInput:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise BadInput(f"the model's trees.json cannot be used: {error}") from None


def _model(given: Any, features: int, classes: int) -> dict[str, Any]:
    """The whole of it, field by field."""
    top = _fields(given, "the file", {"learner", "version"})
    version = whole(_array(top["version"], 3, "version"), 0, 10**6, "version")
    if not VERSIONS[0] <= version[0] < VERSIONS[1]:
        raise ValueError(f"it is of XGBoost {version[0]}")
    learner = _fields(
        top["learner"],
        "learner",
        {
            "attributes",
            "feature_names",
            "feature_types",
            "gradient_booster",
            "learner_model_param",
            "objective",
        },
    )
    _fields(learner["attributes"], "attributes", set())
    for name in ("feature_names", "feature_types"):
        _array(learner[name], 0, name)
    groups = 1 if classes == 2 else classes
    sizes = _fields(
        learner["learner_model_param"],
        "learner_model_param",
        {"base_score", "boost_from_average", "num_class", "num_feature", "num_target"},
    )
    found = _count(sizes["num_feature"]), max(2, _count(sizes["num_class"]))
    if found != (features, classes):
        raise BadInput(
            f"the model's trees are for {found} features and classes, not {(features, classes)}"
        )
    _is(sizes, "num_class", str(groups) if groups > 1 else "0")
    _is(sizes, "num_target", "1")
    _is(sizes, "boost_from_average", "0", "1")
    base, sizes["base_score"] = _base(sizes["base_score"], groups)
    booster = _fields(learner["gradient_booster"], "gradient_booster", {"model", "name"})
    _is(booster, "name", "gbtree")
    trees = _trees(booster["model"], features, groups, base)
    return {
        "learner": {
            "attributes": {},
            "feature_names": [],
            "feature_types": [],
            "gradient_booster": {"model": trees, "name": "gbtree"},
            "learner_model_param": sizes,
            "objective": _objective(learner["objective"], groups),
        },
        "version": version,
    }


def _base(given: Any, groups: int) -> tuple[float, str]:
    """The largest score that rows begin with: of one number, or of one for each class."""
    text = _word(given)
    listed = text.startswith("[")
    numbers = read_json(text if listed else f"[{text}]")
    if not isinstance(numbers, np.ndarray) or len(numbers) not in (1, groups):
        raise ValueError(f"base_score is {text!r:.40}")
    finite(numbers, LARGEST_SCORE, "base_score")
    if groups == 1 and not (0 < numbers[0] < 1 and 0 < np.float32(numbers[0]) < 1):
        raise ValueError(f"base_score {text!r:.40} is no probability")
    return float(np.abs(numbers).max()), _written(numbers if listed else float(numbers[0]))


def _objective(given: Any, groups: int) -> dict[str, Any]:
    """The host's own of two classes, or of more."""
    if groups == 1:
        objective = _fields(given, "objective", {"name", "reg_loss_param"})
        _is(objective, "name", "binary:logistic")
        weight = _fields(objective["reg_loss_param"], "reg_loss_param", {"scale_pos_weight"})
        scale = read_json(f"[{_word(weight['scale_pos_weight'])}]")
        if not isinstance(scale, np.ndarray) or scale.shape != (1,) or not 0 < scale[0] < FLOAT32:
            raise ValueError("scale_pos_weight is no number above 0")
        objective["reg_loss_param"] = {"scale_pos_weight": repr(float(scale[0]))}
    else:
        objective = _fields(given, "objective", {"name", "softmax_multiclass_param"})
        _is(objective, "name", "multi:softprob")
        part = _fields(
            objective["softmax_multiclass_param"], "softmax_multiclass_param", {"num_class"}
        )
        _is(part, "num_class", str(groups))
    return objective


def _trees(given: Any, features: int, groups: int, base: float) -> dict[str, Any]:
    """All trees, and which class each is for."""
    # Of categories in columns, which XGBoost has from version 3.1 on.
    known = {"gbtree_model_param", "iteration_indptr", "tree_info", "trees"}
    model = _fields(given, "model", known | ({"cats"} & set(_dict(given, "model"))))
    if "cats" in model:
        cats = _fields(model["cats"], "cats", {"enc", "feature_segments", "sorted_idx"})
        for name in cats:
            _array(cats[name], 0, name)
    trees = model["trees"]
    if not isinstance(trees, list) or len(trees) % groups:
        raise ValueError(f"there are no trees, or not as many for each of {groups} classes")
    count = len(trees)
    sizes = _fields(
        model["gbtree_model_param"], "gbtree_model_param", {"num_parallel_tree", "num_trees"}
    )
    _is(sizes, "num_parallel_tree", "1")
    _is(sizes, "num_trees", str(count))
    rounds = count // groups
    needed = {
        "iteration_indptr": np.arange(rounds + 1) * groups,
        "tree_info": np.tile(np.arange(groups), rounds),
    }
    for name, numbers in needed.items():
        _equal(model[name], numbers, name)
    largest = np.full(groups, base)
    checked = []
    for place, each in enumerate(trees):
        tree, leaf = _tree(each, place, features)
        largest[place % groups] += leaf
        checked.append(tree)
    finite(largest, LARGEST_SCORE, "the sum of the leaves")
    return {**model, **needed, "trees": checked}


def _tree(given: Any, place: int, features: int) -> tuple[dict[str, Any], float]:
    """One tree, and the largest of its leaves."""
    tree = dict(_fields(given, "a tree", TREE))
    sizes = _fields(
        tree["tree_param"],
        "tree_param",
        {"num_deleted", "num_feature", "num_nodes", "size_leaf_vector"},
    )
    _is(sizes, "num_deleted", "0")
    _is(sizes, "num_feature", str(features))
    _is(sizes, "size_leaf_vector", "0", "1")
    nodes = _count(sizes["num_nodes"])
    if nodes < 1:
        raise ValueError("a tree has no nodes")
    if not isinstance(tree["id"], float) or tree["id"] != place:
        raise ValueError(f"tree {place} has another number")
    for name in CATEGORIES:
        _array(tree[name], 0, name)
    for name in STATISTICS:
        _array(tree[name], nodes, name)
    left, right = (
        whole(_array(tree[name], nodes, name), -1, nodes, name)
        for name in ("left_children", "right_children")
    )
    parents = parents_of(left, right, nodes)
    parents[0] = NONE
    _equal(tree["parents"], parents, "parents")
    conditions = finite(
        _array(tree["split_conditions"], nodes, "split_conditions"), FLOAT32, "split_conditions"
    )
    for name, below in (("default_left", 2), ("split_indices", features), ("split_type", 1)):
        tree[name] = whole(_array(tree[name], nodes, name), 0, below, name)
    tree |= {"id": place, "left_children": left, "right_children": right, "parents": parents}
    return tree, float(np.abs(conditions[left < 0]).max())


def _written(value: Any) -> str:
    """JSON of what was checked."""
    if isinstance(value, dict):
        return "{" + ",".join(f'"{key}":{_written(each)}' for key, each in value.items()) + "}"
    if isinstance(value, np.ndarray):
        return "[" + ",".join(_numbers(value)) + "]"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _numbers(array: Array) -> Iterable[str]:
    """As XGBoost writes them: a whole number has no point, any other has one."""
    if array.dtype == np.int64 or np.isfinite(array).all():
        return map(repr, array.tolist())
    special = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return (special.get(each, each) for each in map(repr, array.tolist()))


def _dict(given: Any, name: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise TypeError(f"{name} is no object")
    return given


def _fields(given: Any, name: str, known: set[str] | frozenset[str]) -> dict[str, Any]:
    """An object with these fields and no others."""
    if set(_dict(given, name)) != known:
        strange = sorted(set(given) ^ known)[0]
        said = "is missing" if strange in known else "is not known"
        raise ValueError(f"in {name} the field {strange!r:.40} {said}")
    return dict(given)


def _array(given: Any, length: int, name: str) -> Floats:
    if not isinstance(given, np.ndarray) or len(given) != length:
        raise ValueError(f"{name} is no list of {length} numbers")
    return given


def _equal(given: Any, needed: Array, name: str) -> None:
    if not np.array_equal(_array(given, len(needed), name), needed):
        raise ValueError(f"{name} has other numbers than the trees")


def _word(given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError("a number or list in the place of a word")
    return given


def _is(given: dict[str, Any], name: str, *words: str) -> None:
    if not isinstance(given[name], str) or given[name] not in words:
        raise ValueError(f"{name} is {given[name]!r:.40} and not {' or '.join(words)}")


def _count(given: Any) -> int:
    """A number that stands in quotes."""
    if not (isinstance(given, str) and re.fullmatch("0|[1-9][0-9]{0,8}", given)):
        raise ValueError(f"{given!r:.40} is no count")
    return int(given)
