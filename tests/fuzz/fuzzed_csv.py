"""Files that a reader of tables may meet: a seed gives bytes and the ending of the name.

Most begin as a table with a column "y" of two classes; then something is done to it, or to the
bytes.
"""

import codecs
import gzip
import random

TARGET = "y"

PLAIN = ["a", "b", "red", "green", "x y", "New York"]
NUMBERS = ["0", "1", "-1", "2.5", "1e5", "1e308", "-1e308", "5e-324", "1e400", "inf", "-inf", "NaN"]
MISSING = ["", "NA", "NaN", "null", "?", "-", "N/A", " "]
FORMULAS = ["=1+1", "=cmd|' /C calc'!A0", "+1", "@SUM(A1:A9)", '=HYPERLINK("x")', "-2+3"]
AS_TEXT = [
    "1,000",
    "1.000,5",
    "1_000",
    "007",
    "0x10",
    "1e",
    "٣",
    "½",
    "1 2",
    "--5",
    "+5",
    ".5",
    "5.",
]
UNICODE = [
    "é",
    "日本",
    "🙂",
    "e\u0301",
    "\u202eabc",
    "\ufeff",
    "\u2028",
    "ß",
    "\u00a0",
    "a\u0085b",
    "\ufffe",
]
DATES = [
    "2024-02-29",
    "2023-02-30",
    "2024-02-29 06:30",
    "2024/1/5",
    "0001-01-01",
    "9999-12-31T23:59:60Z",
    "31.12.2024",
    "31/12/2024",
    "12/31/2024 06:30",
    "01/02/2024",
]
QUOTED = ['say "hi"', "a,b", "a;b", "line\nbreak", "tab\there", "cr\rhere", '"', "''", ',";|']
TEXTS = ["the quick brown fox", "lorem ipsum dolor sit amet", "a very good product indeed"]
POOLS = [PLAIN, NUMBERS, MISSING, FORMULAS, AS_TEXT, UNICODE, DATES, QUOTED]


def fuzzed_csv(seed: int) -> tuple[bytes, str]:
    """Bytes of a file, and the ending of its name."""
    rng = random.Random(seed)
    header, rows = _table(rng)
    _bend(rng, header, rows)
    delimiter = rng.choice([",", ",", ",", ";", "\t", "|"])
    ending = (
        ".tsv" if delimiter == "\t" and rng.random() < 0.5 else rng.choice([".csv", ".csv", ".txt"])
    )
    newline = rng.choice(["\n", "\n", "\r\n", "\r"])
    quotes = rng.choice(["needed"] * 5 + ["all"] * 2 + ["none"])
    text = newline.join(
        delimiter.join(_cell(cell, delimiter, quotes) for cell in row) for row in [header, *rows]
    )
    text += rng.choice([newline, newline, "", newline * 3])
    data = _encoded(rng, text)
    data = _damaged(rng, data)
    if rng.random() < 0.08:
        data = gzip.compress(data, mtime=0)
        ending += ".gz"
        if rng.random() < 0.3:
            data = data[: len(data) // 2]
    return data, ending


def _table(rng: random.Random) -> tuple[list[str], list[list[str]]]:
    """A header and rows, each column from a pool or from several."""
    count = rng.choice([1, 5, 12, 30, 30, 60])
    columns = []
    for _ in range(rng.choice([1, 2, 3, 4, 6, 15]) * (rng.random() > 0.05)):
        kind = rng.random()
        if kind < 0.3:
            point = rng.choice([".", ".", ","])
            cells = [f"{rng.gauss(0, 10 ** rng.randrange(5)):.4g}" for _ in range(count)]
            columns.append([cell.replace(".", point) for cell in cells])
        elif kind < 0.4:
            columns.append([f"id{rng.randrange(10**9)}" for _ in range(count)])
        elif kind < 0.5:
            columns.append([f"{rng.choice(TEXTS)} {rng.randrange(999)}" for _ in range(count)])
        else:
            pools = rng.sample(POOLS, rng.choice([1, 1, 2, 3]))
            columns.append([rng.choice(rng.choice(pools)) for _ in range(count)])
    labels = rng.choice(
        [
            ["yes", "no"],
            ["0", "1"],
            ["True", "False"],
            ["é", "日本"],
            ["1.5", "x", ""],
            ["+", "-"],
            ["NA", "DE"],
        ]
    )
    target = [labels[k % len(labels)] for k in range(count)]
    if rng.random() < 0.1:
        target = [f"{rng.random():.5f}" for _ in range(count)]
    place = rng.randrange(len(columns) + 1)
    columns.insert(place, target)
    header = [f"column {k}" for k in range(len(columns))]
    header[place] = TARGET
    return header, [list(row) for row in zip(*columns, strict=True)]


def _bend(rng: random.Random, header: list[str], rows: list[list[str]]) -> None:
    """Something that happens to tables."""
    row = rng.choice(rows)
    match rng.randrange(30):
        case 0:
            row.append("one more")
        case 1:
            row.pop()
        case 2:
            header[0] = ""
        case 3:
            header[:] = [rng.choice(["same", TARGET]) for _ in header]
        case 4:
            header[-1] = rng.choice(UNICODE + FORMULAS + QUOTED)
        case 5:
            row[0] = "x" * rng.choice([131_072, 200_000, 1_000_000])
        case 6:
            rows.clear()
        case 7:
            rows.clear()
            header.clear()
        case 8:
            rows.insert(rng.randrange(len(rows)), [])
        case 9:
            row[-1] += "\0"
        case 10:
            header.extend(f"wide {k}" for k in range(300))
            for each in rows:
                each.extend(rng.choice(NUMBERS + PLAIN) for _ in range(300))


def _cell(cell: str, delimiter: str, quotes: str) -> str:
    """A cell as it is written; 'none' forgets quotes where they are needed."""
    needed = any(sign in cell for sign in (delimiter, '"', "\n", "\r"))
    if quotes == "all" or (quotes == "needed" and needed):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _encoded(rng: random.Random, text: str) -> bytes:
    """Text in an encoding that a program might have written."""
    match rng.randrange(28):
        case 0:
            return text.encode("utf-8-sig")
        case 1:
            return codecs.BOM_UTF16_LE + text.encode("utf-16-le")
        case 2:
            return codecs.BOM_UTF16_BE + text.encode("utf-16-be")
        case 3:
            return text.encode("utf-16-le")
        case 4:
            return text.encode("latin-1", "replace")
        case 5:
            return text.encode("cp1252", "replace")
        case 6:
            return text.encode("utf-32")
        case _:
            return text.encode("utf-8")


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Bytes to which something has happened, or not."""
    match rng.randrange(32):
        case 0:
            return rng.randbytes(rng.choice([1, 50, 5000]))
        case 1:
            place = rng.randrange(len(data) + 1)
            return data[:place] + rng.randbytes(3) + data[place:]
        case 2:
            return data[: rng.randrange(len(data) + 1)]
        case 3:
            place = rng.randrange(len(data) + 1)
            return data[:place] + b'"' + data[place:]
        case 4:
            return b"PK\x03\x04" + data
        case _:
            return data
