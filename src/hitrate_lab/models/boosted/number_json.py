"""JSON that is mostly lists of numbers, from someone who may mean harm.

Python's parser makes an object of every number and follows every bracket; a file of a few megabytes
can so take gigabytes, or all of the stack. This one is bounded in both, and much smaller in what it
reads: no list but of numbers or of objects, and no letter behind a backslash.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Trees are seven deep.
DEEPEST = 10
# Objects, lists and words: so many at least, and one for so many letters of the text.
FEWEST_PARTS, LETTERS_PER_PART = 1000, 10

SPACE = re.compile(r"[ \t\r\n]*")
WORD = re.compile(r'"([^"\\\x00-\x1f]*)"')
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
# What XGBoost writes of statistics that are no numbers is let through: NaN and Infinity.
NUMBERS = re.compile(r"\[([-+0-9.eE, \t\r\nNaInfity]*)\]")
# A number as numpy reads it and JSON does not: +1, 1., .5, 01, nan.
FOREIGN = re.compile(
    r"(?<![eE])\+|\.(?![0-9])|(?<![0-9])\.|(?<![-+0-9.eE])-?0[0-9]"
    r"|(?<![0-9A-Za-z])(?!NaN\b|Infinity\b)[A-Za-z]|-NaN"
)


def read_json(text: str) -> Any:
    """Objects as dicts, lists of numbers as arrays of float64, lists of objects as lists.

    Parameters
    ----------
    text : str

    Raises
    ------
    ValueError
        If it is anything else, or too deep, or has too many parts for its length.

    Examples
    --------
    >>> read_json('{"name": "tree", "left": [1, -1, -1]}')
    {'name': 'tree', 'left': array([ 1., -1., -1.])}
    """
    reader = _Reader(text)
    value = reader.value(0)
    if reader.space() != len(text):
        raise ValueError(f"there is more behind the end, at {reader.place}")
    return value


def numbers_in(text: str, separator: str) -> Array:
    """Numbers (n,) of a text, with one separator between two of them."""
    if not text.strip():
        return np.zeros(0)
    with warnings.catch_warnings():
        # numpy stops with a warning, or an error, at what it cannot read.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            found = np.fromstring(text, np.float64, sep=separator)
        except DeprecationWarning as error:
            raise ValueError(f"not all numbers: {text!r:.40}") from error
    if len(found) != text.count(separator) + 1:
        raise ValueError(f"not all numbers: {text!r:.40}")
    return found


class _Reader:
    """A text, and how far it has been read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.left = FEWEST_PARTS + len(text) // LETTERS_PER_PART

    def value(self, depth: int) -> Any:
        """What begins here."""
        self.left -= 1
        if depth > DEEPEST or self.left < 0:
            raise ValueError("too deep" if depth > DEEPEST else "too many parts")
        self.space()
        sign = self.text[self.place : self.place + 1]
        if sign == "{":
            return self._object(depth)
        if sign == '"':
            return self._match(WORD)
        if sign != "[":
            return float(self._match(NUMBER, 0))
        found = NUMBERS.match(self.text, self.place)
        if found is None:
            return self._list(depth)
        foreign = FOREIGN.search(self.text, found.start(1), found.end(1))
        if foreign:
            raise ValueError(f"no number of JSON at {foreign.start()}")
        self.place = found.end()
        return numbers_in(found[1], ",")

    def space(self) -> int:
        """The place of what comes next."""
        found = SPACE.match(self.text, self.place)
        assert found is not None
        self.place = found.end()
        return self.place

    def _object(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        self._take("{")
        while not self._is_next("}"):
            if made:
                self._take(",")
                self.space()
            self.left -= 1
            key = self._match(WORD)
            if key in made:
                raise ValueError(f"{key!r:.40} is there twice")
            self.space()
            self._take(":")
            made[key] = self.value(depth + 1)
        self._take("}")
        return made

    def _list(self, depth: int) -> list[Any]:
        made: list[Any] = []
        self._take("[")
        while not self._is_next("]"):
            if made:
                self._take(",")
            if not self._is_next("{"):
                raise ValueError(f"neither numbers nor objects at {self.place}")
            made.append(self.value(depth + 1))
        self._take("]")
        return made

    def _is_next(self, sign: str) -> bool:
        self.space()
        return self.text.startswith(sign, self.place)

    def _take(self, sign: str) -> None:
        if not self.text.startswith(sign, self.place):
            raise ValueError(f"no {sign!r} at {self.place}")
        self.place += 1

    def _match(self, pattern: re.Pattern[str], group: int = 1) -> str:
        found = pattern.match(self.text, self.place)
        if found is None:
            raise ValueError(f"cannot be read at {self.place}")
        self.place = found.end()
        return found[group]
