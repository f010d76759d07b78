"""The protocols that a study's file may name; each is imported when it is needed."""

from __future__ import annotations

import importlib
from typing import Any

PROTOCOLS = {
    "exact cost": "hitrate_lab.protocols.exact_cost",
    "exact search": "hitrate_lab.protocols.exact_search",
    "exact tables": "hitrate_lab.protocols.exact_tables",
    "mixing escape": "hitrate_lab.protocols.mixing_escape",
    "mixing gradient norm": "hitrate_lab.protocols.mixing_gradient_norm",
    "mixing table": "hitrate_lab.protocols.mixing_table",
}


def protocol_named(name: str) -> Any:
    """The module of a protocol.

    Parameters
    ----------
    name : str
        One of `PROTOCOLS`.
    """
    return importlib.import_module(PROTOCOLS[name])
