"""Columns become numbers, by what the training rows show."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from counting import calls_of
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from hitrate_lab.bad_input import BadInput
from hitrate_lab.tables import Columns, read_table


def named(columns: Columns, frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """Features by their names."""
    x = columns.transform(frame)
    x = x.toarray() if sparse.issparse(x) else x
    return dict(zip(columns.get_feature_names_out(), x.T, strict=True))


def text(words, rows=60, seed=0):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(words, 5)) for _ in range(rows)]


@pytest.fixture
def mixed():
    random = np.random.default_rng(0)
    size = random.standard_normal(60)
    size[::7] = np.nan
    return pd.DataFrame(
        {
            "size": size,
            "count": random.integers(9, size=60),
            "flag": random.random(60) > 0.5,
            "colour": random.choice(["red", "green", None], 60).astype(object),
            "when": pd.date_range("2023-12-25", periods=60, freq="31h").strftime("%Y-%m-%d %H:%M"),
            "review": text(["good", "bad", "slow", "fast", "cheap", "dear", "loud", "old"]),
            "id": [f"r{k}" for k in range(60)],
            "same": 5,
        }
    )


def test_numbers_are_standardised_as_scikit_learn_does():
    x = read_table("wine").features
    found = Columns().fit_transform(x)
    np.testing.assert_allclose(found, StandardScaler().fit_transform(x), atol=1e-12)


def test_categories_are_indicators_as_scikit_learn_has_them():
    x = read_table("car").features
    columns = Columns().fit(x)
    expected = OneHotEncoder(sparse_output=False).fit(x)
    np.testing.assert_array_equal(columns.transform(x), expected.transform(x))
    names = [name.replace("=", "_") for name in columns.get_feature_names_out()]
    assert names == expected.get_feature_names_out().tolist()


def test_text_is_weighed_words_as_scikit_learn_weighs_them():
    texts = text([f"word{k}" for k in range(30)])
    # So many hashes that no two words share one, here and there.
    found = Columns(words=2**20).fit_transform(pd.DataFrame({"t": texts}))
    counts = HashingVectorizer(n_features=2**20, alternate_sign=False, norm=None).transform(texts)
    expected = TfidfTransformer().fit_transform(counts).toarray()
    expected = expected[:, expected.any(0)]
    found = found.toarray() if sparse.issparse(found) else found
    assert found.shape == expected.shape
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-12)


def test_missing_numbers_are_the_mean_and_say_so(mixed):
    columns = Columns().fit(mixed)
    found = named(columns, mixed)
    gap = mixed["size"].isna().to_numpy()
    assert (found["size"][gap] == 0).all() and abs(found["size"].mean()) < 1e-12
    np.testing.assert_array_equal(found["size (missing)"], gap)
    assert "count (missing)" not in found
    mixed.loc[0, "count"] = np.nan
    assert named(columns, mixed)["count"][0] == 0


def test_infinite_numbers_are_missing():
    frame = pd.DataFrame({"x": [1.0, 2.0, np.inf, -np.inf, 3.0]})
    found = named(Columns().fit(frame), frame)
    assert found["x (missing)"].tolist() == [0, 0, 1, 1, 0]
    assert found["x"][1] == 0


@pytest.mark.parametrize(
    "values",
    [
        [1e308, -1e308, 1e308, 0],
        [1e-320, 0.0, 5e-324, 0.0],
        [1e16, 1e16 + 2, 1e16 + 4, 1e16],
        [0.1 + 0.2, 0.3, 0.3, 0.3],
        [2**62, 2**62 + 1, -(2**62), 0],
    ],
)
def test_extreme_numbers_stay_finite(values):
    frame = pd.DataFrame({"x": values, "z": [1, 2, 3, 4]})
    columns = Columns().fit(frame)
    wild = pd.DataFrame({"x": [1.7e308, -1.7e308, 0, np.nan], "z": [1e308, 0, -1e308, 5]})
    for each in (frame, wild):
        assert np.isfinite(columns.transform(each)).all()
    assert "z" in columns.get_feature_names_out()


def test_dates_become_their_parts(mixed):
    found = named(Columns().fit(mixed), mixed)
    when = pd.to_datetime(mixed["when"]).dt
    for part in ("year", "month", "day", "weekday", "hour"):
        # What pandas calls by another name.
        special = {"hour": when.hour + when.minute / 60, "weekday": when.day_of_week}
        values = special[part] if part in special else getattr(when, part)
        expected = (values - values.mean()) / values.std(ddof=0)
        np.testing.assert_allclose(found[f"when ({part})"], expected, atol=1e-9)
    steps = np.diff(found["when (days)"])
    np.testing.assert_allclose(steps, steps[0])


def test_dates_are_the_same_from_text_and_from_pandas():
    when = pd.Series(pd.date_range("1999-05-05 06:30", periods=40, freq="25h"))
    zoned = when.dt.tz_localize("Europe/Paris")
    frames = [pd.DataFrame({"t": each}) for each in (when, when.astype(str), zoned)]
    first, *others = (Columns().fit_transform(frame) for frame in frames)
    for other in others:
        np.testing.assert_allclose(other, first, atol=1e-9)
    columns = Columns().fit(frames[0])
    np.testing.assert_allclose(columns.transform(frames[1]), first, atol=1e-9)


def test_dates_of_all_times_are_fine():
    when = pd.Series(["0001-01-01", None, "9999-12-31", "1970-01-01"], dtype="datetime64[s]")
    as_text = pd.Series(["0001-01-01", None, "9999-12-31", "1970-01-01"], dtype=object)
    first, second = (Columns().fit_transform(pd.DataFrame({"t": each})) for each in (when, as_text))
    assert np.isfinite(first).all()
    np.testing.assert_allclose(first, second, atol=1e-9)


def test_text_with_a_few_strange_cells_is_still_dates():
    days = [f"2024-01-{k % 28 + 1:02}" for k in range(99)]
    columns = Columns().fit(pd.DataFrame({"t": [*days, "soon"]}))
    assert "t (day)" in columns.get_feature_names_out()
    assert named(columns, pd.DataFrame({"t": ["2024-02-30", "2024-01-05"]}))["t (missing)"][0] == 1
    others = Columns().fit(pd.DataFrame({"t": days[:30] + ["soon"] * 10}))
    assert "t=soon" in others.get_feature_names_out()


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y %H:%M"])
def test_dates_with_the_year_last_are_those_with_the_year_first(form):
    when = pd.Series(pd.date_range("2023-11-25", periods=60, freq="3D"))
    frame = pd.DataFrame({"t": when.dt.strftime(form)})
    columns = Columns().fit(frame)
    expected = Columns().fit_transform(pd.DataFrame({"t": when}))
    np.testing.assert_allclose(columns.transform(frame), expected, atol=1e-9)
    again = Columns.from_json(json.loads(json.dumps(columns.to_json())))
    # None of these shows by itself what it means.
    first = frame.iloc[2:5]
    np.testing.assert_array_equal(again.transform(first), columns.transform(frame)[2:5])
    other = {"%d": "%m", "%m": "%d"}
    turned = when.dt.strftime("".join(other.get(part, part) for part in re.split("(%.)", form)))
    some = turned[when.dt.day > 12].to_frame("t")
    with pytest.raises(BadInput, match=r"is not a date like \d"):
        again.transform(some)


@pytest.mark.parametrize(
    "days", [["03/04/2024", "05/06/2024"], ["13/04/2024", "04/13/2024"], ["3-4-2024", "5-6-2024"]]
)
def test_dates_that_may_be_read_in_two_ways_are_categories(days):
    names = Columns().fit(pd.DataFrame({"t": days * 10})).get_feature_names_out().tolist()
    assert names == sorted(f"t={day}" for day in days)


def test_unseen_levels_are_zeros_and_missing_is_a_level(mixed):
    columns = Columns().fit(mixed)
    new = mixed.iloc[:3].assign(colour=["violet", None, "red"])
    found = named(columns, new)
    assert [found[f"colour={level}"].tolist() for level in ("green", "red", "(missing)")] == [
        [0, 0, 0],
        [0, 0, 1],
        [0, 1, 0],
    ]


def test_only_frequent_levels_are_kept_of_many():
    levels = [f"l{k}" for k in range(100) for _ in range(k + 1)]
    columns = Columns(levels=10).fit(pd.DataFrame({"c": levels}))
    names = columns.get_feature_names_out().tolist()
    assert names == [
        *(f"c={level}" for level in sorted(f"l{k}" for k in range(90, 100))),
        "c=(other)",
    ]
    found = named(columns, pd.DataFrame({"c": ["l5", "never seen", "l95"]}))
    assert found["c=(other)"].tolist() == [1, 1, 0]


def test_constants_and_names_of_rows_are_not_used(mixed):
    columns = Columns().fit(mixed.assign(nothing=None, gone=np.nan, level="one"))
    assert not {"same", "id", "nothing", "gone", "level"} & set(columns.used)
    constants, ids = columns.notes_
    for name in ("same", "nothing", "gone", "level"):
        assert f"'{name}'" in constants
    assert "'id'" in ids
    with pytest.raises(BadInput, match="no column is of use"):
        Columns().fit(mixed[["id", "same"]])


def test_everything_is_learned_from_the_rows_of_fit(mixed):
    columns = Columns().fit(mixed.iloc[:30])
    alone = columns.transform(mixed.iloc[30:31])
    np.testing.assert_array_equal(columns.transform(mixed)[30:31], alone)
    assert columns.transform(mixed.iloc[:0]).shape == (0, columns.width)


def test_columns_are_found_by_name_and_others_ignored(mixed):
    columns = Columns().fit(mixed)
    shuffled = mixed[mixed.columns[::-1]].assign(extra=1)
    np.testing.assert_array_equal(columns.transform(shuffled), columns.transform(mixed))
    np.testing.assert_array_equal(
        columns.transform(mixed.drop(columns=["id", "same"])), columns.transform(mixed)
    )
    with pytest.raises(BadInput, match="'size', 'colour' are missing"):
        columns.transform(mixed.drop(columns=["size", "colour"]))


def test_text_in_the_place_of_numbers_is_said_where(mixed):
    columns = Columns().fit(mixed)
    new = mixed.astype({"size": object})
    new.loc[17, "size"] = "large"
    with pytest.raises(BadInput, match="column 'size', row 18: 'large' is not a number"):
        columns.transform(new)
    with pytest.raises(BadInput, match="column 'when': '5' is not a date"):
        columns.transform(mixed.assign(when=5))


def test_cells_may_all_be_text(mixed):
    columns = Columns().fit(mixed)
    as_text = mixed.map(lambda cell: "" if cell is None or cell != cell else str(cell)).astype(
        object
    )
    np.testing.assert_array_equal(columns.transform(as_text), columns.transform(mixed))


def test_numbers_in_a_category_match_their_text():
    columns = Columns().fit(pd.DataFrame({"c": ["1", "2", "many"] * 4}))
    for values in ([1, 2], [1.0, 2.0], ["1", "2"], pd.Categorical([1, 2])):
        found = columns.transform(pd.DataFrame({"c": values}))
        np.testing.assert_array_equal(found, [[1, 0, 0], [0, 1, 0]])


def test_types_of_pandas_do_not_matter(mixed):
    expected = Columns().fit_transform(mixed)
    other = mixed.convert_dtypes()
    other["colour"] = pd.Categorical(mixed["colour"])
    np.testing.assert_allclose(Columns().fit_transform(other), expected, atol=1e-12)


def test_the_state_is_json_and_gives_the_same_features(mixed):
    columns = Columns().fit(mixed)
    state = json.loads(json.dumps(columns.to_json(), allow_nan=False))
    again = Columns.from_json(state)
    np.testing.assert_array_equal(again.transform(mixed), columns.transform(mixed))
    assert again.get_feature_names_out().tolist() == columns.get_feature_names_out().tolist()
    assert again.to_json() == columns.to_json()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((), []),
        (("numbers",), {}),
        (("numbers", "mean"), [1.0]),
        (("numbers", "scale", 0), "1"),
        (("numbers", "scale", 0), -1.0),
        (("numbers", "mean", 0), float("nan")),
        (("categories", 0, "levels"), "red"),
        (("categories", 0, "missing"), 1),
        (("dates", 0, "scale", "mean"), [0.0] * 5),
        (("dates", 0, "order"), "unclear"),
        (("dates", 0, "order"), None),
        pytest.param(("numbers", "mean", 0), 10**400, id="huge mean"),
        (("texts", 0, "size"), 0),
        (("texts", 0, "size"), 3),
        (("texts", 0, "rarity", 0), 0.0),
        (("texts", 0, "rarity", 0), 1e300),
        (("texts", 0, "buckets", 0), -1),
        (("texts", 0, "rarity"), []),
        (("columns",), [1]),
        (("sparse",), "no"),
    ],
)
def test_a_state_that_is_none_is_refused(mixed, path, value):
    state = Columns().fit(mixed).to_json()
    place = [state]
    for key in path[:-1]:
        place.append(place[-1][key])
    if path:
        place[-1][path[-1]] = value
    with pytest.raises(BadInput, match="state is not one of hitrate's"):
        Columns.from_json(state if path else value)


def test_a_state_without_features_is_refused(mixed):
    state = Columns().fit(mixed[["colour"]]).to_json()
    with pytest.raises(BadInput, match="no feature"):
        Columns.from_json({**state, "categories": []})
    state["texts"] = [{"name": "colour", "buckets": [], "rarity": [], "size": 0}]
    with pytest.raises(BadInput, match="size 0"):
        Columns.from_json(state)


def test_it_works_in_a_pipeline():
    table = read_table("car")
    pipeline = make_pipeline(clone(Columns(levels=20)), LogisticRegression(max_iter=500))
    assert pipeline[0].levels == 20
    split = StratifiedKFold(3, shuffle=True, random_state=0)
    assert cross_val_score(pipeline, table.features, table.target, cv=split).mean() > 0.9
    with pytest.raises(NotFittedError):
        Columns().transform(table.features)


def test_many_levels_of_many_rows_are_sparse():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {f"c{k}": random.integers(40, size=3000).astype(str).astype(object) for k in range(50)}
    )
    columns = Columns().fit(frame)
    x = columns.transform(frame)
    assert sparse.issparse(x) and x.shape == (3000, 2000) and x.nnz == 3000 * 50
    few = columns.transform(frame.iloc[:2])
    np.testing.assert_array_equal(few.toarray(), x[:2].toarray())


def many_columns(count):
    x = np.random.default_rng(0).standard_normal((1000, count))
    return x, pd.DataFrame(x, columns=[f"c{k}" for k in range(count)])


@pytest.mark.slow
def test_ten_thousand_columns_are_learned():
    x, frame = many_columns(10_000)
    found = Columns().fit_transform(frame)
    np.testing.assert_allclose(found[:, :5], StandardScaler().fit_transform(x[:, :5]), atol=1e-12)


def test_twice_as_many_columns_are_twice_the_work():
    # The first time something may be imported.
    frames = [many_columns(count)[1] for count in (300, 300, 600)]
    _, once, twice = (calls_of(lambda x=x: Columns().fit_transform(x)) for x in frames)
    assert twice < 2.2 * once
