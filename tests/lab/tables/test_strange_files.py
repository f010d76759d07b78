"""What is no table is named for what it is, packed text is read, and nothing waits or grows."""

import bz2
import gzip
import lzma
import os
import socket
import tarfile
import zipfile

import pandas as pd
import pytest

from hitrate_lab.bad_input import BadInput
from hitrate_lab.tables import read_table
from hitrate_lab.tables.formats.files import text_chunks

ROWS = "size,colour,y\n" + "".join(f"{k}.5,{'rgb'[k % 3]},{'ab'[k % 2]}\n" for k in range(12))


def complaint(source, target="y") -> str:
    with pytest.raises(BadInput) as found:
        read_table(source, target)
    text = str(found.value)
    assert len(text.splitlines()) == 1
    return text


@pytest.mark.skipif(os.name == "nt", reason="Windows has neither")
def test_what_is_no_plain_file_is_refused_without_waiting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.csv")
    os.symlink("/dev/zero", "zero.csv")
    os.symlink("pipe.csv", "link.csv")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind("socket.csv")
    os.symlink("loop.csv", "loop.csv")
    (tmp_path / "folder.parquet").mkdir()
    assert complaint("pipe.csv").startswith("pipe.csv is a named pipe; ")
    assert "is a named pipe" in complaint("link.csv")
    assert "is a device" in complaint("zero.csv")
    assert "is a socket" in complaint("socket.csv")
    assert "is a folder" in complaint("folder.parquet")
    assert complaint("loop.csv")


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path, monkeypatch):
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes with names")
    os.mkfifo(tmp_path / "t.csv")
    # As if it had been a file a moment before.
    monkeypatch.setattr("hitrate_lab.tables.formats.files.checked_file", lambda path: path)
    with pytest.raises(BadInput, match="named pipe"):
        next(text_chunks(tmp_path / "t.csv", 5))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv.gz", "t.txt"])
@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_packed_text_is_read_whatever_its_name(pack, name, tmp_path):
    text = ROWS.replace(",", "\t") if ".tsv" in name else ROWS
    (tmp_path / "plain.csv").write_text(ROWS)
    (tmp_path / name).write_bytes(pack(text.encode()))
    expected = read_table(tmp_path / "plain.csv", "y")
    assert read_table(tmp_path / name, "y").fingerprint == expected.fingerprint
    (tmp_path / "twice.csv.gz").write_bytes(pack(text.encode()) * 2)
    assert len(next(text_chunks(tmp_path / "twice.csv.gz", 10**6))) == 25


def test_names_and_endings_of_packed_files(tmp_path):
    (tmp_path / "mine.csv.xz").write_bytes(lzma.compress(ROWS.encode()))
    assert read_table(tmp_path / "mine.csv.xz", "y").name == "mine"
    # What a browser has unpacked keeps the name that it had.
    (tmp_path / "plain.csv.gz").write_text(ROWS)
    assert read_table(tmp_path / "plain.csv.gz", "y").name == "plain"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_damaged_packing_is_one_line(pack, tmp_path):
    path = tmp_path / "t.csv"
    data = pack(ROWS.encode() * 200)
    path.write_bytes(data[: len(data) // 2])
    assert "cannot be unpacked" in complaint(path)
    path.write_bytes(data[:20] + bytes([data[20] ^ 255]) + data[21:])
    assert "t.csv" in complaint(path)


def test_a_file_that_unpacks_out_of_proportion_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("hitrate_lab.tables.formats.opened.UNPACKED", 100_000)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n" * 1_000_000))
    assert "unpacks to more than" in complaint(path) and "times its own" in complaint(path)
    # Text that packs well, but not so well, is read.
    rows = "".join(f"{k * k % 1009},{'ab'[k % 2]}\n" for k in range(20_000))
    path.write_bytes(gzip.compress(f"x,y\n{rows}".encode()))
    assert len(read_table(path, "y").target) == 20_000


def test_files_are_named_for_what_they_are(tmp_path):
    path = tmp_path / "t.csv"

    def zipped(name, text="x"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, text)
        return complaint(path)

    found = zipped("xl/workbook.xml")
    assert "is an Excel workbook (.xlsx); save the sheet as CSV, or: pandas.read_excel" in found
    assert "(.ods)" in zipped("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
    assert "is a zip archive; unpack it" in zipped("t.csv")
    path.write_bytes(path.read_bytes()[:30])
    assert "zip archive, and damaged" in complaint(path)
    pd.DataFrame({"x": [1, 2], "y": [1, 2]}).to_parquet(path)
    assert "is Parquet; give it a name that ends in .parquet" in complaint(path)
    with tarfile.open(path, "w:gz") as archive:
        archive.add(__file__, "t.csv")
    assert "is a tar archive" in complaint(path)
    for start, what in {
        bz2.compress(b"x"): "bzip2",
        b"ORC\x08\x03": "is ORC",
        b"%PDF-1.7\n%\xe2": "PDF",
        b"\x80\x04\x95": "pickle",
        b"SQLite format 3\0": "SQLite",
        b"\xef\xbb\xbf \n<!DOCTYPE html>": "HTML",
        b'[{"x": 1}]': "JSON",
        b"version https://git-lfs.github.com/spec/v1\n": "git lfs pull",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "old Excel",
    }.items():
        path.write_bytes(start)
        assert what in complaint(path) and "iconv" not in complaint(path)
    path.rename(tmp_path / "t.parquet")
    assert "old Excel workbook" in complaint(tmp_path / "t.parquet")


@pytest.mark.parametrize("name", ["ORC", "PAR1", "BZh9", "GIF8", "Obj", "PK"])
def test_a_column_may_be_called_like_a_format(name, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(ROWS.replace("size", name).replace(",r,", ",é,"), encoding="utf-8")
    assert next(iter(read_table(path, "y").features)) == name


def test_a_target_of_lists_or_bytes_is_named_for_its_kind(tmp_path):
    path = tmp_path / "t.parquet"
    kinds = {"lists (list<": [[1], [2]], "bytes (binary)": [b"a", b"b"], "records": [{"a": 1}] * 2}
    for what, values in kinds.items():
        pd.DataFrame({"x": [1.0, 2.0], "y": values}).to_parquet(path)
        assert f"the column 'y' is of {what}" in complaint(path)
        assert "no column 'none'" in complaint(path, "none")


def test_parquet_out_of_proportion_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"x": [1.0] * 100_000, "y": ["a"] * 100_000}).to_parquet(path)
    monkeypatch.setattr("hitrate_lab.tables.formats.parquet_files.FEW_CELLS", 1000)
    monkeypatch.setattr("hitrate_lab.tables.formats.parquet_files.CELLS_PER_BYTE", 2)
    assert "100,000 rows and 2 columns, out of all proportion" in complaint(path)


def test_what_has_too_many_columns_is_counted_and_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"c{k}" for k in range(100_001)) + "\n")
    assert "the first line has 100,001 cells" in complaint(path)
    monkeypatch.setattr("hitrate_lab.tables.formats.delimited.LONGEST", 1000)
    path.write_text("x,y\n1,a\n" + "x" * 2000)
    assert "line 3: longer than 1,000 characters" in complaint(path)
    path.write_text('x,y\n1,a\n"' + "x,\n" * 2000)
    assert "line 3" in complaint(path) or "a quote that is not closed" in complaint(path)


def test_targets_with_a_class_for_nearly_every_row_are_refused(tmp_path):
    path = tmp_path / "t.csv"

    def labelled(count, rows):
        lines = [f"{k % 7},{k % 11},w{k % count}" for k in range(rows)]
        path.write_text("\n".join(["a,b,y", *lines, ""]))
        return path

    assert "'y' has 5,000 classes in 10,000 rows" in complaint(labelled(5000, 10_000))
    assert "is different in every row" in complaint(labelled(50, 50))
    assert len(read_table(labelled(150, 750), "y").classes) == 150
    assert len(read_table(labelled(99, 198), "y").classes) == 99


def test_what_takes_long_to_read_says_so_first(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text(ROWS)
    said = []
    read_table(path, "y", progress=said.append)
    assert said == []
    monkeypatch.setattr("hitrate_lab.tables.formats.files.SLOW_COLUMNS", 2)
    monkeypatch.setattr("hitrate_lab.tables.formats.files.SLOW_BYTES", 10)
    read_table(path, "y", progress=said.append)
    assert said == ["reading t.csv, 0 MB", "reading t.csv, 3 columns"]
