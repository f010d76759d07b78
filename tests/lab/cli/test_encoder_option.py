"""`--encoder` of compare, fit and predict, with an encoder that transformers reads."""

import pandas as pd
import pytest
from tiny_encoder import write_encoder
from typer.testing import CliRunner

from hitrate_lab.cli.app import app

WORDS = "a lovely dreadful dress coat fits badly well".split()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An encoder's folder, and reviews of which all are different."""
    folder = tmp_path_factory.mktemp("encoder")
    encoder = write_encoder(folder, [*WORDS, *map(str, range(80))])
    rows = [
        (f"a {'lovely' if k % 3 else 'dreadful'} dress {k}", "yes" if k % 3 else "no")
        for k in range(80)
    ]
    pd.DataFrame(rows, columns=["review", "good"]).to_csv(folder / "reviews.csv", index=False)
    return encoder, folder / "reviews.csv"


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_comparison_model_and_predictions_go_by_its_vectors(files, tmp_path):
    encoder, reviews = files
    given = ["--target", "good", "--encoder", encoder]
    options = ["--models", "linear", "--repeats", 1, "--trials", 1, "--jobs", 1, "--out", tmp_path]
    compared = run("compare", reviews, *given, *options)
    assert compared.exit_code == 0, compared.output
    assert f"--encoder {encoder}" in compared.output
    assert "read by the encoder tiny" in compared.output
    fitted = run("fit", reviews, *given, "--trials", 1, "--out", tmp_path / "model")
    assert fitted.exit_code == 0, fitted.output
    out = tmp_path / "predictions.csv"
    predicted = run("predict", tmp_path / "model", reviews, "--encoder", encoder, "--out", out)
    assert predicted.exit_code == 0, predicted.output
    assert len(pd.read_csv(out)) == 80


def test_a_folder_that_is_no_encoder_is_told_in_one_line(files, tmp_path):
    _, reviews = files
    found = run("fit", reviews, "--target", "good", "--encoder", tmp_path, "--out", tmp_path / "m")
    assert found.exit_code == 2
    assert f"{tmp_path} is no encoder: it has no config.json" in found.output
