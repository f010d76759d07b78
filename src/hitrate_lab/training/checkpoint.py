"""The state of a training in a folder: numbers as JSON, tensors as safetensors, nothing pickled.

    training.json             the state, in which tensors are numbers, and their file's name
    tensors-120.safetensors   the tensors after 120 steps

The JSON is written last and replaces the former one at once, so that a process killed at any moment
leaves one state or the other. Files of tensors that it does not name are removed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from hitrate_lab.whole_file import whole_file, write_whole

NAME = "training.json"


def save(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Replace what the folder has."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    plain = _packed(state, tensors)
    file = f"tensors-{step}.safetensors"
    with whole_file(folder / file) as unfinished:
        save_file(tensors, unfinished)
    document = json.dumps({"tensors": file, "state": plain})
    write_whole(folder / NAME, document.encode())
    # Former tensors, and what a process that was killed had not finished.
    for other in (*folder.glob("tensors-*.safetensors"), *folder.glob(".*.new-*")):
        if other.name != file:
            other.unlink()


def load(folder: Path) -> dict[str, Any] | None:
    """What was saved last, on the CPU; None where nothing was."""
    from safetensors.torch import load_file

    try:
        document = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    tensors = load_file(folder / document["tensors"])
    state: dict[str, Any] = _unpacked(document["state"], tensors)
    return state


def _packed(value: Any, tensors: dict[str, Tensor]) -> Any:
    """As JSON. Keys of dictionaries may be numbers, so each is a list of pairs."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        # A copy of its own: tensors that share memory cannot be saved.
        tensors[name] = value.detach().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"pairs": [[key, _packed(each, tensors)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        return [_packed(each, tensors) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"a checkpoint holds tensors, numbers and text, got {type(value).__name__}")


def _unpacked(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        return {key: _unpacked(each, tensors) for key, each in value["pairs"]}
    if isinstance(value, list):
        return [_unpacked(each, tensors) for each in value]
    return value
