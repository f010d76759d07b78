"""Free text becomes directions of words and pairs of words, learned from training rows alone."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.utils.extmath import randomized_svd

from hitrate_lab.bad_input import BadInput
from hitrate_lab.compare.comparison import compare
from hitrate_lab.compare.fit import fit_table, predict_file
from hitrate_lab.models.folder import load_model, save_model
from hitrate_lab.tables import Columns, read_table
from hitrate_lab.tables.prose import IN_TEXTS, Prose

WORDS = [f"word{k}" for k in range(60)]


def reviews(rows: int, seed: int = 0) -> pd.DataFrame:
    """Texts whose class is told by a pair of words, not by either of them."""
    random = np.random.default_rng(seed)
    y = random.integers(2, size=rows)
    texts = []
    for label in y:
        words = list(random.choice(WORDS, 8)) + (["not", "good"] if label else ["good", "not"])
        texts.append(" ".join(words))
    return pd.DataFrame({"text": texts, "n": random.random(rows), "y": np.where(y, "bad", "fine")})


def test_features_are_those_of_scikit_learn():
    texts = reviews(300)["text"]
    prose = Prose.fit(texts)
    x = TfidfVectorizer(ngram_range=(1, 2), min_df=IN_TEXTS, sublinear_tf=True).fit_transform(texts)
    k = len(prose.scale)
    _, _, directions = randomized_svd(x, k, n_iter=20, random_state=1)
    found = prose.transform(texts)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(found.std(0), 1, atol=1e-9)
    # The leading ones do not depend on how they are found, but for their sign.
    z = x @ directions[:2].T
    z = (z - z.mean(0)) / z.std(0)
    np.testing.assert_allclose(np.abs((z * found[:, :2]).mean(0)), 1, atol=0.02)


def test_pairs_of_words_tell_what_words_do_not():
    frame = reviews(900)
    x = Columns().fit(frame.iloc[:600, :1]).transform(frame.iloc[:, :1])
    model = LogisticRegression(C=10, max_iter=1000).fit(x[:600], frame["y"][:600])
    assert model.score(x[600:], frame["y"][600:]) > 0.9


def test_only_rows_of_training_count_and_the_same_rows_give_the_same():
    frame = reviews(300)[["text"]]
    first, again = Columns().fit(frame[:200]), Columns().fit(frame[:200].copy())
    np.testing.assert_array_equal(first.transform(frame), again.transform(frame))
    strange = pd.DataFrame({"text": ["wholly new words here", None, "", "word1 word2"]})
    found = first.transform(strange)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[1], found[2])


def test_what_is_missing_is_the_mean_and_says_so():
    frame = reviews(300)[["text"]]
    frame.loc[::5, "text"] = None
    columns = Columns().fit(frame)
    found = columns.transform(frame)
    assert columns.get_feature_names_out()[-1] == "text (missing)"
    np.testing.assert_array_equal(found[:, -1], frame["text"].isna())
    assert not found[::5, :-1].any()


def test_few_texts_are_hashed_words_and_states_of_before_still_load():
    columns = Columns().fit(reviews(60)[["text"]])
    assert columns.get_feature_names_out()[0].startswith("text (words ")
    state = json.loads(json.dumps(columns.to_json()))
    assert "prose" not in state and "forms" not in state
    assert Columns.from_json(state).width == columns.width and columns.arrays == {}


@pytest.fixture
def columns():
    return Columns().fit(reviews(300)[["text", "n"]])


def test_a_state_gives_the_same_again(columns):
    frame = reviews(50, seed=1)
    again = Columns.from_json(json.loads(json.dumps(columns.to_json())), columns.arrays)
    np.testing.assert_array_equal(again.transform(frame), columns.transform(frame))
    assert list(again.get_feature_names_out()) == list(columns.get_feature_names_out())


def changed(arrays, name, change):
    return {**arrays, name: change(arrays[name].copy())}


def poisoned(array):
    array.flat[0] = np.nan
    return array


@pytest.mark.parametrize(
    "damage",
    [
        lambda state, arrays: (state, {}),
        lambda state, arrays: (state, {**arrays, "1 scale": arrays["0 scale"]}),
        lambda state, arrays: (state, changed(arrays, "0 scale", lambda a: a[:-1])),
        lambda state, arrays: (state, changed(arrays, "0 scale", lambda a: a * 0)),
        lambda state, arrays: (state, changed(arrays, "0 scale", lambda a: a * 1e-300)),
        lambda state, arrays: (state, changed(arrays, "0 centre", lambda a: a + 1e300)),
        lambda state, arrays: (state, changed(arrays, "0 centre", poisoned)),
        lambda state, arrays: (state, changed(arrays, "0 rarity", lambda a: a * 0)),
        lambda state, arrays: (state, changed(arrays, "0 rarity", lambda a: a[:, None])),
        lambda state, arrays: (state, changed(arrays, "0 directions", poisoned)),
        lambda state, arrays: (state, changed(arrays, "0 directions", lambda a: a.T)),
        lambda state, arrays: (state, changed(arrays, "0 directions", lambda a: a.astype(float))),
        lambda state, arrays: ({**state, "prose": []}, arrays),
        lambda state, arrays: ({**state, "prose": state["prose"] * 2}, arrays),
        lambda state, arrays: (
            {**state, "prose": [{**state["prose"][0], "words": ["x"]}]},
            arrays,
        ),
        lambda state, arrays: (
            {**state, "prose": [{**state["prose"][0], "words": [1, 2]}]},
            arrays,
        ),
        lambda state, arrays: ({**state, "prose": [{"name": "text"}]}, arrays),
    ],
)
def test_states_and_arrays_that_do_not_fit_are_refused(columns, damage):
    state, arrays = damage(json.loads(json.dumps(columns.to_json())), columns.arrays)
    with pytest.raises(BadInput, match="columns' state is not one of hitrate's"):
        Columns.from_json(state, arrays)


def test_a_model_of_text_goes_through_its_folder(tmp_path):
    reviews(300).to_csv(tmp_path / "t.csv", index=False)
    table = read_table(tmp_path / "t.csv", "y")
    assert any("free text" in note and "'text'" in note for note in table.notes)
    model = fit_table(table, "linear/cross_entropy", trials=1)
    save_model(tmp_path / "m", model)
    again = load_model(tmp_path / "m")
    assert (tmp_path / "m" / "columns.safetensors").is_file()
    np.testing.assert_array_equal(
        again.predict_proba(table.features), model.predict_proba(table.features)
    )
    found = predict_file(tmp_path / "m", tmp_path / "t.csv", tmp_path / "p.csv")
    assert found.accuracy > 0.85
    (tmp_path / "m" / "columns.safetensors").write_bytes(b"x")
    with pytest.raises(BadInput, match="was changed"):
        load_model(tmp_path / "m")


def test_text_can_be_left_out(tmp_path):
    reviews(200).to_csv(tmp_path / "t.csv", index=False)
    table = read_table(tmp_path / "t.csv", "y", text=False)
    assert list(table.features) == ["n"] and "not used, free text: 'text'" in table.notes
    assert table.fingerprint != read_table(tmp_path / "t.csv", "y").fingerprint
    reviews(200)[["text", "y"]].to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(BadInput, match="without free text no column is left"):
        read_table(tmp_path / "t.csv", "y", text=False)


def test_a_comparison_reads_text_once_for_all_methods_of_a_fold(tmp_path, monkeypatch):
    reviews(200).to_csv(tmp_path / "t.csv", index=False)
    table = read_table(tmp_path / "t.csv", "y")
    fits = []
    fit = Prose.fit.__func__
    monkeypatch.setattr(
        Prose, "fit", classmethod(lambda cls, values: fits.append(len(values)) or fit(cls, values))
    )
    options = dict(models=["linear"], folds=2, repeats=1, trials=1, jobs=1)
    document = compare(table, store=tmp_path / "s.sqlite", **options)
    assert document["complete"] and fits == [100, 100]
    assert any("free text" in note for note in document["table"]["notes"])
