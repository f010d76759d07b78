import pytest
import torch

from hitrate_lab.training import checkpoint


def test_a_state_comes_back_bit_for_bit(tmp_path):
    shared = torch.randn(3)
    state = {
        "numbers": {0: {"step": torch.tensor(3.0), "buffer": shared}, 1: {"buffer": shared}},
        "list": [1, 0.1, True, None, "text", float("inf"), torch.arange(3)],
        "half": torch.randn(4, 2).bfloat16().T,
        "empty": torch.empty(0, 3),
    }
    checkpoint.save(tmp_path, 7, state)
    found = checkpoint.load(tmp_path)
    assert list(found) == list(state)
    assert list(found["numbers"]) == [0, 1]
    assert torch.equal(found["numbers"][1]["buffer"], shared)
    assert found["list"][:-1] == state["list"][:-1]
    assert torch.equal(found["half"], state["half"])
    assert found["half"].dtype == torch.bfloat16
    assert found["empty"].shape == (0, 3)


def test_nothing_is_there_at_first(tmp_path):
    assert checkpoint.load(tmp_path / "nowhere") is None


@pytest.mark.parametrize("call", ["whole_file", "write_whole"])
def test_a_save_that_is_cut_short_leaves_the_state_before(call, tmp_path, monkeypatch):
    checkpoint.save(tmp_path, 1, {"w": torch.ones(2)})

    def cut(*_):
        raise OSError("killed")

    monkeypatch.setattr(checkpoint, call, cut)
    with pytest.raises(OSError, match="killed"):
        checkpoint.save(tmp_path, 2, {"w": torch.zeros(2)})
    assert torch.equal(checkpoint.load(tmp_path)["w"], torch.ones(2))
    monkeypatch.undo()
    (tmp_path / ".tensors-2.safetensors.new-1").touch()
    checkpoint.save(tmp_path, 3, {"w": torch.full((2,), 3.0)})
    assert torch.equal(checkpoint.load(tmp_path)["w"], torch.full((2,), 3.0))
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == ["tensors-3.safetensors", "training.json"]


def test_what_it_cannot_hold_is_told(tmp_path):
    with pytest.raises(TypeError, match="got set"):
        checkpoint.save(tmp_path, 1, {"x": {1, 2}})
