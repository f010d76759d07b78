"""A fitted model in a folder of its own: safe to load from anyone, and never half there.

    manifest.json        format, version, and the size and SHA-256 of every other file
    manifest.sig         of the manifest, where somebody signed it
    model.json           method, parameters, classes, where it comes from
    columns.json         how columns become features
    columns.safetensors  arrays of columns of free text, if there are some
    arrays.safetensors   the estimator's arrays; trees.json or trees.txt of boosted trees instead

What an estimator is made of its family in `MODELS` says. Nothing in the folder is code, and nothing
is unpickled. Trees are checked and written anew before their host sees them. The sums tell damage
from what was written; whoever changes a file can change the manifest too, so where a model comes
from only a signature tells.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.bad_input import BadInput
from hitrate_lab.models.family import State
from hitrate_lab.models.methods import MODELS
from hitrate_lab.models.saved import About, SavedModel
from hitrate_lab.models.signatures import SIGNATURE, check_signature, private_key, public_key
from hitrate_lab.tables import Columns

Array = NDArray[Any]

FORMAT, VERSION = "hitrate model", 1
MANIFEST, ABOUT, COLUMNS, OF_COLUMNS, ARRAYS = (
    "manifest.json",
    "model.json",
    "columns.json",
    "columns.safetensors",
    "arrays.safetensors",
)
# No file of a model is larger; nobody should have to read more to find out that it is none.
LARGEST, LARGEST_MANIFEST = 2**31, 2**16


def save_model(
    folder: str | Path,
    model: SavedModel,
    *,
    overwrite: bool = False,
    sign_key: str | Path | None = None,
) -> None:
    """Write a model into a new folder, complete or not at all.

    Parameters
    ----------
    folder : str or Path
    model : SavedModel
    overwrite : bool
        Whether a model that is there already is replaced. Any other folder or file never is.
    sign_key : str or Path, optional
        A file with a private key of Ed25519, to sign the model with.
    """
    # In full, as "." has no name.
    folder = Path(os.path.abspath(folder))
    may_be_saved(folder, overwrite=overwrite)
    key = None if sign_key is None else private_key(sign_key)
    files = _files(model)
    listing = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    }
    files[MANIFEST] = _json({"format": FORMAT, "version": VERSION, "files": listing})
    if key is not None:
        files[SIGNATURE] = key.sign(files[MANIFEST])
    unique = uuid.uuid4().hex[:12]
    new, old = (folder.with_name(f".{folder.name}.{word}-{unique}") for word in ("new", "old"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        new.mkdir()
        for name, data in files.items():
            with (new / name).open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        _sync(new)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        _sync(folder.parent)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written ({error.strerror or error})") from None
    finally:
        # Whatever came in between, Ctrl-C too: one of the two models is there.
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def load_model(folder: str | Path, *, verify_key: str | Path | None = None) -> SavedModel:
    """Read a model; `BadInput` if anything about its folder is not as it was written.

    Parameters
    ----------
    folder : str or Path
    verify_key : str or Path, optional
        A file with a public key of Ed25519: a model that it has not signed is refused.

    Returns
    -------
    SavedModel
    """
    folder = Path(folder)
    files = _checked_files(folder, verify_key)
    try:
        about, kind, settings, transposed = _about(_parsed(files.pop(ABOUT), ABOUT))
        of_columns = _arrays(files, OF_COLUMNS, [])
        columns = Columns.from_json(_parsed(files.pop(COLUMNS), COLUMNS), of_columns)
        arrays = _arrays(files, ARRAYS, transposed)
        state = State(kind, settings, arrays, files)
        estimator = estimator_from(state, columns.width, len(about.classes))
    except BadInput as error:
        raise BadInput(f"{folder}: {error}") from None
    return SavedModel(columns, estimator, about)


def _files(model: SavedModel) -> dict[str, bytes]:
    """Names and contents of all files but the manifest."""
    from safetensors.numpy import save

    state = state_of(model.estimator)
    # Sums of products depend on the order in memory, so that it is kept.
    transposed = [
        name
        for name, each in state.arrays.items()
        if each.ndim == 2 and each.strides[0] < each.strides[1]
    ]
    arrays = {
        name: np.ascontiguousarray(each.T if name in transposed else each, np.float64)
        for name, each in state.arrays.items()
    }
    estimator = {"kind": state.kind, "settings": state.settings, "transposed": transposed}
    files = {
        ABOUT: _json({**asdict(model.about), "estimator": estimator}),
        COLUMNS: _json(model.columns.to_json()),
        **state.files,
    }
    if of_columns := model.columns.arrays:
        files[OF_COLUMNS] = save(of_columns)
    return files | ({ARRAYS: save(arrays)} if arrays else {})


def may_be_saved(folder: str | Path, *, overwrite: bool = False) -> None:
    """Refuse a folder that `save_model` would not write to, before a long fit.

    Parameters
    ----------
    folder : str or Path
    overwrite : bool
        As for `save_model`.
    """
    folder = Path(os.path.abspath(folder))
    if folder.is_symlink():
        raise BadInput(f"{folder} is a symbolic link; name a folder")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise BadInput(f"{folder} is a file; name a new folder")
    if not any(folder.iterdir()):
        return
    try:
        _checked_files(folder)
    except BadInput as error:
        raise BadInput(f"{folder} is there and will not be written over ({error})") from None
    if not overwrite:
        raise BadInput(
            f"{folder} has a model already; say that it may be overwritten (--overwrite)"
        )


def _checked_files(folder: Path, verify_key: str | Path | None = None) -> dict[str, bytes]:
    """Contents of all files but the manifest, each as the manifest says."""
    if not folder.exists():
        raise BadInput(f"{folder}: there is no such folder")
    if not (folder.is_dir() and (folder / MANIFEST).is_file()):
        raise BadInput(f"{folder} is not a model's folder: it has no {MANIFEST}")
    found = sorted(entry.name for entry in folder.iterdir())
    for name in found:
        if (folder / name).is_symlink() or not (folder / name).is_file():
            raise BadInput(f"{folder}: {name!r:.60} is not a plain file")
    written = _read(folder / MANIFEST)
    if verify_key is not None:
        check_signature(folder, written, public_key(verify_key))
    manifest = _parsed(written, f"{folder}: {MANIFEST}")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BadInput(f"{folder} is not a model's folder: {MANIFEST} is not one of hitrate's")
    version = manifest.get("version")
    if type(version) is not int or version != VERSION:
        raise BadInput(
            f"{folder} has version {version!r:.40} of the format; this hitrate reads {VERSION}"
        )
    listing = manifest.get("files")
    if not isinstance(listing, dict) or not {ABOUT, COLUMNS} <= set(listing):
        raise BadInput(f"{folder}: {MANIFEST} does not list the files of a model")
    for name in sorted(set(listing) - _possible_files()):
        raise BadInput(f"{folder}: {MANIFEST} lists {name!r:.60}, which no model has")
    for name in sorted(set(listing) - set(found)):
        raise BadInput(f"{folder}: the file {name!r:.60} is missing")
    for name in sorted(set(found) - set(listing) - {MANIFEST, SIGNATURE}):
        raise BadInput(f"{folder}: the file {name!r:.60} does not belong to the model")
    files = {}
    for name, said in listing.items():
        size = said.get("bytes", -1) if isinstance(said, dict) else -1
        data = _read(folder / name, size)
        if {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} != said:
            raise BadInput(f"{folder}: the file {name!r:.60} was changed after it was written")
        files[name] = data
    return files


def _possible_files() -> set[str]:
    """Names of all files that some model has, but for the manifest."""
    return {
        ABOUT,
        COLUMNS,
        OF_COLUMNS,
        ARRAYS,
        *(name for each in MODELS.values() for name in each.files),
    }


def _read(path: Path, said: Any = None) -> bytes:
    """A file's bytes; none if it has another size than said, which is seen before they are read."""
    # A link that takes the place of a file now is not followed either.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > (LARGEST_MANIFEST if said is None else LARGEST):
                raise BadInput(f"{path} is too large for a model's file")
            return file.read() if said in (None, size) else b""
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from None


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def _parsed(data: bytes, name: str) -> Any:
    """JSON without NaN and infinity, which it does not have."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        return json.loads(data.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):
        raise BadInput(f"{name} is not JSON") from None


def _about(given: Any) -> tuple[About, str, dict[str, Any], list[str]]:
    """What model.json says, checked."""
    try:
        estimator = given.pop("estimator")
        kind, settings, transposed = (estimator[key] for key in ("kind", "settings", "transposed"))
        about = About(**{**given, "classes": tuple(given["classes"])})
        classes = about.classes
        words = (about.method, about.table, about.target, about.hitrate, kind, *transposed)
        good = (
            len(classes) >= 2
            and type(classes[0]) in (str, int, bool)
            and all(type(each) is type(classes[0]) for each in classes)
            and len(set(classes)) == len(classes)
            and all(isinstance(word, str) for word in words)
            and isinstance(settings, dict)
            and isinstance(about.parameters, dict)
            and type(about.rows) is int
            and 0 <= about.rows < 2**63
            and type(about.seed) is int
            and about.seed >= 0
            and (about.accuracy is None or type(about.accuracy) in (int, float))
            and 0 <= (about.accuracy or 0) <= 1
            and (type(classes[0]) is not int or all(abs(each) < 2**63 for each in classes))
        )
        # Half a character cannot be written into any file.
        "".join([*words, *(each for each in classes if isinstance(each, str))]).encode()
    except (AttributeError, KeyError, TypeError, UnicodeEncodeError):
        good = False
    if not good:
        raise BadInput(f"{ABOUT} does not describe a model")
    return about, kind, settings, list(transposed)


def _arrays(files: dict[str, bytes], name: str, transposed: list[str]) -> dict[str, Array]:
    """The arrays of a file, which is taken out; none if it is not there."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if name not in files:
        return {}
    try:
        arrays = load(files.pop(name))
    except (SafetensorError, KeyError, TypeError, ValueError):
        raise BadInput(f"{name} cannot be read") from None
    return {word: each.T if word in transposed else each for word, each in arrays.items()}


def state_of(estimator: Any) -> State:
    """The state of an estimator that was fitted to classes 0, 1, ...; some family knows it."""
    for family in MODELS.values():
        if (state := family.state_of(estimator)) is not None:
            return state
    raise BadInput(f"a {type(estimator).__name__} cannot be saved")


def estimator_from(state: State, features: int, classes: int) -> Any:
    """An estimator that predicts what the one behind a state did.

    Parameters
    ----------
    state : State
    features, classes : int
        F and C, that arrays and trees must agree with.
    """
    family = next((each for each in MODELS.values() if state.kind in each.kinds), None)
    if family is None:
        raise BadInput(
            f"the model is of a kind that this version does not know: {state.kind!r:.40}"
        )
    for name, array in state.arrays.items():
        if array.dtype != np.float64 or not np.isfinite(array).all():
            raise BadInput(f"the model's array {name!r:.40} holds what is no finite number")
    try:
        estimator = family.restore(state, features, classes)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"the model's state is not one of hitrate's ({error!r})") from None
    estimator.classes_ = np.arange(classes)
    estimator.n_features_in_ = features
    return estimator


def _sync(folder: Path) -> None:
    """Make the names in a folder last, where the system can."""
    if os.name != "nt":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
