"""How a column writes its numbers: decimal commas, signs between thousands, currencies and units.

A column is read in one way or not at all. Each cell says what its signs can mean; `Writing`
gathers that over the column and then decides:

- 3,5 and 1.000,5 have a decimal comma, 3.5 and 1,000.5 a decimal point. A column has one of them.
- 1,234,567 has commas between thousands. 1,234 alone may be either: where semicolons stand between
  cells the comma is taken as decimal, elsewhere as one between thousands.
- 1.234 is a number with a point, unless other cells show points between thousands.
- A currency before or after the number, or % after it, may be missing in some cells. Any other unit
  is the same after every number but 0: else 5more would be 5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.bad_input import quoted
from hitrate_lab.tables.cells import MISSING, PADDED, numbers

Array = NDArray[Any]

CURRENCY = r"(?:US\$|[$\u20ac\u00a3\u00a5\u20b9]|USD|EUR|GBP|CHF|JPY)"
# Letters after a number, and what stands with them in units: 5 km/h, 3 m², 20 °C.
UNIT = r"(?:[%\u2030]|(?:[^\W\d_]|[\u00b0\u00b2\u00b3/\u00b5]){1,12}\.?)"
BLANK = "[ \u00a0\u202f]"
MINUS = "-\u2212"
CELL = re.compile(
    rf"(?P<minus>[{MINUS}+]?){BLANK}?(?P<before>{CURRENCY})?{BLANK}?(?P<sign>[{MINUS}+]?)"
    rf"(?P<number>[0-9][0-9.,'\u2019 \u00a0\u202f]*?)"
    rf"{BLANK}?(?P<after>{CURRENCY}|{UNIT})?"
)
# The digits of a number, with signs of one kind between thousands.
GROUPS = re.compile(
    r"(?P<first>[1-9][0-9]{0,2})(?:(?P<between>[.,' \u2019\u00a0\u202f])[0-9]{3}"
    r"(?:(?P=between)[0-9]{3})*)(?:(?P<point>[.,])[0-9]+)?"
)
SINGLE = re.compile(r"(?:0|[1-9][0-9]*)(?:(?P<point>[.,])[0-9]+)?")
# What a column has that is as usual elsewhere.
COMMAS = "decimal commas"
# No number that anyone writes is longer.
LONGEST = 100
# What stands between thousands.
THOUSANDS = {",": "commas", ".": "points", " ": "blanks", "'": "apostrophes"}
CURRENCIES = re.compile(CURRENCY)
# Numbers that Python writes so have a point where they have one at all.
PLAIN = re.compile(
    r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?inf(?:inity)?", re.I
)


@dataclass(frozen=True)
class Form:
    """What stands in a column's numbers beside digits, minus and a decimal point.

    Parameters
    ----------
    decimal : str
        "." or ",".
    thousands : str
        Sign between thousands, or "".
    unit : str
        What stood before or after the numbers and is dropped, or "".
    example : str
        A cell that shows it.
    """

    decimal: str = "."
    thousands: str = ""
    unit: str = ""
    example: str = field(default="", compare=False)

    def numbers(self, cells: Sequence[str | None]) -> Array | None:
        """Cells as numbers (n,), NaN where missing; None if one of them is not written so."""
        values = np.full(len(cells), np.nan)
        for row, cell in enumerate(cells):
            text = "" if cell is None else cell.strip()
            if text in MISSING:
                continue
            number = self.number(text)
            if number is None:
                return None
            values[row] = number
        return values

    def number(self, text: str) -> float | None:
        """One number, with its unit or without; None if it is written in another way.

        One with a point is plain wherever a point cannot stand between thousands.

        Examples
        --------
        >>> form = Form(decimal=",", thousands=".", unit="EUR")
        >>> form.number("-1.234,5 EUR"), form.number("3.5"), form.number("5 kg")
        (-1234.5, None, None)
        """
        cell = _Cell.of(text)
        if cell is None:
            return _plain(text) if self.decimal == "." or "." not in text else None
        if cell.unit not in ("", self.unit):
            return None
        found = cell.digits
        if grouped := GROUPS.fullmatch(found):
            between, point = grouped["between"], grouped["point"]
            if _same(between, self.thousands) and point in (None, self.decimal):
                whole, _, part = found.partition(point) if point else (found, "", "")
                return cell.signed("".join(filter(str.isdigit, whole)), part)
        single = SINGLE.fullmatch(found)
        if single is None:
            return None
        if single["point"] in (None, self.decimal) or (
            single["point"] == "." and self.thousands != "."
        ):
            whole, _, part = found.replace(",", ".").partition(".")
            return cell.signed(whole, part)
        return None

    @property
    def described(self) -> str:
        """What a note says about it, in a few words."""
        parts = []
        if self.decimal == ",":
            parts.append(COMMAS)
        if self.thousands:
            parts.append(f"{THOUSANDS[self.thousands]} between thousands")
        if self.unit:
            parts.append(f"{quoted(self.unit)} beside each number")
        return " and ".join(parts) or "signs of their own"


@dataclass
class Writing:
    """What the cells of a column have shown so far.

    Parameters
    ----------
    divided_by : str
        What stands between cells.
    """

    divided_by: str
    decimals: set[str] = field(default_factory=set)
    between: set[str] = field(default_factory=set)
    units: set[str] = field(default_factory=set)
    perhaps: set[str] = field(default_factory=set)
    bare: bool = False
    example: str = ""
    is_text: bool = False

    def see(self, cells: Iterable[str]) -> Form | None:
        """Look at more cells, and say how the column is written; None if it is no numbers."""
        for cell in cells:
            text = cell.strip()
            if self.is_text:
                break
            if text not in MISSING:
                self._see(text)
        return None if self.is_text else self.form

    def _see(self, text: str) -> None:
        cell = _Cell.of(text)
        if cell is None:
            # 1e5, inf and the like are numbers with a point, if they are some.
            self.is_text |= _plain(text) is None
            self.decimals |= {"."} & set(text)
            self.bare = True
            return
        found = cell.digits
        grouped, single = GROUPS.fullmatch(found), SINGLE.fullmatch(found)
        if cell.unit:
            self.units.add(cell.unit)
        elif found.strip("0.,"):
            self.bare = True
        if single and single["point"]:
            # 1,234 may be a thousand and more.
            self.perhaps.add(single["point"]) if grouped else self.decimals.add(single["point"])
        elif grouped:
            self.between.add(_plainer(grouped["between"]))
            self.decimals |= {grouped["point"]} - {None}
        elif not single:
            self.is_text = True
        if (cell.unit or set(found) - set("0123456789.")) and len(found) >= len(self.example):
            self.example = text

    @property
    def form(self) -> Form | None:
        """How the cells are written, if that is clear."""
        decimals, between, perhaps = set(self.decimals), set(self.between), set(self.perhaps)
        for sign, other in ((",", "."), (".", ",")):
            if sign not in perhaps:
                continue
            if sign in between or other in decimals:
                between.add(sign)
            elif sign in decimals or sign == "." or self.divided_by == ";":
                decimals.add(sign)
            else:
                between.add(sign)
        clear = len(decimals) <= 1 and len(between) <= 1 and not decimals & between
        some = {unit for unit in self.units if not _may_be_missing(unit)}
        if not clear or len(self.units) > 1 or (some and self.bare):
            return None
        (decimal,) = decimals or {"."}
        (thousands,) = between or {""}
        if thousands == decimal:
            # 1.234.567, and nothing that shows how parts are written.
            decimal = ","
        (unit,) = self.units or {""}
        return Form(decimal, thousands, unit, self.example)


@dataclass(frozen=True)
class _Cell:
    """A cell taken apart."""

    negative: bool
    unit: str
    digits: str

    @classmethod
    def of(cls, text: str) -> _Cell | None:
        """The parts of a cell that may be a number; None for other text."""
        found = CELL.fullmatch(text) if len(text) <= LONGEST else None
        if found is None or (found["minus"] and found["sign"]):
            return None
        if found["before"] and found["after"]:
            return None
        minus = (found["minus"] or found["sign"] or "+") in MINUS
        return cls(minus, found["before"] or found["after"] or "", found["number"])

    def signed(self, whole: str, part: str) -> float:
        """The number."""
        value = float(f"{whole}.{part}")
        return -value if self.negative else value


def _plain(text: str) -> float | None:
    """A number as Python writes it."""
    if not PLAIN.fullmatch(text) or PADDED.search(f"\n{text}\n"):
        return None
    found = numbers([text])
    return None if found is None else float(found[0])


def _plainer(sign: str) -> str:
    """One sign for all blanks, and one for all apostrophes."""
    return " " if sign.isspace() else "'" if sign == "\u2019" else sign


def _same(sign: str, thousands: str) -> bool:
    return _plainer(sign) == thousands


def _may_be_missing(unit: str) -> bool:
    """Whether a number without it means the same."""
    return unit in "%\u2030" or CURRENCIES.fullmatch(unit) is not None
