"""Changes to the files of a model: of one field, of fields together, or of bytes."""

import copy
import hashlib
import json
import random
from typing import Any

import numpy as np

MANIFEST = "manifest.json"
NUMBERS = [0, 1, -1, 2, 3, 7, -2, 255, 256, 65536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63, 10**9]
NUMBERS += [-(10**9), 10**30, 0.5, -0.5, 1e-300, 5e-324, 1e300, -1e300, 1e38, -1e38, 3.5e38, 1e-40]
NUMBERS += [1e30, 0.0, -0.0]
STRANGE = [
    None,
    True,
    False,
    "",
    "x",
    "1",
    "-1",
    "1e9",
    "NaN",
    "é",
    "\x1b[31m",
    [],
    {},
    [[]],
    [0],
    [1.5],
]
TOKENS = """nan inf -inf 1e999 1000000000 -1000000000 -1 0 1 2 3 -2 99 1e308 -1e308 0x10 x + 1e30
    2147483647 2147483648 -2147483648""".split()
TOKENS += ["", "1 2"]


def sealed(rng: random.Random, files: dict[str, bytes]) -> dict[str, bytes]:
    """Files with a manifest that is true of them; of a few, the manifest is what was changed."""
    manifest = json.loads(files[MANIFEST])
    if rng.random() < 0.03:
        place = rng.choice([manifest, manifest["files"], *manifest["files"].values()])
        _change_at(rng, place)
        return {**files, MANIFEST: json.dumps(manifest).encode()}
    inside = {name: data for name, data in files.items() if name != MANIFEST}
    manifest["files"] = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in inside.items()
    }
    return {**inside, MANIFEST: json.dumps(manifest).encode()}


def changed(rng: random.Random, files: dict[str, bytes]) -> tuple[dict[str, bytes], str]:
    """Some changes to one or two of the files, and what they were."""
    files = dict(files)
    names = sorted(set(files) - {MANIFEST})
    # Trees are what hosts read.
    weights = [4 if name.startswith("trees") else 2 if "arrays" in name else 1 for name in names]
    said = []
    for name in rng.choices(names, weights, k=rng.choice([1, 1, 1, 2])):
        if rng.random() < 0.25:
            files[name], what = _bytes(rng, files[name])
        elif name == "arrays.safetensors":
            files[name], what = _arrays(rng, files[name])
        elif name == "trees.txt":
            files[name], what = _lines(rng, files[name])
        else:
            files[name], what = _json(rng, files[name], name)
        said.append(f"{name}: {what}")
    return files, "; ".join(said)


def _bytes(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """Bytes changed, put in, taken out, moved or cut off."""
    some, how = bytearray(data), rng.randrange(6)
    for _ in range(rng.choice([1, 1, 2, 3, 20])):
        place = rng.randrange(len(some) + 1) if some else 0
        match how:
            case 0 if place < len(some):
                some[place] = rng.randrange(256)
            case 1 if place < len(some):
                some[place] = rng.choice(b'0123456789-+.eE[]{},:" \n=')
            case 2:
                some[place:place] = rng.randbytes(rng.choice([1, 2, 100]))
            case 3:
                del some[place : place + rng.choice([1, 2, 10, 100])]
            case 4:
                end = min(len(some), place + rng.randrange(1, 50))
                some[rng.randrange(len(some) + 1) :][:0] = some[place:end]
                some[place:place] = some[place:end] * rng.choice([1, 2, 50])
            case 5:
                del some[place:]
    return bytes(some), f"bytes {how}"


def _json(rng: random.Random, data: bytes, name: str) -> tuple[bytes, str]:
    """Values of JSON changed."""
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        return _bytes(rng, data)
    if not isinstance(given, dict) or rng.random() < 0.03:
        depth = rng.choice([20, 1000, 200_000])
        sign = rng.choice([("[", "]"), ('{"a":', "}")])
        return (sign[0] * depth + sign[1] * rng.choice([0, depth])).encode(), f"{depth} deep"
    if name == "trees.json" and rng.random() < 0.5:
        what = _of_trees(rng, given)
    else:
        what = " and ".join(_change_at(rng, given) for _ in range(rng.choice([1, 1, 2])))
    # Infinity and NaN as Python writes them are in none of the formats.
    return json.dumps(given, ensure_ascii=rng.random() < 0.5).encode("utf-8", "replace"), what


def _change_at(rng: random.Random, given: Any) -> str:
    """Something at a random place of a structure; places in small lists are found more often."""
    place, path = given, []
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            value = copy.deepcopy(rng.choice(NUMBERS + STRANGE))
            if isinstance(place, list):
                place.append(value)
            else:
                place["x"] = value
            return f"{path}: filled"
        key = rng.choice(keys)
        path.append(key)
        inner = place[key]
        if not isinstance(inner, (dict, list)) or rng.random() < 0.12:
            break
        place = inner
    match rng.randrange(9):
        case 0:
            del place[key]
            what = "deleted"
        case 1 if isinstance(place, dict):
            place[rng.choice(["x", "__class__", f"{key} "])] = copy.deepcopy(inner)
            what = "doubled under another name"
        case 1:
            place[key:key] = [copy.deepcopy(inner)] * rng.choice([1, 2, 1000])
            what = "doubled"
        case 2 if isinstance(inner, list):
            rng.shuffle(inner)
            what = "shuffled"
        case 3 if isinstance(place, dict) and len(place) > 1:
            place[key] = copy.deepcopy(place[rng.choice(keys)])
            what = "another's"
        case 4 if type(inner) in (int, float):
            place[key] = rng.choice([-inner, inner + 1, inner - 1, inner * 1e9, float(inner) / 3])
            what = f"{inner} to {place[key]}"
        case 5:
            place[key] = rng.choice(["x" * 10**6, [0] * 10**5, [[]] * 1000, {"a": {"b": {}}}])
            what = "large"
        case _:
            place[key] = copy.deepcopy(rng.choice(rng.choice([NUMBERS, STRANGE])))
            # A count in quotes is what XGBoost has.
            if isinstance(inner, str) and rng.random() < 0.6:
                place[key] = str(rng.choice(NUMBERS))
            what = f"{inner!r:.30} to {place[key]!r:.30}"
    return f"{path}: {what}"


def _of_trees(rng: random.Random, given: Any) -> str:
    """Changes that fit together better, as someone who knows XGBoost would make them."""
    try:
        learner = given["learner"]
        model = learner["gradient_booster"]["model"]
        tree = rng.choice(model["trees"])
        nodes = len(tree["left_children"])
        node = rng.randrange(nodes)
        leaves = [k for k in range(nodes) if tree["left_children"][k] == -1]
        inner = [k for k in range(nodes) if tree["left_children"][k] != -1]
        match rng.randrange(12):
            case 0:
                count = str(rng.choice([0, 1, 2, 5, 1000, 10**9]))
                learner["learner_model_param"]["num_class"] = count
                if "softmax_multiclass_param" in learner["objective"]:
                    learner["objective"]["softmax_multiclass_param"]["num_class"] = count
                return f"num_class {count}"
            case 1:
                count = str(rng.choice([0, 1, 5, 10**9]))
                learner["learner_model_param"]["num_feature"] = count
                for each in model["trees"]:
                    each["tree_param"]["num_feature"] = count
                return f"num_feature {count}"
            case 2:
                name = rng.choice(["left_children", "right_children"])
                child = rng.choice([0, node, nodes, nodes - 1, -2, 10**9, rng.randrange(nodes)])
                tree[name][node] = child
                if 0 <= child < nodes and rng.random() < 0.7:
                    tree["parents"][child] = node
                return f"{name}[{node}] = {child}"
            case 3:
                tree["split_indices"][node] = rng.choice([-1, 5, 99, 10**9, 2**31, 2**32 - 1])
                return f"split_indices of {node}"
            case 4:
                for name in ("base_weights", "split_conditions"):
                    tree[name] = [rng.choice([1e30, -1e38, 1e-45, 0.5, 3.0])] * nodes
                return "all conditions alike"
            case 5 if leaves:
                for leaf in leaves:
                    tree["split_conditions"][leaf] = rng.gauss(0, 10 ** rng.randrange(-3, 30))
                return "other leaves"
            case 6 if inner:
                for each in inner:
                    tree["split_conditions"][each] = rng.gauss(0, 1)
                    tree["default_left"][each] = rng.randrange(2)
                return "other conditions"
            case 7:
                learner["learner_model_param"]["base_score"] = rng.choice(
                    ["0", "1", "-1", "0.25", "[0.25]", "1e30", "nan", "[1e38,1,1,1]", "[]", "x"]
                )
                return "base_score"
            case 8:
                model["tree_info"] = [rng.choice([-1, 0, 1, 10**9]) for _ in model["tree_info"]]
                return "tree_info"
            case 9:
                # A tree that is one long branch.
                depth = rng.choice([100, 9_000, 20_000])
                _become_a_chain(tree, depth)
                return f"a chain of {depth}"
            case 10 if len(inner) > 1:
                # Two subtrees change places: another tree, and a good one.
                a, b = rng.sample(range(1, nodes), 2)
                _swap(tree, a, b)
                return f"{a} and {b} change places"
            case _:
                name = rng.choice(sorted(tree))
                if isinstance(tree[name], list):
                    tree[name] = (tree[name] * 2)[: rng.randrange(2 * len(tree[name]) + 1)]
                return f"length of {name}"
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        return f"none, for {error!r}"


def _become_a_chain(tree: Any, depth: int) -> None:
    count = 2 * depth + 1
    left, right, parents = [-1] * count, [-1] * count, [2**31 - 1] * count
    for k in range(depth):
        node = max(0, 2 * k)
        left[node], right[node] = 2 * k + 1, 2 * k + 2
        parents[2 * k + 1] = parents[2 * k + 2] = node
    tree |= {"left_children": left, "right_children": right, "parents": parents}
    for name in ("split_indices", "split_type", "default_left"):
        tree[name] = [0] * count
    for name in ("base_weights", "loss_changes", "sum_hessian", "split_conditions"):
        tree[name] = [0.25] * count
    tree["tree_param"]["num_nodes"] = str(count)


def _swap(tree: Any, a: int, b: int) -> None:
    """Every link to a becomes one to b, and the other way round."""
    for name in ("left_children", "right_children"):
        tree[name] = [{a: b, b: a}.get(each, each) for each in tree[name]]
    tree["parents"][a], tree["parents"][b] = tree["parents"][b], tree["parents"][a]


def _lines(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """Lines and numbers of LightGBM's text changed, with sizes that fit or do not."""
    lines = data.decode("utf-8", "replace").split("\n")
    said = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        place = rng.randrange(len(lines))
        name, sign, value = lines[place].partition("=")
        parts = value.split(" ")
        how = rng.randrange(11)
        match how:
            case 0:
                del lines[place]
            case 1:
                lines.insert(rng.randrange(len(lines) + 1), lines[place])
            case 2 if sign:
                lines[place] = f"{rng.choice(['x', name + '2', 'average_output'])}={value}"
            case 3 if sign:
                lines[place] = f"{name}={' '.join((parts * 2)[: rng.randrange(2 * len(parts))])}"
            case 4 if sign:
                rng.shuffle(parts)
                lines[place] = f"{name}={' '.join(parts)}"
            case 5 if "child" in name or name == "leaf_value":
                k = rng.randrange(len(parts))
                parts[k] = rng.choice([str(k), parts[0], str(-len(parts) - 2), str(len(parts))])
                lines[place] = f"{name}={' '.join(parts)}"
            case 6:
                lines[place] = rng.choice(
                    ["", "average_output", "Tree=0", "end of trees", "x" * 10**5]
                )
            case 7:
                for k, line in enumerate(lines):
                    if line.startswith(("num_class=", "num_tree_per_iteration=")):
                        lines[k] = line.partition("=")[0] + f"={rng.choice(TOKENS)}"
            case 8:
                found = [k for k, line in enumerate(lines) if line.startswith(("leaf_v", "thres"))]
                k = rng.choice(found or [place])
                count = lines[k].count(" ") + 1
                numbers = " ".join(
                    repr(rng.gauss(0, 10 ** rng.randrange(-3, 20))) for _ in range(count)
                )
                lines[k] = f"{lines[k].partition('=')[0]}={numbers}"
                place = k
            case _ if sign:
                parts[rng.randrange(len(parts))] = rng.choice(TOKENS)
                lines[place] = f"{name}={' '.join(parts)}"
        said.append(f"line {place} {name[:20]} {how}")
        if not lines:
            break
    text = "\n".join(lines)
    if rng.random() < 0.8:
        text = _sized(text)
    return text.encode("utf-8", "replace"), "; ".join(said)


def _sized(text: str) -> str:
    """`tree_sizes` as they are."""
    head, *trees = text.split("end of trees")[0].split("Tree=")
    sizes = " ".join(str(len(f"Tree={each}".encode())) for each in trees)
    lines = [
        f"tree_sizes={sizes}" if each.startswith("tree_sizes=") else each
        for each in head.split("\n")
    ]
    return "\n".join(lines) + text[len(head) :]


def _arrays(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """Arrays with other numbers, shapes, names and types."""
    from safetensors import SafetensorError
    from safetensors.numpy import load, save

    try:
        arrays = load(data)
    except (SafetensorError, ValueError, KeyError):
        return _bytes(rng, data)
    if not arrays:
        return _bytes(rng, data)
    name = rng.choice(sorted(arrays))
    array = arrays[name].copy()
    how = rng.randrange(9)
    match how:
        case 0 if array.size:
            array.flat[rng.randrange(array.size)] = rng.choice([np.nan, np.inf, -np.inf])
        case 1:
            array = array * rng.choice([1e300, 1e-300, 1e150, 0.0, -1.0, 2.0])
        case 2:
            array = array.astype(rng.choice(["float32", "float16", "int64", "uint8", "bool"]))
        case 3:
            array = np.concatenate([array, array])[: rng.randrange(2 * len(array) + 1)]
        case 4:
            array = array.reshape(-1) if rng.random() < 0.5 else array[None]
        case 5:
            del arrays[name]
            name = rng.choice(["x", "coef", "hidden"])
        case 6:
            array = array.T.copy()
        case 7 if array.size:
            array.flat[rng.randrange(array.size)] = rng.choice([1e308, -1e308, 5e-324, 1.5])
        case 8:
            array = np.zeros((rng.choice([0, 1, 1000]), rng.choice([0, 1, 1000])))
    return save({**arrays, name: np.ascontiguousarray(array)}), f"{name} {how}"
