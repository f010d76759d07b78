"""What each decision costs: a small table with the names of the classes as header and rows."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.bad_input import BadInput, listed, quoted
from hitrate_lab.tables.labels import class_numbers

# A small table: nobody has more classes than this whose costs are written by hand.
LARGEST = 1 << 20


def read_costs(path: Path | str, classes: Sequence[Any]) -> NDArray[np.float64]:
    r"""Costs (C, C) of a row of class y that is taken for class k, in the order of the classes.

    Parameters
    ----------
    path : Path or str
        A CSV file. Its first line has a cell of no meaning and the classes that are decided for;
        each other line has a true class and what each decision costs. Both in any order.
    classes : sequence
        Of the table.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "costs.csv")
    ...     _ = path.write_text("truth,ill,well\nwell,1,0\nill,0,50\n")
    ...     print(read_costs(path, ["ill", "well"]))
    [[ 0. 50.]
     [ 1.  0.]]
    """
    path = Path(path)

    def wrong(what: str) -> NoReturn:
        raise BadInput(f"{path}: {what}")

    rows = [row for row in _cells(path) if any(row)]
    if len(rows) < 2 or len(rows[0]) < 2:
        wrong(
            "is no table of costs: it needs a header with the classes that are decided for, and "
            "a row for each true class"
        )
    head, *body = rows
    numbers = {}
    for kind, names in (("column", head[1:]), ("row", [row[0] for row in body])):
        found = numbers[kind] = class_numbers(names, classes).tolist()
        for name, number in zip(names, found, strict=True):
            if number < 0:
                wrong(f"{kind} {quoted(name)} is no class; there are {listed(classes)}")
            if found.count(number) > 1:
                wrong(f"has two {kind}s for class {quoted(name)}")
        missing = [each for k, each in enumerate(classes) if k not in found]
        if missing:
            wrong(f"has no {kind} for {listed(missing)}")
    costs = np.zeros((len(classes), len(classes)))
    for true, row in zip(numbers["row"], body, strict=True):
        if len(row) != len(head):
            wrong(f"row {quoted(row[0])} has {len(row) - 1} costs and not {len(classes)}")
        for decided, name, cell in zip(numbers["column"], head[1:], row[1:], strict=True):
            try:
                costs[true, decided] = float(cell)
            except ValueError:
                costs[true, decided] = math.nan
            if not math.isfinite(costs[true, decided]):
                wrong(
                    f"row {quoted(row[0])}, column {quoted(name)}: needs a number, not "
                    f"{quoted(cell)}"
                )
    return costs


def _cells(path: Path) -> list[list[str]]:
    """Rows of stripped text."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise BadInput(f"{path}: is too large for a table of costs")
        text = data.decode("utf-8-sig")
        first = text.lstrip().partition("\n")[0]
        delimiter = max(",;\t", key=first.count)
        found = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        return [[cell.strip() for cell in row] for row in found]
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is not UTF-8 text") from error
    except csv.Error as error:
        raise BadInput(f"{path}: is not CSV: {error}") from error
