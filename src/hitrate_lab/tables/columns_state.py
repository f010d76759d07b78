"""The state of `Columns`, read from JSON that nobody vouches for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.tables.dates import EXAMPLES, PARTS
from hitrate_lab.tables.kinds import Categories, Dates, Scale, Words
from hitrate_lab.tables.prose import PARTS as PARTS_OF
from hitrate_lab.tables.prose import Prose
from hitrate_lab.tables.written import LONGEST, THOUSANDS, Form

# 1 + log(rows) for more rows than there can be.
LARGEST_RARITY = 100


@dataclass(frozen=True)
class State:
    """What `Columns` knows after `fit`."""

    levels: int
    words: int
    columns: list[str]
    number_names: list[str]
    scale: Scale
    forms: dict[str, Form]
    dates: dict[str, Dates]
    categories: dict[str, Categories]
    texts: dict[str, Words]
    prose: dict[str, Prose]
    sparse: bool
    notes: list[str]


def read_state(given: Any, arrays: Mapping[str, Any]) -> State:
    """Check every part of a state, and of the arrays beside it."""
    try:
        numbers = given["numbers"]
        state = State(
            levels=_whole(given["levels"]),
            words=_whole(given["words"]),
            columns=_texts(given["columns"]),
            number_names=_texts(numbers["names"]),
            scale=_scale(numbers),
            # Models of before there were any have none.
            forms={_text(each["name"]): _form(each) for each in given.get("forms", [])},
            dates={
                _text(each["name"]): Dates(_scale(each["scale"]), _order(each["order"]))
                for each in given["dates"]
            },
            categories={
                _text(each["name"]): Categories(
                    tuple(_texts(each["levels"])), _bool(each["missing"]), _bool(each["other"])
                )
                for each in given["categories"]
            },
            texts={_text(each["name"]): _words(each) for each in given["texts"]},
            prose=_prose(given.get("prose", []), arrays),
            sparse=_bool(given["sparse"]),
            notes=_texts(given["notes"]),
        )
        if len(state.number_names) != len(state.scale.mean):
            raise ValueError("names and numbers differ in length")
        if not set(state.forms) <= set(state.number_names):
            raise ValueError("a form of a column that has no numbers")
        if any(len(each.scale.mean) != len(PARTS) for each in state.dates.values()):
            raise ValueError("a date has other parts")
        kinds = (state.dates, state.categories, state.texts, state.prose)
        if not state.scale.width and not any(
            each.width for kind in kinds for each in kind.values()
        ):
            raise ValueError("there is no feature")
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"the columns' state is not one of hitrate's ({error!r})") from None
    return state


def _scale(given: Any) -> Scale:
    scale = Scale(
        tuple(_numbers(given["mean"])),
        tuple(_numbers(given["scale"])),
        tuple(_bools(given["gaps"])),
    )
    if not len(scale.mean) == len(scale.scale) == len(scale.gaps):
        raise ValueError("mean, scale and gaps differ in length")
    if any(each < 0 for each in scale.scale):
        raise ValueError("a scale is negative")
    return scale


def _form(given: Any) -> Form:
    form = Form(*(_text(given[key]) for key in ("decimal", "thousands", "unit", "example")))
    if form.decimal not in (".", ",") or form.thousands not in ("", *THOUSANDS):
        raise ValueError("numbers of a form that is not known")
    if form.decimal == form.thousands or max(len(form.unit), len(form.example)) > LONGEST:
        raise ValueError("a form is none")
    return form


def _order(given: Any) -> str:
    if _text(given) not in EXAMPLES:
        raise ValueError("dates of an order that is not known")
    return str(given)


def _words(given: Any) -> Words:
    words = Words(
        tuple(map(_whole, _list(given["buckets"]))),
        tuple(_numbers(given["rarity"])),
        _whole(given["size"]),
    )
    if len(words.buckets) != len(words.rarity) or len(set(words.buckets)) != len(words.buckets):
        raise ValueError("buckets and rarity do not belong together")
    if any(each >= words.size for each in words.buckets):
        raise ValueError("a bucket is larger than the size")
    if not all(0 < each < LARGEST_RARITY for each in words.rarity):
        raise ValueError("a rarity is none")
    if not words.size:
        raise ValueError("words of size 0")
    return words


def _prose(given: Any, arrays: Mapping[str, Any]) -> dict[str, Prose]:
    """Columns of free text, in the order of their arrays."""
    columns = _list(given)
    if set(arrays) != {f"{number} {part}" for number in range(len(columns)) for part in PARTS_OF}:
        raise ValueError("columns of text and arrays do not belong together")
    found = {}
    for number, each in enumerate(columns):
        own = {part: arrays[f"{number} {part}"] for part in PARTS_OF}
        found[_text(each["name"])] = Prose.of(_texts(each["words"]), own, _bool(each["missing"]))
    return found


def _list(given: Any) -> list[Any]:
    if not isinstance(given, list):
        raise TypeError(f"{type(given).__name__} in the place of a list")
    return given


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{type(given).__name__} in the place of text")
    return given


def _texts(given: Any) -> list[str]:
    return list(map(_text, _list(given)))


def _bool(given: Any) -> bool:
    if not isinstance(given, bool):
        raise TypeError(f"{type(given).__name__} in the place of true or false")
    return given


def _bools(given: Any) -> list[bool]:
    return list(map(_bool, _list(given)))


def _whole(given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise TypeError(f"{type(given).__name__} in the place of a whole number")
    return given


def _numbers(given: Any) -> list[float]:
    for each in _list(given):
        if not isinstance(each, (int, float)) or isinstance(each, bool) or not math.isfinite(each):
            raise TypeError(f"{each!r:.40} in the place of a number")
    return list(map(float, given))
