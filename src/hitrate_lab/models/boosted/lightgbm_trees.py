"""LightGBM's text of trees, read here before LightGBM reads it, and written anew.

LightGBM trusts its files as XGBoost does, see `xgboost_trees`. What it gets is made of checked
arrays; parameters of training and sums of importance, which predictions do not need, are left out.
"""

from __future__ import annotations

import re

import numpy as np

from hitrate_lab.bad_input import BadInput
from hitrate_lab.models.boosted.number_json import numbers_in
from hitrate_lab.models.boosted.tree_arrays import (
    LARGEST,
    LARGEST_SCORE,
    Array,
    Floats,
    finite,
    parents_of,
    whole,
)

HEADER = (
    "version",
    "num_class",
    "num_tree_per_iteration",
    "label_index",
    "max_feature_idx",
    "objective",
    "feature_names",
    "feature_infos",
    "tree_sizes",
)
END = "end of trees"
LARGEST_DOUBLE = float(np.finfo(np.float64).max)
# Left and right children, whole numbers, numbers that predictions are made of, and statistics, by
# whether there is one for each inner node or for each leaf.
OF_NODES = (
    "split_feature",
    "split_gain",
    "threshold",
    "decision_type",
    "left_child",
    "right_child",
    "internal_value",
    "internal_weight",
    "internal_count",
)
OF_LEAVES = ("leaf_value", "leaf_weight", "leaf_count")
# As LightGBM orders them.
TREE = (
    "num_leaves",
    "num_cat",
    *OF_NODES[:6],
    *OF_LEAVES,
    *OF_NODES[6:],
    "is_linear",
    "shrinkage",
)
# Bits: 1 is for categories, 2 for missing values to the left, 4 and 8 for what is missing.
DECISIONS = (0, 2, 4, 6, 8, 10)
# A feature that never varied, or the ends of its range.
INFO = re.compile(r"none|\[(-?[0-9.]+(?:e[-+]?[0-9]+)?):(-?[0-9.]+(?:e[-+]?[0-9]+)?)\]")
VALUES = re.compile(r"[-+0-9.e ]*")
STATISTICS = re.compile(r"[-+0-9.einfa ]*")
COUNT = re.compile(r"0|[1-9][0-9]{0,8}")


def checked_lightgbm(text: bytes, features: int, classes: int, *, own: bool) -> bytes:
    """Trees that are safe for LightGBM, if those of a text are.

    Parameters
    ----------
    text : bytes
        As `Booster.model_to_string` gives it, in UTF-8.
    features, classes : int
        F and C, that it must be for.
    own : bool
        Whether the objective is LightGBM's own; another one is not in the text.

    Returns
    -------
    bytes
        Text of the same trees, of nothing that was not checked.

    Raises
    ------
    BadInput
    """
    if len(text) > LARGEST:
        raise BadInput(f"the model's trees.txt is larger than {LARGEST >> 20} MiB")
    try:
        return _checked(text.decode("ascii"), features, classes, own).encode()
    except BadInput:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise BadInput(f"the model's trees.txt cannot be read: {error}") from None


def _checked(text: str, features: int, classes: int, own: bool) -> str:
    head, gap, rest = text.partition("\n\n")
    if not gap:
        raise ValueError("it does not begin with a tree")
    header = _fields(head, "tree", [name for name in HEADER if own or name != "objective"])
    groups = 1 if classes == 2 else classes
    found = _count(header["max_feature_idx"]) + 1, max(2, _count(header["num_class"]))
    if found != (features, classes):
        raise BadInput(
            f"the model's trees are for {found} features and classes, not {(features, classes)}"
        )
    _is(header, "version", "v4")
    _is(header, "num_class", str(groups))
    _is(header, "num_tree_per_iteration", str(groups))
    _count(header["label_index"])
    if own:
        wanted = "binary sigmoid:1" if groups == 1 else f"multiclass num_class:{groups}"
        _is(header, "objective", wanted)
    _is(header, "feature_names", " ".join(f"Column_{k}" for k in range(features)))
    if header["feature_infos"].count(" ") != features - 1:
        raise ValueError("feature_infos are not one for each feature")
    header["feature_infos"] = " ".join(map(_info, header["feature_infos"].split(" ")))
    # The names of its lines alone are more than a hundred letters of a tree.
    if header["tree_sizes"].count(" ") > len(text) // 100:
        raise ValueError("tree_sizes are more than there can be trees")
    sizes = whole(numbers_in(header["tree_sizes"], " "), 1, len(text) + 1, "tree_sizes")
    if not len(sizes) or len(sizes) % groups:
        raise ValueError(f"there are no trees, or not as many for each of {groups} classes")
    ends_at = np.cumsum(sizes)
    if not rest.startswith(END, int(ends_at[-1])):
        raise ValueError("tree_sizes are not those of the trees")
    largest = np.zeros(groups)
    trees = []
    for place, (size, end) in enumerate(zip(sizes.tolist(), ends_at.tolist(), strict=True)):
        tree, leaf = _tree(rest[end - size : end], place, features)
        largest[place % groups] += leaf
        trees.append(tree)
    finite(largest, LARGEST_SCORE, "the sum of the leaves")
    header["tree_sizes"] = " ".join(str(len(tree)) for tree in trees)
    said = "".join(f"{name}={value}\n" for name, value in header.items())
    return f"tree\n{said}\n{''.join(trees)}{END}\n\n"


def _tree(text: str, place: int, features: int) -> tuple[str, float]:
    """One tree, and the largest of its leaves."""
    if not text.endswith("\n\n"):
        raise ValueError(f"tree {place} is not where tree_sizes says")
    given = _fields(text.rstrip("\n"), f"Tree={place}", TREE)
    leaves = _count(given["num_leaves"])
    if leaves < 1:
        raise ValueError("a tree has no leaves")
    _is(given, "num_cat", "0")
    _is(given, "is_linear", "0")
    arrays: dict[str, Array] = {}
    for name in (*OF_NODES, *OF_LEAVES):
        count = leaves - (name in OF_NODES)
        # A tree of one leaf has no statistics of it.
        alone = leaves == 1 and name in ("leaf_weight", "leaf_count") and not given[name]
        arrays[name] = _array(given[name], 0 if alone else count, name)
    for name in ("leaf_count", "internal_count"):
        arrays[name] = whole(arrays[name], 0, 2**31, name)
    arrays["split_feature"] = whole(arrays["split_feature"], 0, features, "split_feature")
    arrays["decision_type"] = whole(arrays["decision_type"], 0, 11, "decision_type")
    if not np.isin(arrays["decision_type"], DECISIONS).all():
        raise ValueError("decision_type has one that is not known")
    for name in ("left_child", "right_child"):
        arrays[name] = whole(arrays[name], -leaves, leaves - 1, name)
    # Leaves, which are -1, -2, ..., come behind the inner nodes.
    left, right = (
        np.where(arrays[name] < 0, leaves - 2 - arrays[name], arrays[name])
        for name in ("left_child", "right_child")
    )
    parents_of(left, right, 2 * leaves - 1)
    for name in ("threshold", "leaf_value"):
        finite(arrays[name], LARGEST_DOUBLE, name)
    (shrinkage,) = finite(_array(given["shrinkage"], 1, "shrinkage"), LARGEST_SCORE, "shrinkage")
    written = {
        "num_leaves": str(leaves),
        "num_cat": "0",
        **{name: _written(array) for name, array in arrays.items()},
        "is_linear": "0",
        "shrinkage": f"{shrinkage:.17g}",
    }
    said = "".join(f"{name}={written[name]}\n" for name in TREE)
    return f"Tree={place}\n{said}\n\n", float(np.abs(arrays["leaf_value"]).max())


def _info(text: str) -> str:
    """What is said of a feature."""
    ends = INFO.fullmatch(text)
    if ends is None:
        raise ValueError(f"feature_infos has {text!r:.40}")
    if ends[1] is None:
        return text
    numbers = np.array([float(ends[1]), float(ends[2])])
    first, last = finite(numbers, LARGEST_DOUBLE, "feature_infos").tolist()
    return f"[{first:.17g}:{last:.17g}]"


def _fields(text: str, first: str, known: list[str] | tuple[str, ...]) -> dict[str, str]:
    """What lines "name=value" behind the first say, one for each name that is known."""
    # Before there is an object of every line.
    if not text.startswith(f"{first}\n") or text.count("\n") > len(known):
        raise ValueError(f"there are more lines than known, or {first!r} is not where it should be")
    made: dict[str, str] = {}
    for line in text.split("\n")[1:]:
        name, sign, value = line.partition("=")
        if not sign or name in made or name not in known:
            raise ValueError(f"the line {line!r:.40} is not known, or there twice")
        made[name] = value
    for name in known:
        if name not in made:
            raise ValueError(f"there is no {name}")
    return {name: made[name] for name in known}


def _array(text: str, length: int, name: str) -> Floats:
    """So many numbers with one space between two of them."""
    exact = name in ("leaf_value", "threshold", "shrinkage")
    if not (VALUES if exact else STATISTICS).fullmatch(text):
        raise ValueError(f"{name} has what is no number")
    numbers = numbers_in(text, " ")
    if len(numbers) != length:
        raise ValueError(f"{name} has {len(numbers)} numbers and not {length}")
    return numbers


def _written(array: Array) -> str:
    """With all digits, as LightGBM writes the numbers that predictions are made of."""
    if array.dtype == np.int64:
        return " ".join(map(str, array.tolist()))
    return " ".join(f"{each:.17g}" for each in array.tolist())


def _is(given: dict[str, str], name: str, word: str) -> None:
    if given[name] != word:
        raise ValueError(f"{name} is {given[name]!r:.40} and not {word!r:.40}")


def _count(text: str) -> int:
    if not COUNT.fullmatch(text):
        raise ValueError(f"{text!r:.40} is no count")
    return int(text)
