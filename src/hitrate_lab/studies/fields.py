"""Fields of a TOML file, taken one by one and checked: one line says which is wrong, and why."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hitrate_lab.bad_input import BadInput, listed, quoted

MISSING: Any = object()


class Fields:
    """A table of a file.

    Parameters
    ----------
    path : Path
        For messages.
    content : mapping
    place : str
        Keys that lead to this table, for messages.

    Examples
    --------
    >>> fields = Fields(Path("a.toml"), {"steps": 0})
    >>> fields.whole("steps", least=1)
    Traceback (most recent call last):
    hitrate_lab.bad_input.BadInput: a.toml: steps: needs a whole number of 1 or more, not 0
    """

    def __init__(self, path: Path, content: Mapping[str, Any], place: str = "") -> None:
        self._path, self._content, self._place = path, content, place
        self._seen: set[str] = set()

    def wrong(self, key: str, what: str) -> NoReturn:
        """Complain of a field."""
        raise BadInput(f"{self._path}: {self._whole_key(key)}: {what}")

    def named(self, place: str) -> Fields:
        """The same table under another name, less what was taken."""
        return Fields(self._path, self.rest(), place)

    def keys(self) -> list[str]:
        """Names of all fields."""
        return list(self._content)

    def rest(self) -> dict[str, Any]:
        """Fields that were not taken yet; they count as taken."""
        left = {key: value for key, value in self._content.items() if key not in self._seen}
        self._seen.update(left)
        return left

    def end(self) -> None:
        """Complain of fields that nobody took: a misspelt one would have no effect."""
        known = sorted(self._seen)
        for key in self.rest():
            self.wrong(key, f"is no field here; there are {listed(known, most=20)}")

    def taken(self, key: str, kind: Any, what: str, default: Any = MISSING) -> Any:
        """A field of some type."""
        self._seen.add(key)
        if key not in self._content:
            if default is MISSING:
                self.wrong(key, f"is missing; needs {what}")
            return default
        value = self._content[key]
        # Python takes true for a number.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.wrong(key, f"needs {what}, not {_shown(value)}")
        return value

    def text(self, key: str, default: Any = MISSING) -> str:
        """A text that is not empty."""
        value = self.taken(key, str, "a text", default)
        if isinstance(value, str) and not value.strip():
            self.wrong(key, "needs a text, not an empty one")
        return value  # type: ignore[no-any-return]

    def texts(self, key: str, default: Any = MISSING) -> list[str]:
        """A list of different texts, one or more unless there is a default."""
        values = self.taken(key, list, "a list of texts", default)
        for value in values:
            if not isinstance(value, str) or not value.strip():
                self.wrong(key, f"needs a list of texts, but has {_shown(value)}")
        if not values and default is MISSING:
            self.wrong(key, "needs one or more")
        self.unique(key, values)
        return list(values)

    def flag(self, key: str, default: Any = MISSING) -> bool:
        """True or false."""
        return bool(self.taken(key, bool, "true or false", default))

    def choice(self, key: str, known: Iterable[str], default: Any = MISSING) -> str:
        """One of some texts."""
        known = list(known)
        value = self.taken(key, str, f"one of {listed(known)}", default)
        if value not in known:
            self.wrong(key, f"needs one of {listed(known)}, not {quoted(value)}")
        return value  # type: ignore[no-any-return]

    def whole(self, key: str, least: int = 0, default: Any = MISSING) -> int:
        """A whole number."""
        what = f"a whole number of {least} or more"
        value = self.taken(key, int, what, default)
        if isinstance(value, int) and value < least:
            self.wrong(key, f"needs {what}, not {value}")
        return value  # type: ignore[no-any-return]

    def number(
        self, key: str, least: float = 0.0, default: Any = MISSING, *, above: bool = False
    ) -> float | None:
        """A finite number, at least or above some value."""
        what = f"a number {'above' if above else 'of at least'} {least:g}"
        value = self.taken(key, int | float, what, default)
        if value is not None:
            value = float(value)
            if not math.isfinite(value) or value < least or (above and value == least):
                self.wrong(key, f"needs {what}, not {value:g}")
        return value  # type: ignore[no-any-return]

    def numbers(self, key: str, least: float = 0.0) -> list[float]:
        """A list of different finite numbers, one or more."""
        values = self.taken(key, list, "a list of numbers")
        for value in values:
            right = isinstance(value, int | float) and not isinstance(value, bool)
            if not right or not math.isfinite(value) or value < least:
                what = f"a list of numbers of at least {least:g}"
                self.wrong(key, f"needs {what}, but has {_shown(value)}")
        if not values:
            self.wrong(key, "needs one or more")
        self.unique(key, values)
        return [float(value) for value in values]

    def seeds(self, key: str, default: Any = MISSING) -> list[int]:
        """A list of different whole numbers."""
        values = self.taken(key, list, "a list of whole numbers", default)
        for value in values:
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                self.wrong(key, f"needs a list of whole numbers, but has {_shown(value)}")
        if not values:
            self.wrong(key, "needs one or more")
        self.unique(key, values)
        return list(values)

    def mean_and_deviation(self, key: str) -> tuple[float, float | None]:
        """A number, or a list of a mean and a standard deviation."""
        value = self.taken(key, int | float | list, "a number or [mean, std]")
        pair = value if isinstance(value, list) else [value]
        for each in pair:
            if isinstance(each, bool) or not isinstance(each, int | float) or not each >= 0:
                self.wrong(key, f"needs a number or [mean, std], not {_shown(value)}")
        if len(pair) not in (1, 2) or not all(map(math.isfinite, pair)):
            self.wrong(key, f"needs a number or [mean, std], not {_shown(value)}")
        return float(pair[0]), float(pair[1]) if len(pair) == 2 else None

    def table(self, key: str, default: Any = MISSING) -> Fields:
        """A table inside of this one."""
        content = self.taken(key, dict, "a table", default)
        return Fields(self._path, content, self._whole_key(key))

    def tables(self, key: str) -> list[Fields]:
        """Tables of one kind, [[key]], one or more."""
        values = self.taken(key, list, f"tables [[{key}]]")
        for value in values:
            if not isinstance(value, dict):
                self.wrong(key, f"needs tables [[{key}]], but has {_shown(value)}")
        if not values:
            self.wrong(key, "needs one or more")
        place = self._whole_key(key)
        return [Fields(self._path, each, f"{place}[{k}]") for k, each in enumerate(values, 1)]

    def unique(self, key: str, values: Sequence[object]) -> None:
        """Complain of a value that is there twice."""
        for k, value in enumerate(values):
            if value in values[:k]:
                self.wrong(key, f"has {_shown(value)} twice")

    def _whole_key(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place else key


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value) if isinstance(value, str) else quoted(value)[1:-1]
