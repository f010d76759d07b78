"""Trees from someone who means harm are refused before their host sees them, and others are not."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_model_folder import HOSTS, fitted

from hitrate_lab.bad_input import BadInput
from hitrate_lab.models.boosted.estimator import TREE_LOSSES, BoostedTrees
from hitrate_lab.models.boosted.lightgbm_trees import checked_lightgbm
from hitrate_lab.models.boosted.number_json import read_json
from hitrate_lab.models.boosted.tree_arrays import parents_of
from hitrate_lab.models.boosted.xgboost_trees import checked_xgboost
from hitrate_lab.models.folder import state_of

# Features and classes of the table, one of more than two.
SIZES = {"breast-cancer": (30, 2), "car": (21, 4)}


def trees_of(name, host, loss="cross_entropy"):
    """The text that a host writes itself."""
    model = fitted(name, host, loss)[0].estimator.model_
    if host == "xgboost":
        return bytes(model.get_booster().save_raw("json"))
    return model.booster_.model_to_string().encode()


def checked(host, text, sizes, loss="cross_entropy"):
    if host == "xgboost":
        return checked_xgboost(text, *sizes)
    return checked_lightgbm(text, *sizes, own=loss == "cross_entropy")


def read_by_host(host, text):
    """What the host makes of a text, as it writes that, without what it remembers of fits."""
    if host == "xgboost":
        from xgboost import Booster

        return bytes(Booster(model_file=bytearray(text)).save_raw("json")).decode()
    from lightgbm import Booster

    text = Booster(model_str=text.decode()).model_to_string()
    return text.split("\nparameters:")[0].split("\npandas_categorical")[0]


@pytest.mark.parametrize("loss", TREE_LOSSES[:3])
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("host", HOSTS)
def test_a_host_reads_the_checked_text_as_its_own_bit_for_bit(host, name, loss):
    own = trees_of(name, host, loss)
    text = checked(host, own, SIZES[name], loss)
    assert text != own
    assert read_by_host(host, own) == read_by_host(host, text)
    assert checked(host, text, SIZES[name], loss) == text


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("classes", [2, 3])
def test_trees_without_a_split_are_trees(host, classes):
    pytest.importorskip(host)
    rng = np.random.default_rng(0)
    y = np.arange(12) % classes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = BoostedTrees(host, rounds=2).fit(np.zeros((12, 3)), y)
    files = state_of(made).files.values()
    for text in files:
        assert checked(host, text, (3, classes)) == text
    x = rng.normal(size=(5, 3))
    assert np.isfinite(made.predict_proba(x)).all()


def altered(text, *path, value):
    """JSON with another value in one place."""
    whole = json.loads(text)
    place = whole["learner"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(whole).encode()


MODEL = ("gradient_booster", "model")
TREE = (*MODEL, "trees", 0)
SIZE = "learner_model_param"


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ((*MODEL, "tree_info", 0), -1, "tree_info"),
        ((*MODEL, "tree_info", 0), 10**9, "tree_info"),
        ((*MODEL, "tree_info"), [], "tree_info"),
        ((*MODEL, "iteration_indptr", 1), 3, "iteration_indptr"),
        ((*MODEL, "gbtree_model_param", "num_parallel_tree"), "2", "num_parallel_tree"),
        ((*MODEL, "gbtree_model_param", "num_trees"), "1000000000", "num_trees"),
        ((*MODEL, "trees"), [], "no trees"),
        ((*MODEL, "cats", "enc"), [1], "enc"),
        ((*MODEL, "more"), 1, "'more' is not known"),
        ((*TREE, "left_children", 0), 10**9, "left_children has 1e+09"),
        ((*TREE, "left_children", 0), 0, "each the child of one other"),
        ((*TREE, "left_children", 0), 2, "each the child of one other"),
        ((*TREE, "left_children", 0), -1, "has one child"),
        ((*TREE, "left_children", 0), 1.5, "left_children has 1.5"),
        ((*TREE, "parents", 1), 2, "parents"),
        ((*TREE, "split_indices", 0), 10**9, "split_indices has 1e+09"),
        ((*TREE, "split_indices", 0), 21, "split_indices has 21"),
        ((*TREE, "split_indices", 0), -1, "split_indices has -1"),
        ((*TREE, "split_type", 0), 1, "split_type"),
        ((*TREE, "split_conditions", 0), 1e39, "split_conditions"),
        ((*TREE, "split_conditions"), [0.0], "split_conditions"),
        ((*TREE, "categories"), [0], "categories"),
        ((*TREE, "id"), 1, "another number"),
        ((*TREE, "tree_param", "num_nodes"), "100000000", "no list of 100000000"),
        ((*TREE, "tree_param", "num_nodes"), "-1", "no count"),
        ((*TREE, "tree_param", "num_deleted"), "1", "num_deleted"),
        ((*TREE, "tree_param", "size_leaf_vector"), "4", "size_leaf_vector"),
        ((SIZE, "num_class"), "1000000000", "no count"),
        ((SIZE, "num_class"), "5", "features and classes"),
        ((SIZE, "num_feature"), "20", "features and classes"),
        ((SIZE, "num_target"), "4", "num_target"),
        ((SIZE, "base_score"), "[1,1]", "base_score"),
        ((SIZE, "base_score"), "NaN", "base_score"),
        (("objective", "name"), "rank:ndcg", "name is"),
        (("objective", "softmax_multiclass_param", "num_class"), "1000000000", "num_class"),
        (("attributes",), {"x": "y"}, "'x' is not known"),
        (("gradient_booster", "name"), "dart", "name is 'dart'"),
        (("feature_names",), ["x"], "cannot be used"),
    ],
)  # fmt: skip
def test_changes_of_xgboost_trees_are_refused(path, value, complaint):
    text = altered(trees_of("car", "xgboost"), *path, value=value)
    with pytest.raises(BadInput) as found:
        checked("xgboost", text, SIZES["car"])
    assert complaint in str(found.value)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (b"num_tree_per_iteration=4", b"num_tree_per_iteration=0", "num_tree_per_iteration"),
        (b"num_class=4", b"num_class=1000000000", "no count"),
        (b"num_class=4", b"num_class=3", "features and classes"),
        (b"max_feature_idx=20", b"max_feature_idx=21", "features and classes"),
        (b"max_feature_idx=20", b"max_feature_idx=-1", "no count"),
        (b"multiclass num_class:4", b"multiclass num_class:9", "objective"),
        (b"multiclass num_class:4", b"lambdarank", "objective"),
        (b"feature_names=Column_0 ", b"feature_names=", "feature_names"),
        (b"feature_infos=[", b"feature_infos=0:1:2 [", "feature_infos"),
        (b"tree_sizes=", b"tree_sizes=1", "tree_sizes"),
        (b"tree_sizes=", b"tree_sizes=-1 ", "tree_sizes"),
        (b"label_index=0", b"average_output", "average_output"),
        (b"num_cat=0", b"num_cat=1", "num_cat"),
        (b"is_linear=0", b"is_linear=1", "is_linear"),
        (b"num_leaves=", b"num_leaves=9", "numbers and not"),
        (b"left_child=1 ", b"left_child=0 ", "each the child of one other"),
        (b"left_child=1 ", b"left_child=9999 ", "left_child has 9999"),
        (b"left_child=1 ", b"left_child=-9999 ", "left_child has -9999"),
        (b"split_feature=", b"split_feature=9", "split_feature has 9"),
        (b"decision_type=2", b"decision_type=1", "decision_type"),
        (b"leaf_value=", b"leaf_value=nan ", "no number"),
        (b"leaf_value=", b"leaf_value=1e999 ", "numbers and not"),
        (b"leaf_value=", b"leaf_values=", "not known"),
        (b"shrinkage=0.1", b"shrinkage=inf", "no number"),
        (b"Tree=1\n", b"Tree=2\n", "is not where"),
        (b"[0:1]", b"[0:1e999]", "feature_infos"),
        (b"tree\n", b"tree\n" + b"a=1\n" * 1000, "more lines"),
        (b"num_cat=0\n", b"num_cat=0\n" + b"a=1\n" * 1000, "more lines"),
    ],
)
def test_changes_of_lightgbm_trees_are_refused(old, new, complaint):
    text = trees_of("car", "lightgbm")
    assert old in text
    text = text.replace(old, new, 1)
    if not old.startswith(b"tree_sizes"):
        text = with_true_sizes(text)
    with pytest.raises(BadInput) as found:
        checked("lightgbm", text, SIZES["car"])
    assert complaint in str(found.value)


def with_true_sizes(text):
    head, *trees = text.split(b"end of trees")[0].split(b"Tree=")
    sizes = b" ".join(b"%d" % len(b"Tree=" + each) for each in trees)
    lines = [
        b"tree_sizes=" + sizes if line.startswith(b"tree_sizes=") else line
        for line in head.split(b"\n")
    ]
    return b"\n".join(lines) + text[len(head) :]


def test_leaves_that_add_up_to_infinity_are_refused():
    text = altered(trees_of("car", "xgboost"), *TREE, "split_conditions", -1, value=1e38)
    with pytest.raises(BadInput, match="the sum of the leaves has 1e"):
        checked("xgboost", text, SIZES["car"])


@pytest.mark.parametrize("depth", [20, 200_000])
@pytest.mark.parametrize("sign", ['[{"a":', '{"a":'])
def test_deep_json_is_refused(sign, depth):
    with pytest.raises(ValueError, match="too deep"):
        read_json(sign * depth)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1,", "[1 2]", "[1,,2]", "[1,]", "[--1]", "[1]x", '{"a":1,"a":1}', '{"a" 1}', "tru",
     '{"a":"\\u0041"}', "[true]", "[null]", "[0x10]", "[1e]", "[i]", "[nana]", "-", "NaN",
     "[+1]", "[1.]", "[.5]", "[01]", "[-01.5]", "[nan]", "[1,-.5]", "[1.e5]", "[1, inf]", "[1NaN]",
     "01", "[-NaN]", "[[1], [2]]", '["a"]', "[{}, 1]"],
)  # fmt: skip
def test_what_is_no_json_of_numbers_is_refused(text):
    with pytest.raises((ValueError, TypeError)):
        read_json(text)


def test_many_parts_are_refused_before_they_take_memory():
    with pytest.raises(ValueError, match="too many parts"):
        read_json("[" + "{}," * 100_000 + "{}]")


JSON = st.recursive(
    st.one_of(
        st.floats(allow_nan=False, allow_infinity=False),
        st.text("abc xyz_", max_size=5),
        st.lists(st.floats(allow_nan=False) | st.integers(-(2**53), 2**53), max_size=5),
    ),
    lambda inner: st.one_of(
        st.dictionaries(st.text("abcdef", max_size=3), inner, max_size=4),
        st.lists(st.dictionaries(st.text("ab", max_size=2), inner, max_size=3), min_size=1),
    ),
    max_leaves=12,
)


@given(st.lists(st.text("0123456789+-.eENa", min_size=1, max_size=6), min_size=1, max_size=3))
def test_numbers_are_those_of_json(words):
    text = "[" + ",".join(words) + "]"
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises((ValueError, TypeError)):
            read_json(text)
    else:
        np.testing.assert_array_equal(read_json(text), np.array(expected, np.float64))


@given(JSON, st.sampled_from([None, 1]))
def test_it_reads_what_python_reads(value, indent):
    def plain(given):
        if isinstance(given, dict):
            return {key: plain(each) for key, each in given.items()}
        if isinstance(given, (list, np.ndarray)):
            return [plain(each) for each in given]
        return given

    text = json.dumps(value, indent=indent)
    assert plain(read_json(text)) == plain(json.loads(text))


def shape_of(rng, leaves):
    """Children of a random tree, whose nodes have random numbers but for the root."""
    left, right, open_nodes, count = {}, {}, [0], 1
    for _ in range(leaves - 1):
        node = open_nodes.pop(rng.integers(len(open_nodes)))
        left[node], right[node] = count, count + 1
        open_nodes += [count, count + 1]
        count += 2
    new = np.concatenate([[0], 1 + rng.permutation(count - 1)])
    links = np.full((2, count), -1)
    for side, children in enumerate((left, right)):
        for node, child in children.items():
            links[side, new[node]] = new[child]
    return links


@pytest.mark.parametrize("seed", range(200))
def test_parents_are_found_of_trees_and_of_nothing_else(seed):
    """Against following every link from the root."""
    rng = np.random.default_rng(seed)
    links = shape_of(rng, rng.integers(1, 12))
    if seed % 2:
        for _ in range(rng.integers(1, 4)):
            links[rng.integers(2), rng.integers(links.shape[1])] = rng.integers(-1, links.shape[1])
    seen, waiting, parents, is_tree = set(), [0], {0: 0}, True
    while waiting and is_tree:
        node = waiting.pop()
        is_tree = node not in seen and (links[0, node] < 0) == (links[1, node] < 0)
        seen.add(node)
        for child in links[:, node][links[:, node] >= 0]:
            parents[child] = node
            waiting.append(child)
    is_tree = is_tree and len(seen) == links.shape[1]
    if is_tree:
        found = parents_of(*links, links.shape[1])
        assert found.tolist() == [parents[k] for k in range(links.shape[1])]
    else:
        with pytest.raises(ValueError, match="node"):
            parents_of(*links, links.shape[1])


def test_a_tree_may_be_deep_but_not_without_end():
    for depth, fits in ((9_000, True), (20_000, False)):
        left, right = np.full(2 * depth + 1, -1), np.full(2 * depth + 1, -1)
        left[: 2 * depth : 2] = np.arange(1, 2 * depth, 2)
        right[: 2 * depth : 2] = np.arange(2, 2 * depth + 1, 2)
        if fits:
            parents_of(left, right, 2 * depth + 1)
        else:
            with pytest.raises(ValueError, match="20000 deep"):
                parents_of(left, right, 2 * depth + 1)
