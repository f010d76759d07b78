"""What a user can mend, said in one line."""

from __future__ import annotations

from collections.abc import Iterable

# Of a value that a message shows.
LONGEST = 60


class BadInput(ValueError):
    """Something a user gave cannot be used: one line that says what, where, and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(" ".join(message.splitlines())))


def printable(text: str) -> str:
    r"""Text with all that a terminal would act on, such as an escape in a file's name, spelt out.

    Examples
    --------
    >>> print(printable("red\x1b[31m"))
    red\x1b[31m
    """
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def quoted(value: object) -> str:
    r"""A value in quotes, on one line, and not too long.

    Examples
    --------
    >>> print(quoted("two\nlines"))
    'two\nlines'
    """
    text = str(value)
    return repr(text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}...")


def listed(values: Iterable[object], most: int = 8) -> str:
    """Values in quotes with commas between them, the end left out where there are many.

    Examples
    --------
    >>> listed(range(5), most=2)
    "'0', '1' and 3 more"
    """
    every = list(values)
    text = ", ".join(map(quoted, every[:most]))
    return text if len(every) <= most else f"{text} and {len(every) - most} more"
