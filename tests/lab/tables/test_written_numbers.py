"""Numbers as people write them are numbers, in tables and at prediction; in doubt they are text."""

import json

import numpy as np
import pandas as pd
import pytest

from hitrate_lab.bad_input import BadInput
from hitrate_lab.compare.fit import fit_table, predict_file
from hitrate_lab.models.folder import load_model, save_model
from hitrate_lab.tables import Columns, read_table
from hitrate_lab.tables.written import Form, Writing

nan = float("nan")
READ = {
    "decimal commas": (",", ["3,5", "-2,25", "", "1"], [3.5, -2.25, nan, 1]),
    "thousands": (",", ["1,234", "12,345,678", "987"], [1234, 12345678, 987]),
    "thousands beside tabs": ("\t", ["1,234", "12,345", "987"], [1234, 12345, 987]),
    "commas beside semicolons": (";", ["1,234", "12,345", "987"], [1.234, 12.345, 987]),
    "thousands and parts": (",", ["1,234.5", "2", "3.25"], [1234.5, 2, 3.25]),
    "points and commas": (",", ["1.234,5", "2", "3,25", "1.000"], [1234.5, 2, 3.25, 1000]),
    "points alone": (",", ["1.234.567", "2.000", "5"], [1234567, 2000, 5]),
    "blanks": (",", ["1 234", "12 345,5", "7"], [1234, 12345.5, 7]),
    "narrow blanks": (",", ["1\u202f234", "1\u00a0234", "7"], [1234, 1234, 7]),
    "apostrophes": (",", ["1'234", "1\u2019234.5"], [1234, 1234.5]),
    "dollars": (",", ["$5", "$1,234.50", "-$3", "$-2", "7"], [5, 1234.5, -3, -2, 7]),
    "euros": (";", ["\u20ac 3", "4,50 \u20ac", "\u20ac1.000,00"], [3, 4.5, 1000]),
    "codes": (",", ["EUR 3", "EUR 4.5"], [3, 4.5]),
    "percent": (",", ["12 %", "3%", "0.5 %", "?", "4"], [12, 3, 0.5, nan, 4]),
    "units": (",", ["5 kg", "6.5kg", "0"], [5, 6.5, 0]),
    "unusual units": (",", ["20 \u00b0C", "-3,5 \u00b0C"], [20, -3.5]),
    "minus": (",", ["\u22125", "5", "+3"], [-5, 5, 3]),
    "powers": (",", ["1e3", "$5", "inf"], [1000, 5, np.inf]),
}


@pytest.mark.parametrize("name", READ)
def test_what_people_write_is_read(name):
    divided_by, cells, expected = READ[name]
    form = Writing(divided_by).see(cells)
    np.testing.assert_array_equal(form.numbers(cells), expected)
    # The order of cells, and how many are seen at once, changes nothing.
    writing = Writing(divided_by)
    for cell in reversed(cells):
        last = writing.see([cell])
    assert last == form


@pytest.mark.parametrize(
    "cells",
    [
        ["3,5", "3.5"],
        ["1,234,567", "2,5"],
        ["1,234.5", "1.234,5"],
        ["5 kg", "300 g"],
        ["2", "3", "5more"],
        ["$5", "5 \u20ac"],
        ["1st", "2nd", "3rd"],
        ["id1", "id2"],
        ["007,5", "2,5"],
        ["00123 kg", "5 kg"],
        ["1,23,456", "5"],
        ["12:30", "11:00"],
        ["1-2", "3-4"],
        ["1_000", "$5"],
        ["0x10", "$5"],
        ["--5", "$5"],
        ["5" * 200 + " kg", "5 kg"],
        ["1 2", "3 4"],
    ],
)
def test_what_is_in_doubt_is_text(cells):
    assert Writing(",").see(cells) is None


def test_a_number_of_another_form_is_refused_and_a_plain_one_read():
    form = Form(decimal=",", thousands=".", unit="kg")
    assert [form.number(text) for text in ("1.234,5 kg", "1.234", "3,5", "3.5", "5 g", "x")] == [
        1234.5,
        1234,
        3.5,
        None,
        None,
        None,
    ]
    assert Form(decimal=",").number("3.5") == 3.5 == Form(unit="%").number("3.5")


@pytest.fixture
def prices(tmp_path):
    random = np.random.default_rng(0)
    values = random.normal(0, 3000, 80).round(2)
    frame = pd.DataFrame({"price": [f"$ {value:,.2f}" for value in values], "n": range(80)})
    frame["y"] = np.where(values > 0, "dear", "cheap")
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.assign(price=values).to_csv(tmp_path / "plain.csv", index=False)
    return tmp_path


def test_a_model_reads_new_rows_as_it_read_those_it_was_fitted_to(prices):
    table = read_table(prices / "t.csv", "y")
    (note,) = table.notes
    assert note.startswith("'price' has commas between thousands and '$' beside each number (such")
    assert note.endswith("read as numbers")
    assert table.fingerprint == read_table(prices / "plain.csv", "y").fingerprint
    save_model(prices / "m", fit_table(table, "linear/cross_entropy", trials=1))
    outs = []
    for name in ("t.csv", "plain.csv"):
        found = predict_file(prices / "m", prices / name, prices / "o.csv", overwrite=True)
        assert found.accuracy > 0.9
        outs.append((prices / "o.csv").read_bytes())
    assert outs[0] == outs[1]
    (prices / "new.csv").write_text('price,n\n"$ 3,50",1\n')
    with pytest.raises(BadInput, match=r"'price', row 1: '\$ 3,50' is not a number like '\$ "):
        predict_file(prices / "m", prices / "new.csv", prices / "n.csv")


def test_one_row_alone_is_read_in_the_form_of_training(prices):
    save_model(prices / "m", fit_table(read_table(prices / "t.csv", "y"), "linear/cross_entropy"))
    model = load_model(prices / "m")
    alone, plain = (pd.DataFrame({"price": [each], "n": [3]}) for each in ("$ 1,234", 1234.0))
    np.testing.assert_array_equal(model.predict_proba(alone), model.predict_proba(plain))


def test_a_form_that_begins_late_holds_from_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr("hitrate_lab.tables.formats.files.CELLS", 30)
    cells = [*map(str, range(40)), "1.000,5 kg", *["7 kg"] * 20]
    path = tmp_path / "t.csv"
    rows = [f'"{cell} kg",{k % 2},{k % 3}' for k, cell in enumerate(range(40))]
    path.write_text("\n".join(["x,y,z", *rows, '"1.000,5 kg",0,1', '"2,5 kg",1,1', ""]))
    assert read_table(path, "y").features["x"].tolist() == [*map(float, range(40)), 1000.5, 2.5]
    # Numbers without a unit are not of it.
    path.write_text("\n".join(["x,y,z", *(f'"{c}",{k % 2},1' for k, c in enumerate(cells)), ""]))
    assert read_table(path, "y").features["x"].tolist() == cells


def test_states_without_forms_still_load_and_strange_forms_do_not(prices):
    table = read_table(prices / "t.csv", "y")
    columns = Columns(forms=table.forms).fit(table.features)
    state = json.loads(json.dumps(columns.to_json()))
    again = Columns.from_json(state)
    assert again.plain_numbers == columns.plain_numbers == ["n"]
    (form,) = state["forms"]
    for change in ({"decimal": ";"}, {"thousands": "x"}, {"thousands": "."}, {"unit": "x" * 999}):
        with pytest.raises(BadInput, match="columns' state"):
            Columns.from_json({**state, "forms": [form | change]})
    with pytest.raises(BadInput, match="columns' state"):
        Columns.from_json({**state, "forms": [{**form, "name": "other"}]})
    del state["forms"]
    assert Columns.from_json(state).plain_numbers == ["price", "n"]
