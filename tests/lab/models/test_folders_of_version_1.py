"""Folders that earlier releases wrote still load, and predict what they did."""

import json
from pathlib import Path

import numpy as np
import pytest

from hitrate_lab.models.folder import load_model, save_model
from hitrate_lab.tables import read_table

HOSTS = ("xgboost", "lightgbm")
KEPT = Path(__file__).parent / "folders_of_version_1"
# Probabilities of every 30th row of iris from the fourth on, by the code that wrote the folders.
EXPECTED = json.loads((KEPT / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_folder_predicts_what_it_did(name):
    if name.startswith(HOSTS):
        pytest.importorskip(name.split("-")[0])
    table = read_table("iris")
    found = load_model(KEPT / name).predict_proba(table.features.iloc[3::30])
    np.testing.assert_allclose(found, EXPECTED[name], rtol=1e-6, atol=1e-12)


# A host's own text may change with its version.
@pytest.mark.parametrize("name", [name for name in EXPECTED if not name.startswith(HOSTS)])
def test_a_folder_is_written_as_it_was(name, tmp_path):
    save_model(tmp_path / name, load_model(KEPT / name))
    for path in (KEPT / name).iterdir():
        assert (tmp_path / name / path.name).read_bytes() == path.read_bytes(), path.name
