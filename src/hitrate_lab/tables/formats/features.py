"""Files of a network's penultimate features: arrays with names, in .npz or .safetensors."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hitrate_lab.bad_input import BadInput, listed

# All that a file may have, and what it must.
NAMES = ("features", "target", "weight", "bias", "test_features", "test_target")
NEEDED = NAMES[:2]


@dataclass(frozen=True)
class FeatureFile:
    """Arguments of `hitrate.headroom`."""

    features: Any
    target: Any
    head: tuple[Any, Any] | None
    test: tuple[Any, Any] | None


def read_features(path: Path | str) -> FeatureFile:
    """Arrays features (N, F) and target (N,), and perhaps a head and test rows.

    Parameters
    ----------
    path : Path or str
        A .npz or .safetensors file with `features` and `target`; `weight` (C, F) and `bias` (C,)
        are the network's last layer, `test_features` and `test_target` rows that it was not
        trained with.

    Raises
    ------
    BadInput
        With the file and what is wrong there.
    """
    path = Path(path)
    if path.suffix not in (".npz", ".safetensors"):
        raise BadInput(f"{path}: needs to be a .npz or .safetensors file")
    try:
        arrays = _npz(path) if path.suffix == ".npz" else _safetensors(path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from error
    known = listed(NAMES)
    for name in NEEDED:
        if name not in arrays:
            raise BadInput(f"{path}: has no array {name!r}, but {listed(arrays) or 'nothing'}")
    for name in arrays:
        if name not in NAMES:
            raise BadInput(f"{path}: {name!r} is no array that is known; there are {known}")
    if "bias" in arrays and "weight" not in arrays:
        raise BadInput(f"{path}: has a bias but no weight")
    if ("test_features" in arrays) != ("test_target" in arrays):
        raise BadInput(f"{path}: test_features and test_target need one another")
    head = (arrays["weight"], arrays.get("bias")) if "weight" in arrays else None
    test = None
    if "test_features" in arrays:
        test = arrays["test_features"], arrays["test_target"]
    return FeatureFile(arrays["features"], arrays["target"], head, test)


def _npz(path: Path) -> dict[str, Any]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except (ValueError, zipfile.BadZipFile, EOFError, AttributeError) as error:
        raise BadInput(f"{path}: is no .npz file of plain arrays ({error})") from None


def _safetensors(path: Path) -> dict[str, Any]:
    import safetensors
    import safetensors.torch

    try:
        found: dict[str, Any] = safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise BadInput(f"{path}: is no .safetensors file ({error})") from None
    return found
