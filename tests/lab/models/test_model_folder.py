"""A model's folder gives the model back exactly, or refuses."""

import hashlib
import json
import os
import pickle
import shutil
import tracemalloc
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

import hitrate
from hitrate.recipes import RECIPES
from hitrate_lab.bad_input import BadInput
from hitrate_lab.models.folder import load_model, save_model
from hitrate_lab.models.methods import MODELS, methods
from hitrate_lab.models.saved import About, SavedModel
from hitrate_lab.tables import Columns, read_table

HOSTS = ("xgboost", "lightgbm")
METHODS = [
    (name, loss)
    for name, family in MODELS.items()
    for loss in family.losses()
    if loss not in RECIPES or loss in family.default_losses
]
# A few rounds are enough to be kept.
QUICK = {"mlp": {"max_iter": 2}, "xgboost": {"rounds": 4}, "lightgbm": {"rounds": 4}}


@cache
def fitted(name: str, model: str, loss: str) -> tuple[SavedModel, object]:
    """A model of every second row, and all features."""
    if model in HOSTS:
        pytest.importorskip(model)
    table = read_table(name)
    features, target = table.features.iloc[::2], table.target.iloc[::2]
    (method,) = methods([model], [loss])
    (parameters,) = method.candidates(1, len(target))
    columns = Columns().fit(features)
    estimator = method.build(parameters, 0).set_params(**QUICK.get(model, {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(columns.transform(features), np.searchsorted(table.classes, target))
    about = About(
        method.name,
        parameters,
        0,
        table.name,
        table.target_name,
        tuple(table.classes),
        len(target),
        0.875,
        hitrate.__version__,
    )
    return SavedModel(columns, estimator, about), table.features


@pytest.fixture
def folder(tmp_path):
    model, _ = fitted("car", "linear", "exact")
    save_model(tmp_path / "model", model)
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["breast-cancer", "car"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("losses", ["one", pytest.param("all", marks=pytest.mark.slow)])
def test_a_loaded_model_predicts_exactly_what_it_did(name, model, losses, tmp_path):
    for each, loss in METHODS:
        if each == model and (losses == "all" or loss == MODELS[model].default_losses[-1]):
            check_that_it_comes_back(name, model, loss, tmp_path / loss)


def check_that_it_comes_back(name, model, loss, folder):
    saved, features = fitted(name, model, loss)
    save_model(folder, saved)
    loaded = load_model(folder)
    assert loaded.about == saved.about and loaded.classes == read_table(name).classes
    np.testing.assert_array_equal(loaded.predict(features), saved.predict(features))
    found, expected = loaded.predict_proba(features), saved.predict_proba(features)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_a_loaded_model_is_saved_as_it_was(model, tmp_path):
    saved, _ = fitted("car", model, MODELS[model].default_losses[-1])
    save_model(tmp_path / "first", saved)
    save_model(tmp_path / "second", load_model(tmp_path / "first"))
    names = sorted(path.name for path in (tmp_path / "first").iterdir())
    for name in names:
        first, second = ((tmp_path / folder / name).read_bytes() for folder in ("first", "second"))
        assert first == second, name


def test_labels_keep_their_type(tmp_path):
    model, features = fitted("breast-cancer", "linear", "cross_entropy")
    for classes in ((False, True), (3, 10), ("no", "yes")):
        new = replace(model, about=replace(model.about, classes=classes))
        save_model(tmp_path / "model", new, overwrite=True)
        loaded = load_model(tmp_path / "model")
        assert loaded.classes == list(classes)
        assert [type(each) for each in loaded.classes] == [type(each) for each in classes]
        assert set(loaded.predict(features).tolist()) == set(classes)


def test_no_rows_give_no_predictions():
    model, features = fitted("car", "linear", "exact")
    assert model.predict(features.iloc[:0]).shape == (0,)
    assert model.predict_proba(features.iloc[:0]).shape == (0, 4)


def test_the_description_is_one_line(folder):
    text = load_model(folder).describe()
    assert len(text.splitlines()) == 1
    for part in ("linear/exact", "'class'", "'car'", "vgood", "864 rows", "87.5 %"):
        assert part in text


def test_the_folder_holds_plain_files_that_the_manifest_lists(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["format"], manifest["version"]) == ("hitrate model", 1)
    names = {"model.json", "columns.json", "arrays.safetensors"}
    assert set(manifest["files"]) == names
    assert {path.name for path in folder.iterdir()} == names | {"manifest.json"}
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    for name, said in manifest["files"].items():
        data = (folder / name).read_bytes()
        assert said == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def refused(folder) -> str:
    with pytest.raises(BadInput) as found:
        load_model(folder)
    text = str(found.value)
    assert len(text.splitlines()) == 1 and "model" in text
    return text


def rewritten(folder, name, data):
    """Change a file and the manifest with it, as someone who means harm can."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_what_is_no_model_is_refused(tmp_path):
    assert "no such folder" in refused(tmp_path / "model")
    (tmp_path / "model").mkdir()
    assert "no manifest.json" in refused(tmp_path / "model")
    (tmp_path / "model" / "manifest.json").write_text("{")
    assert "is not JSON" in refused(tmp_path / "model")
    (tmp_path / "model" / "manifest.json").write_text('{"format": "other"}')
    assert "not one of hitrate's" in refused(tmp_path / "model")
    (tmp_path / "file.model").write_text("")
    assert "not a model's folder" in refused(tmp_path / "file.model")


@pytest.mark.parametrize("version", [0, 2, "1", None, True])
def test_other_versions_are_refused(folder, version):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "version": version}))
    assert "of the format" in refused(folder)


def test_missing_additional_and_changed_files_are_refused(folder):
    data = (folder / "arrays.safetensors").read_bytes()
    changed = bytearray(data)
    changed[-1] ^= 1
    (folder / "arrays.safetensors").write_bytes(changed)
    assert "'arrays.safetensors' was changed" in refused(folder)
    (folder / "arrays.safetensors").unlink()
    assert "'arrays.safetensors' is missing" in refused(folder)
    (folder / "arrays.safetensors").write_bytes(data)
    load_model(folder)
    (folder / "more.txt").write_text("")
    assert "'more.txt' does not belong" in refused(folder)


def test_links_and_folders_inside_are_refused(folder, tmp_path):
    (folder / "inner").mkdir()
    assert "'inner' is not a plain file" in refused(folder)
    (folder / "inner").rmdir()
    outside = tmp_path / "outside.json"
    shutil.move(folder / "model.json", outside)
    (folder / "model.json").symlink_to(outside)
    assert "'model.json' is not a plain file" in refused(folder)


def test_a_manifest_cannot_name_files_elsewhere(folder, tmp_path):
    (tmp_path / "secret").write_text("x")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["../secret"] = {"bytes": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert "lists '../secret', which no model has" in refused(folder)


def test_a_manifest_cannot_name_other_files(folder):
    rewritten(folder, "setup.py", b"print()")
    assert "lists 'setup.py', which no model has" in refused(folder)


def test_a_file_of_another_size_is_not_read(folder):
    # A sparse file takes no room on a disk, but would in memory.
    os.truncate(folder / "arrays.safetensors", 10**8)
    tracemalloc.start()
    try:
        assert "'arrays.safetensors' was changed" in refused(folder)
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()
    (folder / "manifest.json").write_bytes(b" " * 10**6)
    assert "too large" in refused(folder)


@pytest.mark.parametrize(
    ("name", "array", "complaint"),
    [
        ("coef", np.zeros((4, 20)), "has the shape (4, 20) and not (4, 21)"),
        ("coef", np.zeros(84), "has the shape (84,)"),
        ("intercept", np.zeros(3), "has the shape (3,) and not (4,)"),
        ("intercept", np.full(4, np.nan), "no finite number"),
        ("intercept", np.array([0, 0, 0, np.inf]), "no finite number"),
        ("intercept", np.zeros(4, np.float32), "no finite number"),
        ("more", np.zeros(4), "has the arrays"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(folder, name, array, complaint):
    arrays = load((folder / "arrays.safetensors").read_bytes())
    about = json.loads((folder / "model.json").read_text())
    about["estimator"]["transposed"] = []
    rewritten(folder, "model.json", json.dumps(about).encode())
    rewritten(
        folder, "arrays.safetensors", save({**arrays, "coef": np.zeros((4, 21)), name: array})
    )
    assert complaint in refused(folder)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("arrays.safetensors", b""),
        ("arrays.safetensors", b"\xff" * 100),
        ("arrays.safetensors", pickle.dumps({"coef": 1})),
        ("columns.json", b"[]"),
        ("columns.json", b"NaN"),
        ("columns.json", b"\xff"),
        ("columns.json", b"[" * 100_000),
        ("model.json", b"{}"),
        ("model.json", b"null"),
    ],
)
def test_files_of_another_kind_are_refused(folder, name, data):
    rewritten(folder, name, data)
    refused(folder)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("classes",), ["a"]),
        (("classes",), ["a", "a", "b", "c"]),
        (("classes",), ["a", 1, "b", "c"]),
        (("classes",), [1.5, 2.5, 3.5, 4.5]),
        (("classes",), ["a", "b", "c"]),
        (("classes",), ["a", "b", "c", "\ud800"]),
        (("classes",), [0, 1, 2, 10**30]),
        (("target",), "\udfff"),
        pytest.param(("rows",), 10**400, id="huge rows"),
        (("rows",), -1),
        (("seed",), -1),
        pytest.param(("accuracy",), 10**400, id="huge accuracy"),
        (("accuracy",), 1.5),
        (("accuracy",), True),
        pytest.param(
            ("estimator", "settings", "calibration", "temperature"), 10**400, id="huge temperature"
        ),
        (("method",), None),
        (("rows",), "many"),
        (("unknown",), 1),
        (("estimator", "kind"), "pickle"),
        (("estimator", "settings"), {}),
        (("estimator", "settings", "calibration", "temperature"), 0.0),
        (("estimator", "settings", "calibration", "temperature"), "1"),
        (("estimator", "settings", "calibration", "lapse"), -0.5),
        (("estimator", "settings", "calibration", "noise"), "uniform"),
        (("estimator", "settings", "calibration", "extra"), 1),
    ],
)
def test_descriptions_that_make_no_sense_are_refused(folder, path, value):
    about = json.loads((folder / "model.json").read_text())
    place = about
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    rewritten(folder, "model.json", json.dumps(about).encode())
    refused(folder)


@pytest.mark.parametrize("host", HOSTS)
def test_trees_that_do_not_fit_are_refused(host, tmp_path):
    model, _ = fitted("car", host, "exact")
    other, _ = fitted("breast-cancer", host, "exact")
    save_model(tmp_path / "model", model)
    save_model(tmp_path / "other", other)
    (trees,) = (tmp_path / "model").glob("trees.*")
    rewritten(tmp_path / "model", trees.name, (tmp_path / "other" / trees.name).read_bytes())
    assert "features and classes" in refused(tmp_path / "model")
    rewritten(tmp_path / "model", trees.name, b"nothing")
    complaint = {"xgboost": "must begin with {", "lightgbm": "cannot be read"}[host]
    assert complaint in refused(tmp_path / "model")


@pytest.mark.parametrize("form", ["ubj", "json"])
def test_trees_of_xgboost_are_json(form, tmp_path):
    model, features = fitted("car", "xgboost", "exact")
    save_model(tmp_path / "model", model)
    trees = bytes(model.estimator.model_.get_booster().save_raw(form))
    rewritten(tmp_path / "model", "trees.json", trees)
    if form == "json":
        assert (load_model(tmp_path / "model").predict(features) == model.predict(features)).all()
    else:
        assert "trees.json is not JSON: it must begin with {" in refused(tmp_path / "model")


def test_columns_without_features_are_refused(folder):
    state = json.loads((folder / "columns.json").read_text())
    rewritten(folder, "columns.json", json.dumps({**state, "categories": []}).encode())
    assert "no feature" in refused(folder)


def test_nothing_but_a_model_is_written_over(folder, tmp_path):
    model, _ = fitted("car", "linear", "exact")
    other, _ = fitted("car", "linear", "cross_entropy")
    with pytest.raises(BadInput, match="has a model already"):
        save_model(folder, model)
    save_model(folder, other, overwrite=True)
    assert load_model(folder).about.method == "linear/cross_entropy"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    (folder / "my notes.txt").write_text("precious")
    with pytest.raises(BadInput, match=r"'my notes\.txt' does not belong"):
        save_model(folder, model, overwrite=True)
    assert (folder / "my notes.txt").read_text() == "precious"
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("")
    for path, complaint in (
        (foreign, "not be written over"),
        (foreign / "thesis.tex", "is a file"),
    ):
        with pytest.raises(BadInput, match=complaint):
            save_model(path, model, overwrite=True)
    assert (foreign / "thesis.tex").exists()
    (tmp_path / "link").symlink_to(foreign)
    with pytest.raises(BadInput, match="symbolic link"):
        save_model(tmp_path / "link", model, overwrite=True)


def test_an_empty_folder_and_missing_parents_are_fine(tmp_path):
    model, features = fitted("car", "linear", "exact")
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "a" / "b"):
        save_model(folder, model)
        assert (load_model(folder).predict(features) == model.predict(features)).all()


def test_a_write_that_fails_leaves_nothing_behind(folder, tmp_path, monkeypatch):
    model, _ = fitted("car", "linear", "cross_entropy")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for path, overwrite in ((folder, True), (tmp_path / "new", False)):
        with pytest.raises(BadInput, match="No space left"):
            save_model(path, model, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError, OSError])
@pytest.mark.parametrize("place", [1, 2])
def test_whatever_comes_between_leaves_the_old_model(folder, tmp_path, monkeypatch, error, place):
    model, _ = fitted("car", "linear", "cross_entropy")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    own, calls = Path.rename, []

    def rename(path, new):
        calls.append(path)
        if len(calls) == place:
            raise error
        return own(path, new)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(BadInput if error is OSError else error):
        save_model(folder, model, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_other_estimators_are_not_saved(tmp_path):
    model, _ = fitted("car", "linear", "exact")
    with pytest.raises(BadInput, match="a dict cannot be saved"):
        save_model(tmp_path / "model", replace(model, estimator={}))
    assert not (tmp_path / "model").exists()


def test_a_noise_whose_inverse_is_no_number_is_refused():
    from hitrate_lab.models.family import State, calibration_in

    def read(temperature):
        told = {"noise": "normal", "temperature": temperature, "lapse": 0.01}
        return calibration_in(State("any", {"calibration": told}))

    assert read(1e-300).temperature == 1e-300
    with pytest.raises(ValueError, match="temperature=5e-324"):
        read(5e-324)
