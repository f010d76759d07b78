"""`--encoder` of compare, fit and predict, with an encoder that transformers reads."""

import shlex

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
    assert f"predictions.csv --encoder {encoder}" in fitted.output
    out = tmp_path / "predictions.csv"
    predicted = run("predict", tmp_path / "model", reviews, "--encoder", encoder, "--out", out)
    assert predicted.exit_code == 0, predicted.output
    assert len(pd.read_csv(out)) == 80


def test_a_folder_that_is_no_encoder_is_told_in_one_line(files, tmp_path):
    _, reviews = files
    found = run("fit", reviews, "--target", "good", "--encoder", tmp_path, "--out", tmp_path / "m")
    assert found.exit_code == 2
    assert f"{tmp_path} is no encoder: it has no config.json" in found.output


def test_a_table_without_free_text_does_without_the_encoder_and_says_so(files, tmp_path):
    encoder, reviews = files
    plain = tmp_path / "plain.csv"
    frame = pd.read_csv(reviews)
    frame.assign(review=[len(text) for text in frame["review"]]).to_csv(plain, index=False)
    given = ["--target", "good", "--encoder", encoder, "--trials", 1]
    options = ["--models", "linear", "--repeats", 1, "--jobs", 1, "--out", tmp_path / "compared"]
    compared = run("compare", plain, *given, *options)
    fitted = run("fit", plain, *given, "--out", tmp_path / "model")
    for found in (compared, fitted):
        assert found.exit_code == 0, found.output
        assert "note: no column is free text, which the encoder tiny " in found.output
        (following,) = [line for line in found.output.splitlines() if line.startswith("Next:")]
        assert "--encoder" not in following
    # As the line says it.
    words = [str(plain) if word == "NEW.csv" else word for word in shlex.split(following)[2:]]
    words[words.index("predictions.csv")] = str(tmp_path / "predictions.csv")
    predicted = run(*words)
    assert predicted.exit_code == 0, predicted.output


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_an_encoder_of_texts_that_are_left_out_is_refused(files, tmp_path, command):
    encoder, reviews = files
    given = ["--target", "good", "--encoder", encoder, "--no-text", "--out", tmp_path / "out"]
    found = run(command, reviews, *given)
    assert found.exit_code == 2
    assert "reads free text, which --no-text leaves out" in found.output
    assert not (tmp_path / "out").exists()
