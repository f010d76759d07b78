"""Text that is a date, and how a column of dates is to be read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

PARTS = ("year", "month", "day", "weekday", "hour", "days")
TIME = r"(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)? *(?:Z|UTC|[+-]\d{2}:?\d{2})?)?"
YEAR_FIRST = re.compile(rf"(\d{{4}})([-/.])(\d{{1,2}})\2(\d{{1,2}}){TIME}")
YEAR_LAST = re.compile(rf"(\d{{1,2}})([./])(\d{{1,2}})\2(\d{{4}}){TIME}")
# What slashes before a year mean. Without them every date is clear.
CLEAR, DAY_FIRST, MONTH_FIRST, UNCLEAR = "clear", "day first", "month first", "unclear"
EXAMPLES = {
    CLEAR: "2024-12-31 or 31.12.2024",
    DAY_FIRST: "31/12/2024",
    MONTH_FIRST: "12/31/2024",
}
# The part of a column's values that must be dates.
DATES = 0.95


def date_parts(text: str, order: str = CLEAR) -> tuple[float, ...] | None:
    """Year, month, day, weekday, hour, and days since 1970; None if it is no date.

    Times are those of the clock on the wall: zones are not looked at.

    Parameters
    ----------
    text : str
        2024-12-31 (or with slashes or dots), 31.12.2024, or as the order says; perhaps a time.
    order : str
        `DAY_FIRST` if 31/12/2024 is a date, `MONTH_FIRST` if 12/31/2024 is, `CLEAR` if neither.

    Examples
    --------
    >>> date_parts("2024-02-29 06:30")
    (2024.0, 2.0, 29.0, 3.0, 6.5, 19782.27...)
    """
    if match := YEAR_FIRST.fullmatch(text):
        year, _, month, day, *time = match.groups()
    elif match := YEAR_LAST.fullmatch(text):
        day, sign, month, year, *time = match.groups()
        if sign == "/" and order == CLEAR:
            return None
        if sign == "/" and order == MONTH_FIRST:
            day, month = month, day
    else:
        return None
    hour, minute, second = (int(part or 0) for part in time)
    try:
        # A leap second is the one before it.
        when = datetime(int(year), int(month), int(day), hour, minute, min(second, 59))
    except ValueError:
        return None
    passed = when - datetime(1970, 1, 1)
    return (
        float(when.year),
        float(when.month),
        float(when.day),
        float(when.weekday()),
        when.hour + when.minute / 60,
        passed.days + passed.seconds / 86_400,
    )


def order_of_dates(counts: Mapping[str, int]) -> str | None:
    """How a column's texts are dates, if at least 95 % of them are; None if they are none.

    With slashes before the year one of them must tell the day from the month, and none the
    month from the day; otherwise they are `UNCLEAR`.

    Parameters
    ----------
    counts : dict
        How often each text occurs.

    Examples
    --------
    >>> order_of_dates({"01/02/2024": 1, "13/02/2024": 1})
    'day first'
    >>> order_of_dates({"01/02/2024": 1, "12/02/2024": 1})
    'unclear'
    """
    texts = [text for text in counts if YEAR_FIRST.fullmatch(text) or YEAR_LAST.fullmatch(text)]
    enough = DATES * sum(counts.values())
    # Most columns are done here.
    if not texts or sum(map(counts.__getitem__, texts)) < enough:
        return None
    found = {order: {text for text in texts if date_parts(text, order)} for order in EXAMPLES}

    def are_dates(some: set[str]) -> bool:
        return sum(map(counts.__getitem__, some)) >= enough

    if are_dates(found[CLEAR]):
        return CLEAR
    by_day, by_month = found[DAY_FIRST], found[MONTH_FIRST]
    if bool(by_day - by_month) != bool(by_month - by_day):
        order = DAY_FIRST if by_day - by_month else MONTH_FIRST
        return order if are_dates(found[order]) else None
    return UNCLEAR if are_dates(by_day | by_month) else None
