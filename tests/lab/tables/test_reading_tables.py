"""Files and built-in sets become tables, or one line says why not."""

import codecs
import csv
import gzip
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from counting import calls_of
from sklearn import datasets

from hitrate_lab.bad_input import BadInput, printable
from hitrate_lab.tables import Columns, Table, read_table
from hitrate_lab.tables.formats.files import text_chunks
from hitrate_lab.tables.formats.parquet_files import read_parquet
from hitrate_lab.tables.reading import BUILT_IN, data_folders
from hitrate_lab.tables.table import make_table

COLOURS = "size,colour,y\n1,red,yes\n2.5,blue,no\n3,red,yes\n4,blue,no\n"


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes, name: str = "table.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def complaint(source, target="y", **options) -> str:
    with pytest.raises(BadInput) as found:
        read_table(source, target, **options)
    text = str(found.value)
    assert len(text.splitlines()) == 1
    return text


def test_columns_are_numbers_or_text(write):
    table = read_table(write(COLOURS), "y")
    assert table.name == "table" and table.target_name == "y"
    assert list(table.features) == ["size", "colour"]
    assert table.features["size"].tolist() == [1, 2.5, 3, 4]
    assert table.features["colour"].tolist() == ["red", "blue", "red", "blue"]
    assert table.target.tolist() == ["yes", "no", "yes", "no"]
    assert table.classes == ["no", "yes"] and table.notes[0].startswith("'colour' tells 'y'")


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_sets_know_their_target(name):
    table = read_table(name)
    assert len(table.features) == len(table.target) and len(table.classes) >= 2
    assert table.target_name not in table.features
    assert (table.name, table.fingerprint) == (name, read_table(name).fingerprint)


def test_car_is_the_complete_grid_of_the_repository():
    table = read_table("car")
    assert table.target.value_counts().to_dict() == {
        "unacc": 1210,
        "acc": 384,
        "good": 69,
        "vgood": 65,
    }
    assert table.features.nunique().tolist() == [4, 4, 4, 3, 3, 3]
    assert not table.features.duplicated().any()


def test_sets_of_scikit_learn_have_the_names_of_their_classes():
    assert read_table("iris").classes == ["setosa", "versicolor", "virginica"]
    x, y = datasets.load_digits(return_X_y=True)
    table = read_table("digits")
    np.testing.assert_array_equal(table.features, x)
    np.testing.assert_array_equal(table.target, y)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_delimiters_and_newlines_are_found(write, delimiter, newline):
    text = COLOURS.replace(",", delimiter).replace("\n", newline)
    expected = read_table(write(COLOURS), "y")
    assert read_table(write(text), "y").fingerprint == expected.fingerprint


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", b""),
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
        ("utf-32-le", codecs.BOM_UTF32_LE),
    ],
)
def test_encodings_are_told_by_their_marks(write, encoding, mark):
    text = COLOURS.replace("red", "rød").replace("size", "größe")
    table = read_table(write(mark + text.encode(encoding)), "y")
    assert list(table.features) == ["größe", "colour"]
    assert table.features["colour"][0] == "rød"


def test_kinds_of_files_hold_the_same(write, tmp_path):
    expected = read_table(write(COLOURS), "y")
    frame = pd.read_csv(tmp_path / "table.csv")
    frame.to_parquet(tmp_path / "table.parquet")
    write(gzip.compress(COLOURS.encode()), "table.csv.gz")
    write(COLOURS.replace(",", "\t"), "table.tsv")
    write(COLOURS, "table.txt")
    for name in ("table.parquet", "table.csv.gz", "table.tsv", "table.txt"):
        table = read_table(tmp_path / name, "y")
        assert (table.name, table.fingerprint) == ("table", expected.fingerprint), name


def test_cells_in_quotes_hold_anything(write):
    rows = [["a,b", 'say "hi"'], ["line\nbreak", "=1+1"], ["a,b", "@SUM(A1)"], ["x", "+1 day"]]
    path = write("")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["text", "more", "y"], *([*row, k % 2] for k, row in enumerate(rows))])
    table = read_table(path, "y")
    assert table.features.to_numpy().tolist() == rows


def test_missing_values_are_spelled_in_many_ways(write):
    spellings = ["", "NA", "NaN", "null", "?", "-", "N/A", " na "]
    text = "x,c,y\n" + "".join(f"{s},{s},{k % 2}\n" for k, s in enumerate([*spellings, "1", "2"]))
    features = read_table(write(text), "y").features
    assert features["x"].isna().tolist() == [True] * 8 + [False] * 2
    assert features["c"].isna().sum() == 8


def test_what_begins_with_a_zero_is_a_name(write):
    text = "zip,share,y\n" + "".join(f"0{k}123,0.{k},{k % 2}\n" for k in range(8))
    features = read_table(write(text), "y").features
    assert features["zip"][0] == "00123"
    spaced = text.replace(",", ", ").replace("\n0", "\n 0")
    assert read_table(write(spaced), "y").features["zip"][0] == "00123"
    assert features["share"].tolist() == [k / 10 for k in range(8)]


def test_a_column_that_turns_into_text_late_is_text_from_its_start(write, monkeypatch):
    monkeypatch.setattr("hitrate_lab.tables.formats.files.CELLS", 30)
    text = "a,b,y\n" + "".join(f"{k}.0,{k},{k % 2}\n" for k in range(50)) + "end,3,0\n"
    features = read_table(write(text), "y").features
    assert features["a"].tolist() == [f"{k}.0" for k in range(50)] + ["end"]
    assert features["b"].tolist() == [*range(50), 3]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["1", "0"], [0, 1]),
        (["2", "10"], [2, 10]),
        (["007", "7"], ["007", "7"]),
        (["1.0", "2.0"], [1, 2]),
        (["1.0", "2"], [1, 2]),
        (["1.0", "1.5"], ["1.0", "1.5"]),
        (["+", "-"], ["+", "-"]),
        (["?", "!"], ["!", "?"]),
        (["NA", "DE"], ["DE", "NA"]),
        (["None", "null"], ["None", "null"]),
        (["True", "False"], ["False", "True"]),
        (["=a", "-b"], ["-b", "=a"]),
    ],
)
def test_labels_are_as_they_are_written(write, labels, classes):
    text = "x,y\n" + "".join(f"{k},{labels[k % 2]}\n" for k in range(6))
    assert read_table(write(text), "y").classes == classes


def test_labels_of_parquet_keep_their_type(tmp_path):
    frame = pd.DataFrame({"x": range(6), "flag": [True, False] * 3, "part": [0.0, 1.0] * 3})
    frame["kind"] = pd.Categorical(["b", "a"] * 3)
    frame.to_parquet(tmp_path / "t.parquet")
    for target, classes in [("flag", [False, True]), ("part", [0, 1]), ("kind", ["a", "b"])]:
        found = read_table(tmp_path / "t.parquet", target).classes
        assert found == classes and type(found[0]) is type(classes[0])


def test_parquet_columns_of_any_type_are_read_or_left_out(tmp_path):
    frame = pd.DataFrame(
        {
            "when": pd.date_range("2024-01-01", periods=6, tz="Europe/Paris"),
            "maybe": pd.array([1, None, 3, 4, 5, 6], "Int64"),
            "list": [[1, 2]] * 6,
            "bytes": [b"ab"] * 6,
            "y": ["a", "b"] * 3,
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", "y")
    assert list(table.features) == ["when", "maybe"]
    assert table.features["when"].dtype.kind == "M" and table.features["maybe"].isna().sum() == 1
    assert "'list', 'bytes'" in table.notes[0]


def test_rows_without_a_target_and_infinities_are_noted(write):
    text = "x,y\n" + "".join(f"{k},{'ab'[k % 2]}\n" for k in range(6)) + "inf,a\n-1e999,b\n5,?\n"
    table = read_table(write(text), "y")
    assert len(table.target) == 8
    assert table.features["x"].isna().sum() == 2
    assert any("1 row without a value of 'y'" in note for note in table.notes)
    assert any("infinite" in note and "'x'" in note for note in table.notes)


def test_what_may_be_missing_is_a_class_where_it_is_frequent(write):
    def labelled(*labels):
        rows = [label for label, count in labels for _ in range(count)]
        return write("x,y\n" + "".join(f"{k % 7},{label}\n" for k, label in enumerate(rows)))

    table = read_table(labelled(("DE", 50), ("NA", 10), ("FR", 40)), "y")
    assert table.classes == ["DE", "FR", "NA"] and len(table.target) == 100
    assert table.notes == ("'NA' is taken as a class of 'y'",)
    table = read_table(labelled(("DE", 50), ("NA", 3), ("", 2), ("FR", 45), ("-", 3)), "y")
    assert table.classes == ["-", "DE", "FR"]
    assert table.notes == (
        "5 rows without a value of 'y' left out: 3 'NA', 2 empty",
        "'-' is taken as a class of 'y'",
    )
    text = complaint(labelled(("yes", 95), ("NA", 3), ("", 2)))
    assert "same target, 'y' = 'yes'; 5 rows without" in text and "3 'NA', 2 empty" in text


def test_a_target_of_parquet_is_read_as_that_of_text(write, tmp_path):
    text = "x,y\n" + "".join(f"{k % 7},{'+-'[k % 2]}\n" for k in range(30)) + "1,NA\n"
    expected = read_table(write(text), "y")
    frame = pd.read_csv(tmp_path / "table.csv", keep_default_na=False)
    frame.to_parquet(tmp_path / "table.parquet")
    table = read_table(tmp_path / "table.parquet", "y")
    assert table.classes == ["+", "-"] and len(table.target) == 30
    assert (table.fingerprint, table.notes) == (expected.fingerprint, expected.notes)


def test_rows_keep_their_numbers_in_the_file(write):
    text = "x,y\n5,\n" + "".join(f"{k},{'ab'[k % 2]}\n" for k in range(4)) + "\n9,?\n7,a\n"
    table = read_table(write(text), "y")
    assert table.row_numbers.tolist() == [2, 3, 4, 5, 7]
    assert table.features["x"].tolist() == [0, 1, 2, 3, 7]
    plain = Table("t", table.features, table.target, (), "", "y")
    assert plain.row_numbers.tolist() == [1, 2, 3, 4, 5]


def commas(delimiter, *cells):
    rows = [f"{cell}{delimiter}{k}{delimiter}{'ab'[k % 2]}" for k, cell in enumerate(cells)]
    return "\n".join([delimiter.join(["preis", "x", "y"]), *rows, ""])


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_decimal_commas_are_read_where_commas_do_not_divide_cells(write, delimiter):
    table = read_table(write(commas(delimiter, "3,5", "-0,25", "7", "", " 1,125 ")), "y")
    np.testing.assert_array_equal(table.features["preis"], [3.5, -0.25, 7, np.nan, 1.125])
    assert "'preis' has decimal commas, read as numbers" in table.notes


@pytest.mark.parametrize(
    ("delimiter", "cells"),
    [
        (";", ["3,5", "3.5", "1", "2"]),
        (";", ["1,234,567", "2,5", "1", "2"]),
        (";", ["007,5", "2,5", "1", "2"]),
        (",", ['"3,5"', '"2,5"', "1", "x"]),
        ("\t", ["1,234", "12,345", "9.87", "1,00"]),
    ],
)
def test_what_may_be_no_decimal_comma_is_text(write, delimiter, cells):
    features = read_table(write(commas(delimiter, *cells)), "y").features
    assert features["preis"].tolist() == [cell.strip('"') for cell in cells]


def test_commas_that_begin_late_hold_from_the_start(write, monkeypatch):
    monkeypatch.setattr("hitrate_lab.tables.formats.files.CELLS", 30)
    cells = [*map(str, range(40)), "3,5", "4,25"]
    assert read_table(write(commas(";", *cells)), "y").features["preis"].tolist()[-3:] == [
        39,
        3.5,
        4.25,
    ]
    for late in ("2.5", "word"):
        features = read_table(write(commas(";", *cells, *["1"] * 20, late)), "y").features
        assert features["preis"].tolist() == [*cells, *["1"] * 20, late]


@pytest.mark.parametrize("sign", ["{}%", "{} %", "${}", "1,{:03}", "1.{:03},50", "{}\N{EURO SIGN}"])
def test_numbers_whose_signs_do_not_agree_are_noted(write, sign):
    other = {"1,{:03}": "1,{:03},0", "1.{:03},50": "1,{:03}.50"}.get(sign, "{} \N{PER MILLE SIGN}")
    rows = [f'"{(sign, other)[k % 9 == 8].format(k)}",{k % 3},{"ab"[k % 2]}' for k in range(1, 40)]
    notes = read_table(write("\n".join(["x,n,y", *rows])), "y").notes
    assert any(note.startswith("'x' (such as") and "numbers with signs" in note for note in notes)
    # Text with spaces is taken for words.
    assert any("different in every row: 'x'" in note for note in notes) == (" " not in sign)


def test_zip_codes_and_names_have_no_signs(write):
    rows = [f"0{k:04},id{k},{k}-{k},{k % 3},{'ab'[k % 2]}" for k in range(40)]
    notes = read_table(write("\n".join(["zip,id,range,n,y", *rows])), "y").notes
    assert not any("signs" in note for note in notes)


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y"])
def test_dates_are_no_names_of_rows(write, form):
    days = pd.date_range("2024-01-05", periods=40).strftime(form)
    rows = [f"{day},{k % 3},{'ab'[k % 2]}" for k, day in enumerate(days)]
    table = read_table(write("\n".join(["when,n,y", *rows])), "y")
    assert table.notes == ()
    assert "when" in Columns().fit(table.features).used


def test_dates_that_may_be_read_in_two_ways_are_noted(write):
    days = [f"{k % 12 + 1:02}/{k // 12 + 1:02}/2024" for k in range(40)]
    rows = [f"{day},{k % 3},{'ab'[k % 2]}" for k, day in enumerate(days)]
    notes = read_table(write("\n".join(["when,n,y", *rows])), "y").notes
    assert any("'when' (such as '01/01/2024') looks like dates" in note for note in notes)
    assert any("different in every row: 'when'" in note for note in notes)


def test_columns_that_tell_too_much_or_nothing_are_noted(write):
    rows = [f"{k},same,{'ab'[k % 2]},u{k}x,{k % 2},{k % 3}" for k in range(30)]
    table = read_table(write("\n".join(["n,constant,y,id,leak,fine", *rows])), "y")
    notes = "\n".join(table.notes)
    assert "'leak' tells 'y'" in notes
    assert "the same in every row: 'constant'" in notes
    assert "different in every row: 'id'" in notes
    assert "'fine'" not in notes and "'n'" not in notes
    assert list(table.features) == ["n", "constant", "id", "leak", "fine"]


def test_numbers_that_one_cell_makes_text_are_noted(write):
    cells = [*(f"{k}.5" for k in range(40)), "unknown"]
    text = "x,y\n" + "".join(f"{cell},{'ab'[k % 2]}\n" for k, cell in enumerate(cells * 2))
    (note,) = read_table(write(text), "y").notes
    assert "'x' because of 'unknown'" in note


def test_names_are_made_to_differ(write):
    table = read_table(write("a,,a,y\n1,2,3,p\n4,5,7,q\n1,1,1,p\n1,1,2,q\n"), "y")
    assert list(table.features) == ["a", "column 2", "a (2)"]
    assert "'column 2', 'a (2)'" in table.notes[0]


def test_a_header_of_numbers_is_noted(write):
    rows = "".join(f"{k},{k * k},{k % 2}\n" for k in range(2, 9))
    assert any(
        "all column names are numbers" in note for note in read_table(write(rows), "0").notes
    )


def test_a_first_column_that_counts_the_rows_is_not_used(write):
    frame = pd.DataFrame({"x": [3, 1, 4, 1], "y": ["a", "b", "b", "a"]})
    table = read_table(write(frame.to_csv()), "y")
    assert list(table.features) == ["x"] and "counts the rows" in table.notes[-1]


def test_the_fingerprint_is_of_the_content(write):
    first = read_table(write(COLOURS, "a.csv"), "y").fingerprint
    assert first == read_table(write(COLOURS, "b.csv"), "y").fingerprint
    for other in (COLOURS.replace("2.5", "2.6"), COLOURS.replace("size", "length")):
        assert read_table(write(other), "y").fingerprint != first
    text, number = (
        pd.DataFrame({"x": values, "z": [1, 2, 3, 4], "y": ["a", "b"] * 2})
        for values in ([True, False, False, True], [1, 0, 0, 1])
    )
    assert make_table(text, "y", "t").fingerprint != make_table(number, "y", "t").fingerprint
    swapped = COLOURS.replace("yes", "never").replace("no", "yes").replace("never", "no")
    assert read_table(write(swapped), "y").fingerprint != first


def test_what_a_file_lacks_is_said_in_one_line(write, tmp_path):
    assert "no such file" in complaint(tmp_path / "none.csv")
    assert "is a folder" in complaint(tmp_path)
    assert "save the sheet as CSV" in complaint(write("x", "t.xlsx"))
    assert "only .csv" in complaint(write("x", "t.json"))
    assert "is empty" in complaint(write(""))
    assert "is empty" in complaint(write("\n\n\n"))
    assert "no rows" in complaint(write("a,y\n"))
    assert "cannot be unpacked" in complaint(write(gzip.compress(b"a,y\n")[:-9], "t.csv.gz"))
    assert "cannot be read as Parquet" in complaint(write("a,y\n", "t.parquet"))
    assert complaint("\0\x1b[31m.csv") == r"\x00\x1b[31m.csv: there is no such file"
    assert "give a file" in complaint("")


def test_where_a_row_is_ragged_is_said(write):
    text = complaint(write('a,b,y\n1,"x\ny",p\n1,2\n'))
    assert "line 4: 2 cells, but the header has 3" in text
    assert "line 2: 4 cells" in complaint(write("a,b,y\n1,2,3,4\n"))


def test_where_the_text_ends_is_said(write):
    data = COLOURS.replace("blue", "größe").encode("latin-1")
    place = data.index(b"\xf6")
    text = complaint(write(data))
    assert f"byte {place} (0xf6) is not UTF-8" in text and "iconv" in text
    far = b"a,y\n" + b"x,1\n" * 5000
    assert f"byte {len(far)} (0xff)" in complaint(write(far + b"\xff,1\n"))
    assert "line 3: holds NUL" in complaint(write("a,y\n1,p\n\0,q\n"))
    assert "UTF-16 without its mark" in complaint(write(COLOURS.encode("utf-16-le")))
    assert "line 2: a quote" in complaint(write('a,y\n"1,p\n'))


def test_a_megabyte_in_a_cell_is_read(write):
    long = "word " * 200_000
    table = read_table(write(f"a,b,y\n{long},1,p\nb,1,q\nb,2,p\nb,3,q\n"), "y")
    assert len(table.features["a"][0]) == len(long) - 1


def test_the_name_that_was_meant_is_suggested(write):
    assert "did you mean 'Colour'?" in complaint(
        write(COLOURS.replace("colour", "Colour")), "color"
    )
    assert "it has 'size', 'colour', 'y'" in complaint(write(COLOURS), "nonsense")
    assert "say which column is the target; it has 'size'" in complaint(write(COLOURS), None)
    many = ",".join(f"c{k}" for k in range(500)) + "\n" + ",".join("1" * 500) + "\n"
    text = complaint(write(many), None)
    assert "and 492 more" in text and len(text) < 400


def test_targets_that_are_no_classes_are_refused(write):
    def labelled(labels):
        return write("x,y\n" + "".join(f"{k % 7},{label}\n" for k, label in enumerate(labels)))

    assert "same target, 'y' = 'a'" in complaint(labelled("aaaa"))
    assert "class 'c' of 'y' has 1 row" in complaint(labelled("aabbc"))
    assert "and 1 more class has too few" in complaint(labelled("aabbcd"))
    assert "and 2 more classes have too few" in complaint(labelled("aabbcde"))
    assert "at least 3" in complaint(labelled("aabbb"), fewest=3)
    assert "empty in every row" in complaint(labelled(["", "?", "NA"]))
    assert "number with 60 different values" in complaint(labelled(k / 7 for k in range(60)))
    assert "number with 40 different values" in complaint(labelled(k % 40 for k in range(200)))
    assert "only column" in complaint(write("y\na\nb\na\nb\n"))
    assert "more than one column 'y'" in complaint(write("x,y,y\n1,a,a\n2,b,b\n"))
    assert len(read_table(labelled(k % 40 for k in range(2000)), "y").classes) == 40


def test_columns_that_are_all_of_no_use_are_refused(write):
    rows = "".join(f"1,u{k}x,{'ab'[k % 2]}\n" for k in range(30))
    text = complaint(write("same,id,y\n" + rows))
    with pytest.raises(BadInput) as found:
        Columns().fit(pd.DataFrame({"same": [1] * 30}))
    assert text == f"table: {found.value}"
    dates = "".join(f"{k % 12 + 1:02}/{k // 12 + 1:02}/2024,{'ab'[k % 2]}\n" for k in range(30))
    assert "no column is of use" in (text := complaint(write("when,y\n" + dates)))
    assert "write them as 2024-12-31" in text


def test_lines_of_blanks_are_passed_over(write):
    text = COLOURS.replace("2.5", " \n2.5") + "   \n\t\n"
    assert (
        read_table(write(f" \n{text}"), "y").fingerprint
        == read_table(write(COLOURS), "y").fingerprint
    )


def test_what_a_terminal_would_act_on_is_spelt_out():
    assert printable("a\x1b[31mb\u202ec\td é") == r"a\x1b[31mb\u202ec\td é"
    assert str(BadInput("one\ntwo\x07")) == r"one two\x07"


def test_a_set_is_looked_for_in_the_data_folder(tmp_path, monkeypatch):
    (tmp_path / "mine.csv").write_text(COLOURS.replace(",y", ",class"))
    assert read_table("mine", data_dir=tmp_path).target_name == "class"
    monkeypatch.setenv("HITRATE_DATA", str(tmp_path))
    assert read_table("mine", "colour").classes == ["blue", "red"]
    monkeypatch.setenv("HITRATE_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = complaint("mine", None)
    assert "no data set 'mine'" in text and "car" in text and "mine.csv" in text
    assert data_folders()[0] == tmp_path / "none"


def test_parquet_without_pyarrow_says_how_to_get_it(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install pyarrow" in complaint(path)


def text_of_many_columns(count):
    names = ",".join(f"c{k}" for k in range(count))
    cells = np.random.default_rng(0).integers(100, size=(50, count))
    rows = [",".join([*"ab"[k % 2], *map(str, row)]) for k, row in enumerate(cells)]
    return "\n".join([f"y,{names}", *rows])


@pytest.mark.slow
def test_ten_thousand_columns_are_read(write):
    table = read_table(write(text_of_many_columns(10_000)), "y")
    assert table.features.shape == (50, 10_000)


def test_twice_as_many_columns_are_twice_the_work(write):
    # The first time something may be imported.
    paths = [write(text_of_many_columns(count), f"{count}.csv") for count in (299, 300, 600)]
    _, once, twice = (calls_of(lambda path=path: read_table(path, "y")) for path in paths)
    assert twice < 2.2 * once


def test_parquet_in_pieces_is_the_table_in_pieces(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"x": random.standard_normal(1000), "n": range(1000)})
    frame["maybe"] = pd.array([None if k % 7 == 3 else k for k in range(1000)], "Int64")
    frame["kind"] = pd.Categorical(random.choice(["a", " b", "?"], 1000))
    frame["flag"] = random.random(1000) < 0.5
    frame["when"] = pd.date_range("2024-01-01", periods=1000, tz="Europe/Paris")
    frame["list"] = [[1]] * 1000
    path = tmp_path / "t.parquet"
    # Groups of rows that no piece fits into.
    frame.to_parquet(path, row_group_size=333)
    whole, *_ = read_parquet(path, [])
    pieces = list(text_chunks(path, 100))
    assert max(map(len, pieces)) <= 100
    joined = pd.concat(pieces)
    assert joined.index.tolist() == list(range(1000)) and "list" not in joined
    for name in whole:
        # A piece without gaps may have whole numbers, or bools, where the table has not.
        pd.testing.assert_series_equal(joined[name], whole[name], check_dtype=False)


def test_a_piece_of_parquet_does_not_take_the_room_of_the_file(tmp_path):
    import pyarrow

    path = tmp_path / "t.parquet"
    # One group of rows, of numbers that do not pack: 40 MB.
    x = np.random.default_rng(0).standard_normal((1_000_000, 5))
    pd.DataFrame(x, columns=list("abcde")).to_parquet(path, row_group_size=1_000_000)
    before, most = pyarrow.total_allocated_bytes(), 0
    with closing(text_chunks(path, 1000)) as pieces:
        for piece in islice(pieces, 300):
            most = max(most, pyarrow.total_allocated_bytes() - before)
            assert len(piece) == 1000
    # Of each column a page and what it is unpacked to, of about a megabyte each, and a dictionary.
    assert 0 < most < 20e6


def test_a_damaged_piece_of_parquet_is_told(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"x": np.random.default_rng(0).standard_normal(50_000)}).to_parquet(path)
    content = bytearray(path.read_bytes())
    content[1000:200_000] = bytes(199_000)
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"t\.parquet: cannot be read as Parquet"):
        list(text_chunks(path, 100))
