"""Numbers as a reader wants them: no digit that the data does not support."""

from __future__ import annotations

import math
from typing import Any

MISSING = "–"
MINUS = "−"
# A line must not end between a number and its sign.
PERCENT = "\u00a0%"


def number(value: Any) -> float | None:
    """A finite number, or None for all else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def decimals(rows: float | None) -> int:
    """Digits after the point of a percentage: two only where ten thousand rows stand behind it."""
    return 2 if rows is not None and rows >= 10_000 else 1


def percent(share: float | None, digits: int = 1) -> str:
    """A share as a percentage. Only what is perfect reads as 100, only what is nothing as 0.

    >>> print(percent(0.9514), percent(0.99996), percent(1.0), percent(0.0002), sep=", ")
    95.1 %, 99.9 %, 100.0 %, 0.1 %
    """
    if share is None:
        return MISSING
    step = 10.0**-digits
    shown = 100 * share
    if 0 < share < 1:
        shown = min(max(shown, step), 100 - step)
    return f"{shown:.{digits}f}{PERCENT}"


def points(difference: float | None, digits: int = 1) -> str:
    """A difference of shares in percentage points, with its sign.

    >>> points(0.0123), points(-0.0123), points(-0.00001)
    ('+1.2', '−1.2', '0.0')
    """
    if difference is None:
        return MISSING
    text = f"{100 * difference:+.{digits}f}"
    if not float(text):
        return text[1:]
    return text.replace("-", MINUS)


def between(low: str, high: str) -> str:
    """An interval; empty where an end is missing.

    >>> print(between(percent(0.94), percent(0.96)))
    94.0 to 96.0 %
    """
    if MISSING in (low, high):
        return ""
    return f"{low.removesuffix(PERCENT)} to {high}"


def p_value(p: float | None) -> str:
    """A p-value: two digits that count, none below 0.001.

    >>> p_value(0.0004), p_value(0.0123), p_value(0.34), p_value(1.0)
    ('<0.001', '0.012', '0.34', '1.00')
    """
    if p is None:
        return MISSING
    if p < 0.001:
        return "<0.001"
    return f"{p:.2f}" if p >= 0.1 else f"{p:.3f}"


def significant(value: float | None, digits: int = 3) -> str:
    """A number of any size with a few digits.

    >>> significant(0.20349), significant(12345.6), significant(1.25e-7)
    ('0.203', '12300', '1.25e−07')
    """
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}".replace("-", MINUS)
    size = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, size):.{max(size, 0)}f}".replace("-", MINUS)


def duration(seconds: float | None) -> str:
    """A time in the units that matter.

    >>> duration(0.0042), duration(1.94), duration(61.2), duration(7384)
    ('4 ms', '1.9 s', '1 min 1 s', '2 h 3 min')
    """
    if seconds is None:
        return MISSING
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.0005 else "<1 ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def count(value: float | None) -> str:
    """A whole number with commas.

    >>> count(1728)
    '1,728'
    """
    return MISSING if value is None else f"{value:,.0f}"


def plural(value: float, word: str) -> str:
    """A count and its noun.

    >>> plural(1, "row"), plural(1728, "row"), plural(4, "class")
    ('1 row', '1,728 rows', '4 classes')
    """
    ending = "" if value == 1 else "es" if word.endswith("s") else "s"
    return f"{count(value)} {word}{ending}"


def shorten(text: str, characters: int) -> str:
    """The text, cut with an ellipsis where it is too long.

    >>> shorten("logistic regression", 9)
    'logistic…'
    """
    return text if len(text) <= characters else text[: characters - 1].rstrip() + "…"
