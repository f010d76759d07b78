"""The protocols that a study's file may name; each is imported when it is needed."""

from __future__ import annotations

import importlib
from typing import Any

PROTOCOLS = {
    "exact cost": "hitrate_lab.studies.exact.cost",
    "exact search": "hitrate_lab.studies.exact.search",
    "exact tables": "hitrate_lab.studies.exact.tables",
    "mixing escape": "hitrate_lab.studies.mixing.escape",
    "mixing gradient norm": "hitrate_lab.studies.mixing.gradient_norm",
    "mixing table": "hitrate_lab.studies.mixing.table",
}


def protocol_named(name: str) -> Any:
    """The module of a protocol.

    Parameters
    ----------
    name : str
        One of `PROTOCOLS`.
    """
    return importlib.import_module(PROTOCOLS[name])
