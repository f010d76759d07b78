"""What a file is by its first bytes, whatever its name says."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from pathlib import Path

GZIP, XZ, PARQUET_MAGIC, ZIP = b"\x1f\x8b", b"\xfd7zXZ\x00", b"PAR1", b"PK\x03\x04"
# So much of a file is looked at; the mark of a tar archive is the farthest.
LOOKED_AT = 512
TAR_MARK = 257
AS_CSV = "save the sheet as CSV, or: pandas.read_excel({name!r}).to_csv('table.csv', index=False)"
UNREADABLE = (zipfile.BadZipFile, lzma.LZMAError, zlib.error)
ARCHIVE = "unpack it and name the table in it"
TEXT_TABLE = "it must be text with a header, or Parquet"
# All but those that control something: a letter of any encoding is no sign of another format.
TEXT_BYTES = frozenset([*b"\t\n\v\f\r", *range(32, 127), *range(128, 256)])
# How files begin, what they are, and what to do with them.
BEGINNINGS = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel workbook (.xls)", AS_CSV),
    (b"PK\x05\x06", "an empty zip archive", ARCHIVE),
    (b"BZh", "packed with bzip2", "unpack it: bunzip2"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd", "unpack it: unzstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", ARCHIVE),
    (b"Rar!\x1a", "a RAR archive", ARCHIVE),
    (b"ARROW1", "Feather", "save it as Parquet: pandas.read_feather({name!r}).to_parquet(...)"),
    (b"ORC", "ORC", "save it as Parquet: pandas.read_orc({name!r}).to_parquet(...)"),
    (b"Obj\x01", "Avro", "save it as Parquet or CSV"),
    (b"\x89HDF", "HDF5", "save its table as Parquet or CSV"),
    (b"SQLite format 3\x00", "a database of SQLite", "save a table of it as CSV"),
    (b"\x93NUMPY", "an array of NumPy (.npy)", "save it as CSV, with a header"),
    (b"$FL2", "a data file of SPSS", "save it as CSV"),
    (b"\x80\x02", "a pickle of Python, which is code", "save it as CSV or Parquet"),
    (b"\x80\x03", "a pickle of Python, which is code", "save it as CSV or Parquet"),
    (b"\x80\x04", "a pickle of Python, which is code", "save it as CSV or Parquet"),
    (b"\x80\x05", "a pickle of Python, which is code", "save it as CSV or Parquet"),
    (b"\x89PNG", "a picture", TEXT_TABLE),
    (b"GIF8", "a picture", TEXT_TABLE),
    (b"\xff\xd8\xff", "a picture", TEXT_TABLE),
    (b"\x7fELF", "a program", TEXT_TABLE),
)
# How text begins, in small letters and after blanks, that is no table of cells.
TEXTS = (
    (b"<!doctype html", "a page of HTML", "perhaps a download that failed; save its table as CSV"),
    (b"<html", "a page of HTML", "perhaps a download that failed; save its table as CSV"),
    (b"<?xml", "XML", "save it as CSV"),
    (b'{"', "JSON", "save it as CSV: pandas.read_json({name!r}).to_csv(...)"),
    (b"[{", "JSON", "save it as CSV: pandas.read_json({name!r}).to_csv(...)"),
    (b"[[", "JSON", "save it as CSV, with a header"),
    (b"{\\rtf", "a document of rich text", "save it as plain text"),
    (b"%pdf-", "a PDF", "copy its table into a CSV file"),
    (b"<stata_dta>", "a data file of Stata", "save it as CSV"),
    (
        b"version https://git-lfs.github.com/spec/",
        "only a pointer to a file that Git LFS keeps",
        "fetch the file itself: git lfs pull",
    ),
)


def complaint_about(path: Path, start: bytes) -> str | None:
    r"""Why bytes that begin so are no table that can be read, and what to do; None if they may be.

    Parameters
    ----------
    path : Path
        For the message; a zip archive is opened to see what is in it.
    start : bytes
        The first `LOOKED_AT` of them, unpacked.

    Examples
    --------
    >>> complaint_about(Path("a.csv"), b"SQLite format 3\x00...")
    'a.csv is a database of SQLite; save a table of it as CSV'
    """
    if start.startswith(ZIP):
        what, mend = _zipped(path)
    elif start.startswith(PARQUET_MAGIC) and _is_binary(start):
        what, mend = "Parquet", "give it a name that ends in .parquet"
    elif start[TAR_MARK:].startswith(b"ustar"):
        what, mend = "a tar archive", ARCHIVE
    else:
        text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
        # A column may be called ORC.
        known = BEGINNINGS if _is_binary(start) else ()
        found = next((each for each in known if start.startswith(each[0])), None)
        found = found or next((each for each in TEXTS if text.startswith(each[0])), None)
        if found is None:
            return None
        _, what, mend = found
    return f"{path} is {what}; {mend.format(name=path.name)}"


def _is_binary(start: bytes) -> bool:
    """Whether there are bytes that no text has."""
    return any(byte not in TEXT_BYTES for byte in start)


def _zipped(path: Path) -> tuple[str, str]:
    """What a zip archive is, by the names in it."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            kind = _mimetype(archive)
    except (OSError, RuntimeError, ValueError, *UNREADABLE):
        return "a zip archive, and damaged", ARCHIVE
    if any(name.startswith("xl/") for name in names):
        return "an Excel workbook (.xlsx)", AS_CSV
    if b"opendocument.spreadsheet" in kind:
        return "an OpenDocument sheet (.ods)", AS_CSV
    if any(name.startswith("word/") for name in names):
        return "a Word document", "save its table as CSV"
    if names and all(name.endswith(".npy") for name in names):
        return "arrays of NumPy (.npz)", "save them as CSV, with a header"
    return "a zip archive", ARCHIVE


def _mimetype(archive: zipfile.ZipFile) -> bytes:
    """What the archive says it is, as those of OpenDocument do, which do not pack it."""
    try:
        with archive.open("mimetype") as file:
            return file.read(100)
    except (LookupError, RuntimeError, EOFError, OSError, ValueError, *UNREADABLE):
        return b""
