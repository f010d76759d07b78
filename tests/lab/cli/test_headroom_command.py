"""`hitrate headroom`: a file in, one plain sentence out."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import hitrate
from hitrate_lab.cli.app import app


def here(*words):
    return CliRunner().invoke(app, ["headroom", *map(str, words)])


def far(count=600):
    random = np.random.default_rng(0)
    x = random.standard_normal((count, 2)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    x[: count // 10], y[: count // 10] = [6.0, 0.0], 0
    return x, y


@pytest.fixture(params=[".npz", ".safetensors"])
def file(request, tmp_path):
    """A way to write arrays to a file of one kind."""

    def write(**arrays):
        path = tmp_path / f"features{request.param}"
        if request.param == ".npz":
            np.savez(path, **arrays)
        else:
            save_file({name: torch.from_numpy(each.copy()) for name, each in arrays.items()}, path)
        return path

    return write


def test_it_says_what_the_library_says(file, tmp_path):
    x, y = far()
    expected = hitrate.headroom(x, y, seed=1)
    shown = here(file(features=x, target=y), "--seed", 1)
    assert shown.exit_code == 0, shown.output
    assert expected.sentence in shown.stdout
    assert f"reachable {100 * expected.reachable:6.2f} %" in shown.stdout

    for name in ("head.npz", "head.safetensors"):
        out = tmp_path / "new" / name
        found = json.loads(
            here(file(features=x, target=y), "--seed", 1, "--out", out, "--json").stdout
        )
        assert found["headroom"] == pytest.approx(expected.headroom)
        assert found["sentence"] == expected.sentence and found["out"] == str(out)
        head = dict(np.load(out)) if name == "head.npz" else load_file(out)
        np.testing.assert_allclose(head["weight"], expected.weight)
        np.testing.assert_allclose(head["bias"], expected.bias)


def test_head_and_test_rows_may_be_in_the_file(file):
    x, y = far()
    random = np.random.default_rng(1)
    weight, bias = random.standard_normal((2, 2)), random.standard_normal(2)
    path = file(
        features=x, target=y, weight=weight, bias=bias, test_features=x[::2], test_target=y[::2]
    )
    found = json.loads(here(path, "--json").stdout)
    assert found["now"] == pytest.approx(((x @ weight.T + bias).argmax(1) == y).mean())
    assert found["has_test"] and found["held_out"] == 300


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"features": far()[0]}, "has no array 'target', but 'features'"),
        ({"features": far()[0], "target": far()[1], "wieght": far()[0]}, "'wieght' is no array"),
        ({"features": far()[0], "target": far()[1], "bias": far()[1]}, "a bias but no weight"),
        ({"features": far()[0], "target": far()[1], "test_target": far()[1]}, "need one another"),
        ({"features": far()[0], "target": far()[1][1:]}, "target must have shape (600,)"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(file, arrays, said):
    shown = here(file(**arrays))
    assert shown.exit_code == 2
    assert said in " ".join(shown.stderr.split()) and len(shown.stderr.splitlines()) == 1


def test_files_that_are_none_are_refused(tmp_path):
    for name in ("rows.csv", "missing.npz", "text.npz", "text.safetensors"):
        path = tmp_path / name
        if name != "missing.npz":
            path.write_text("nothing of use")
        shown = here(path)
        assert shown.exit_code == 2 and name in shown.stderr, shown.stderr
        assert len(shown.stderr.splitlines()) == 1
    objects = tmp_path / "objects.npz"
    np.savez(objects, features=np.array([{}], dtype=object))
    assert "no .npz file of plain arrays" in here(objects).stderr


def test_a_head_that_is_there_is_not_overwritten(file, tmp_path):
    out = tmp_path / "head.npz"
    out.write_text("mine")
    path = file(features=far()[0], target=far()[1])
    assert "is there already" in here(path, "--out", out).stderr
    assert out.read_text() == "mine"
    assert here(path, "--out", out, "--overwrite").exit_code == 0
    assert np.load(out)["weight"].shape == (2, 2)
    assert "needs to be a .safetensors or .npz" in here(path, "--out", tmp_path / "head.pt").stderr
