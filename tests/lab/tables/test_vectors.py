"""Free text as an encoder's vectors: tables, models and predictions, with a small encoder."""

import hashlib

import numpy as np
import pandas as pd
import pytest

from hitrate_lab.bad_input import BadInput
from hitrate_lab.compare.fit import fit_table, predict_file
from hitrate_lab.models.folder import save_model
from hitrate_lab.tables import read_table
from hitrate_lab.tables.vectors import read_by, with_vectors

ROWS, WIDTH = 120, 8


class Letters:
    """Sums of vectors of words, drawn by the word's own hash."""

    def __init__(self, name="letters 0123abcd"):
        self.name = name

    def __call__(self, texts):
        return np.array([sum(map(self._word, text.split()), np.zeros(WIDTH)) for text in texts])

    def _word(self, word):
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "little")
        return np.random.default_rng(seed).standard_normal(WIDTH).astype(np.float32)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Reviews whose words say whether they are good, with a number that says nothing."""
    random = np.random.default_rng(0)
    good = random.random(ROWS) < 0.5
    words = np.where(good, "lovely", "dreadful")
    names = random.choice(["dress", "coat", "shirt", "skirt"], ROWS)
    texts = [
        f"a {word} {name} of size {k}"
        for k, (word, name) in enumerate(zip(words, names, strict=True))
    ]
    frame = pd.DataFrame(
        {
            "review": texts,
            "age": random.integers(20, 60, ROWS),
            "good": np.where(good, "yes", "no"),
        }
    )
    frame.loc[3, "review"] = None
    path = tmp_path_factory.mktemp("reviews") / "reviews.csv"
    frame.to_csv(path, index=False)
    return path


def test_a_column_of_text_becomes_one_of_numbers_for_each_part_of_a_vector(file):
    said = []
    table = read_table(file, "good", encoder=Letters(), progress=said.append)
    names = [f"review [letters 0123abcd, {k}]" for k in range(1, WIDTH + 1)]
    assert list(table.features.columns) == ["age", *names]
    assert "free text, read by the encoder letters 0123abcd: 'review'" in table.notes
    assert any("120 texts, read by letters 0123abcd" in line for line in said)
    assert read_by(list(table.features.columns)) == (["review"], "letters 0123abcd")
    # A missing text is an empty one.
    assert (table.features.loc[3, names] == 0).all()


@pytest.mark.parametrize("name", ["letters 0123abcd", "moved elsewhere 0123abcd"])
def test_a_model_reads_the_texts_of_new_rows_by_the_same_encoder(file, tmp_path, name):
    table = read_table(file, "good", encoder=Letters())
    model = fit_table(table, "linear/cross_entropy", trials=1)
    save_model(tmp_path / "model", model)
    out = tmp_path / "predictions.csv"
    found = predict_file(tmp_path / "model", file, out, encoder=Letters(name))
    assert found.rows == ROWS and found.accuracy > 0.9
    assert pd.read_csv(out)["prediction"].tolist() == model.predict(table.features).tolist()


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (None, "reads 'review' by the encoder letters 0123abcd; say --encoder DIR"),
        (Letters("letters 89abcdef"), "by the encoder letters 0123abcd, this is letters 89abcdef"),
        (Letters("others 89abcdef"), "by the encoder letters 0123abcd, this is others 89abcdef"),
    ],
    ids=["none", "changed", "another"],
)
def test_another_encoder_or_none_is_refused_before_a_row_is_read(file, tmp_path, encoder, message):
    model = fit_table(read_table(file, "good", encoder=Letters()), "linear/cross_entropy", trials=1)
    save_model(tmp_path / "model", model)
    with pytest.raises(BadInput, match=message):
        predict_file(tmp_path / "model", file, tmp_path / "out.csv", encoder=encoder)
    assert not (tmp_path / "out.csv").exists()


def test_a_model_without_an_encoder_takes_none(file, tmp_path):
    save_model(tmp_path / "model", fit_table(read_table(file, "good"), "linear/exact", trials=1))
    with pytest.raises(BadInput, match="reads no text by an encoder; leave letters 0123abcd out"):
        predict_file(tmp_path / "model", file, tmp_path / "out.csv", encoder=Letters())


def test_a_file_without_the_text_is_told(file):
    with pytest.raises(BadInput, match="no column 'review', whose text the model reads"):
        with_vectors(pd.DataFrame({"age": [1]}), ["review"], Letters())
