"""A method is fitted to a table, kept, and predicts the rows of files in their order."""

import csv
import os

import numpy as np
import pandas as pd
import pytest

from hitrate_lab.bad_input import BadInput
from hitrate_lab.compare import fit
from hitrate_lab.compare.fit import fit_table, predict_file
from hitrate_lab.compare.folds import inner_split
from hitrate_lab.models.folder import load_model, save_model
from hitrate_lab.models.methods import methods
from hitrate_lab.tables import Columns, read_table


@pytest.fixture(scope="module")
def car(tmp_path_factory):
    """The car table, a folder with a model of it, and its rows in a file."""
    base = tmp_path_factory.mktemp("car")
    table = read_table("car")
    model = fit_table(table, "linear/cross_entropy", trials=1, accuracy=0.9)
    save_model(base / "model", model)
    table.features.to_csv(base / "rows.csv", index=False)
    return table, base / "model", base / "rows.csv"


@pytest.mark.parametrize("name", ["linear/cross_entropy", "linear/exact", "mlp/mixed"])
def test_a_fit_is_better_than_the_largest_class(name):
    table = read_table("wine")
    said = []
    model = fit_table(table, name, trials=2, progress=said.append)
    assert (model.predict(table.features) == table.target).mean() > 0.95
    about = model.about
    assert (about.method, about.table, about.target, about.rows) == (name, "wine", "cultivar", 178)
    # This one chooses by itself.
    assert ("2 candidates" in said[0]) == (name != "linear/exact")
    assert "fitting 178 rows, 13 features" in said[-1]


def test_parameters_are_those_that_are_best_on_held_out_rows():
    table = read_table("breast-cancer")
    model = fit_table(table, "linear/cross_entropy", trials=4, seed=3)
    (method,) = methods(["linear"], ["cross_entropy"])
    x = Columns().fit_transform(table.features)
    y = (table.target == "malignant").to_numpy().astype(int)
    inside, judged = inner_split(y, 3)
    scores = [
        method.build(parameters, 3).fit(x[inside], y[inside]).score(x[judged], y[judged])
        for parameters in method.candidates(4, len(y))
    ]
    assert len(set(scores)) > 1
    assert model.about.parameters == method.candidates(4, len(y))[int(np.argmax(scores))]


def test_the_same_seed_gives_the_same_model():
    table = read_table("iris")
    first, second = (fit_table(table, "mlp/exact", trials=1, seed=5) for _ in range(2))
    np.testing.assert_array_equal(
        first.predict_proba(table.features), second.predict_proba(table.features)
    )


@pytest.mark.parametrize("method", ["linear/cross_entropy", "mlp/exact", "xgboost/exact"])
def test_any_seed_but_a_negative_one_will_do(method, tmp_path):
    if "xgboost" in method:
        pytest.importorskip("xgboost")
    table = read_table("iris")
    model = fit_table(table, method, trials=1, seed=10**30)
    assert model.about.seed == 10**30
    save_model(tmp_path / "m", model)
    assert load_model(tmp_path / "m").about == model.about
    with pytest.raises(BadInput, match="seed=-1: needs 0 or more"):
        fit_table(table, method, trials=1, seed=-1)


def test_one_candidate_is_not_chosen():
    said = []
    fit_table(read_table("iris"), "linear/cross_entropy", trials=1, progress=said.append)
    assert not any("candidate" in each for each in said)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("linear", "<model>/<loss>"), ("forest/exact", "'forest'"), ("linear/accuracy", "'accuracy'")],
)
def test_methods_that_are_none_are_refused(name, complaint):
    with pytest.raises(BadInput, match=complaint):
        fit_table(read_table("iris"), name)


def test_predictions_are_those_of_the_model_in_order(car, tmp_path):
    table, folder, rows = car
    found = predict_file(folder, rows, tmp_path / "out.csv")
    model = load_model(folder)
    out = pd.read_csv(tmp_path / "out.csv")
    assert out.columns.tolist() == ["prediction", "p(acc)", "p(good)", "p(unacc)", "p(vgood)"]
    assert out["prediction"].tolist() == model.predict(table.features).tolist()
    np.testing.assert_allclose(out.iloc[:, 1:], model.predict_proba(table.features), atol=1e-6)
    assert found.rows == 1728 and found.accuracy is None
    assert found.counts == {c: (out["prediction"] == c).sum() for c in model.classes}


def test_a_file_is_read_in_parts_without_a_difference(car, tmp_path, monkeypatch):
    _, folder, rows = car
    predict_file(folder, rows, tmp_path / "whole.csv")
    monkeypatch.setattr(fit, "MOST_ROWS", 100)
    predict_file(folder, rows, tmp_path / "parts.csv")
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_kinds_of_files_in_and_out_give_the_same(car, tmp_path):
    table, folder, rows = car
    expected = predict_file(folder, rows, tmp_path / "out.csv")
    table.features.to_csv(tmp_path / "rows.tsv", index=False, sep="\t")
    table.features.to_parquet(tmp_path / "rows.parquet")
    for name in ("rows.tsv", "rows.parquet"):
        predict_file(folder, tmp_path / name, tmp_path / "again.csv", overwrite=True)
        assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "out.csv").read_bytes()
    assert predict_file(folder, rows, tmp_path / "out.tsv") == expected
    assert predict_file(folder, rows, tmp_path / "out.parquet") == expected
    first = pd.read_csv(tmp_path / "out.csv")
    for other in (
        pd.read_csv(tmp_path / "out.tsv", sep="\t"),
        pd.read_parquet(tmp_path / "out.parquet"),
    ):
        assert other["prediction"].tolist() == first["prediction"].tolist()
        np.testing.assert_allclose(other.iloc[:, 1:], first.iloc[:, 1:], atol=1e-6)


def test_where_the_file_has_labels_accuracy_is_told(car, tmp_path):
    table, folder, _ = car
    right = load_model(folder).predict(table.features) == table.target
    assert predict_file(folder, "car", tmp_path / "a.csv").accuracy == right.mean()
    frame = table.features.assign(**{"class": table.target})
    frame.loc[:99, "class"] = None
    frame.to_csv(tmp_path / "some.csv", index=False)
    found = predict_file(folder, tmp_path / "some.csv", tmp_path / "b.csv")
    assert found.rows == 1728 and found.accuracy == pytest.approx(right[100:].mean())


def test_numbers_dates_and_gaps_survive_the_way_through_files(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": random.standard_normal(200).round(3), "n": random.integers(5, size=200)}
    )
    frame["when"] = pd.date_range("2020-01-01", periods=200, freq="9h").astype(str)
    frame["c"] = random.choice(["1", "2", "many"], 200)
    frame["y"] = np.where(frame["x"] + (frame["c"] == "2") > 0.3, 7, -3)
    frame.loc[::9, "x"] = np.nan
    frame.loc[::11, "c"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = read_table(tmp_path / "t.csv", "y")
    model = fit_table(table, "linear/cross_entropy", trials=1)
    save_model(tmp_path / "model", model)
    found = predict_file(tmp_path / "model", tmp_path / "t.csv", tmp_path / "out.csv")
    out = pd.read_csv(tmp_path / "out.csv")
    assert out.columns.tolist() == ["prediction", "p(-3)", "p(7)"]
    np.testing.assert_array_equal(out["prediction"], model.predict(table.features))
    assert found.accuracy == (model.predict(table.features) == table.target).mean() > 0.8


@pytest.mark.parametrize(
    ("classes", "spellings"),
    [
        (["0", "1"], [["0.0", "1.0"], ["false", "TRUE"], ["0", "1"]]),
        (["1.0", "2.0"], [["1", "2"], ["1.00", "2.0"]]),
        (["False", "True"], [["false", "true"], ["0", "1"], ["0.0", "1.0"]]),
        (["-", "+"], [["-", "+"], [" - ", "+ "]]),
        (["DE", "NA"], [["DE", "NA"]]),
    ],
)
def test_accuracy_does_not_depend_on_how_labels_are_written(classes, spellings, tmp_path):
    random = np.random.default_rng(0)
    x = random.standard_normal(100).round(3)
    y = (x + random.standard_normal(100) > 0).astype(int)

    def write(labels, name):
        frame = pd.DataFrame({"x": x, "y": [labels[k] for k in y]})
        frame.to_csv(tmp_path / name, index=False)
        return tmp_path / name

    table = read_table(write(classes, "t.csv"), "y")
    model = fit_table(table, "linear/cross_entropy", trials=1)
    save_model(tmp_path / "m", model)
    right = (model.predict(table.features) == table.target).mean()
    assert right < 1
    for labels in spellings:
        rows = write(labels, "rows.csv")
        found = predict_file(tmp_path / "m", rows, tmp_path / "out.csv", overwrite=True)
        assert (found.accuracy, found.unknown) == (pytest.approx(right), 0)


def test_labels_that_the_model_does_not_know_are_counted(car, tmp_path):
    table, folder, _ = car
    right = load_model(folder).predict(table.features) == table.target
    frame = table.features.assign(**{"class": table.target})
    frame.loc[:49, "class"] = "superb"
    frame.loc[50:59, "class"] = "NA"
    frame.loc[60:69, "class"] = "-"
    frame.to_csv(tmp_path / "some.csv", index=False)
    found = predict_file(folder, tmp_path / "some.csv", tmp_path / "a.csv")
    assert found.unknown == 60 and found.accuracy == pytest.approx(right[70:].mean())
    frame.assign(**{"class": "superb"}).to_csv(tmp_path / "other.csv", index=False)
    found = predict_file(folder, tmp_path / "other.csv", tmp_path / "b.csv")
    assert (found.accuracy, found.unknown) == (None, 1728)


def test_bools_of_parquet_are_judged(tmp_path):
    frame = pd.DataFrame({"x": range(40), "y": [k > 20 for k in range(40)]})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.assign(y=frame["y"].astype(int)).to_csv(tmp_path / "t.csv", index=False)
    table = read_table(tmp_path / "t.parquet", "y")
    save_model(tmp_path / "m", fit_table(table, "linear/cross_entropy", trials=1))
    first, second = (
        predict_file(tmp_path / "m", tmp_path / name, tmp_path / "out.csv", overwrite=True)
        for name in ("t.parquet", "t.csv")
    )
    assert first == second and first.accuracy > 0.9


def test_decimal_commas_and_points_are_predicted_alike(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"preis": random.standard_normal(60).round(3), "z": range(60)})
    frame["y"] = np.where(frame["preis"] > 0, "yes", "no")
    frame.to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",")
    frame.to_csv(tmp_path / "points.csv", index=False)
    frame.to_csv(tmp_path / "points.tsv", index=False, sep="\t")
    table = read_table(tmp_path / "t.csv", "y")
    assert table.fingerprint == read_table(tmp_path / "points.csv", "y").fingerprint
    save_model(tmp_path / "m", fit_table(table, "linear/cross_entropy", trials=1))
    outs = []
    for name in ("t.csv", "points.csv", "points.tsv"):
        found = predict_file(tmp_path / "m", tmp_path / name, tmp_path / "o.csv", overwrite=True)
        assert found.accuracy > 0.9
        outs.append((tmp_path / "o.csv").read_bytes())
    assert outs[0] == outs[1] == outs[2]
    (tmp_path / "quoted.csv").write_text('preis,z\n"1,5",2\n')
    predict_file(tmp_path / "m", tmp_path / "quoted.csv", tmp_path / "q.csv")
    (tmp_path / "plain.csv").write_text("preis,z\n1.5,2\n")
    predict_file(tmp_path / "m", tmp_path / "plain.csv", tmp_path / "p.csv")
    assert (tmp_path / "q.csv").read_bytes() == (tmp_path / "p.csv").read_bytes()
    # A model that has seen points alone does not know what this is.
    points = fit_table(read_table(tmp_path / "points.csv", "y"), "linear/cross_entropy", trials=1)
    save_model(tmp_path / "points", points)
    with pytest.raises(BadInput, match="row 1: '1,5' is not a number"):
        predict_file(tmp_path / "points", tmp_path / "quoted.csv", tmp_path / "none.csv")


def test_labels_are_written_as_they_are(tmp_path):
    labels = ["=1+1", "@x,y", 'say "no"', "-"]
    text = "x,z,y\n" + "".join(
        f'{(k % 4 - 1) ** 2},{k % 4 // 2},"{labels[k % 4]}"\n'.replace('"no"', '""no""')
        for k in range(40)
    )
    (tmp_path / "t.csv").write_text(text)
    table = read_table(tmp_path / "t.csv", "y")
    save_model(tmp_path / "m", fit_table(table, "linear/cross_entropy", trials=1))
    predict_file(tmp_path / "m", tmp_path / "t.csv", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["prediction"] for row in rows} == set(labels)
    assert set(rows[0]) == {"prediction", *(f"p({label})" for label in labels)}


def test_what_cannot_be_predicted_is_said_in_one_line(car, tmp_path):
    table, folder, rows = car

    def complaint(source, out="out.csv", **options) -> str:
        with pytest.raises(BadInput) as found:
            predict_file(folder, source, tmp_path / out, **options)
        assert len(str(found.value).splitlines()) == 1
        assert not (tmp_path / "out.csv").exists()
        return str(found.value)

    (tmp_path / "lost.csv").write_text(table.features.drop(columns="doors").to_csv(index=False))
    assert "lost.csv: columns 'doors' are missing" in complaint(tmp_path / "lost.csv")
    (tmp_path / "empty.csv").write_text("buying,maint\n")
    assert "no rows" in complaint(tmp_path / "empty.csv")
    text = rows.read_text() + "one,two\n"
    (tmp_path / "ragged.csv").write_text(text)
    assert f"line {text.count(chr(10))}: 2 cells" in complaint(tmp_path / "ragged.csv")
    assert "no such file" in complaint(tmp_path / "none.csv")
    assert ".csv, .tsv or .parquet" in complaint(rows, "out.xlsx")
    assert "there is no folder" in complaint(rows, "none/out.csv")
    assert "is the file to predict" in complaint(tmp_path / "lost.csv", "lost.csv", overwrite=True)
    (tmp_path / "there.csv").write_text("precious")
    assert "is there already" in complaint(rows, "there.csv")
    assert (tmp_path / "there.csv").read_text() == "precious"
    names = {"lost.csv", "empty.csv", "ragged.csv", "there.csv"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_text_in_a_column_of_numbers_is_said_with_its_row(tmp_path):
    table = read_table("iris")
    save_model(tmp_path / "m", fit_table(table, "linear/cross_entropy", trials=1))
    frame = table.features.astype(object)
    frame.iloc[120, 2] = "wide"
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(BadInput, match=r"t\.csv: column 'petal length \(cm\)', row 121: 'wide'"):
        predict_file(tmp_path / "m", tmp_path / "t.csv", tmp_path / "out.csv")


def test_a_write_that_fails_leaves_what_was_there(car, tmp_path, monkeypatch):
    _, folder, rows = car
    (tmp_path / "out.csv").write_text("before")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match="No space left"):
        predict_file(folder, rows, tmp_path / "out.csv", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert (tmp_path / "out.csv").read_text() == "before"
