"""Argument lists that stand once: functions take them as keywords, and show them in full."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def _written(annotation: Any) -> Any:
    """A type as it is written in the source."""
    return getattr(annotation, "__forward_arg__", annotation)


def spelled_out(*lists: Any) -> Callable[[F], F]:
    """A decorator: show the fields of NamedTuples in the place of ``**options``.

    What `help` and editors then see is the signature that works, with its defaults.
    """

    def mark(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = {parameter.name for parameter in own}
        more = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=fields._field_defaults[name],
                annotation=_written(fields.__annotations__[name]),
            )
            for fields in lists
            for name in fields._fields
            if name not in named
        ]
        # A function's attribute, which its type does not know of.
        function.__signature__ = signature.replace(parameters=own + more)  # type: ignore[attr-defined]
        return function

    return mark
