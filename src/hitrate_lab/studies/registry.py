"""The protocols that a study's file may name; each is imported when it is needed."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hitrate_lab.studies.protocol import Protocol

# Module and class of each.
PROTOCOLS = {
    "capacity map": "hitrate_lab.studies.networks.capacity:CapacityMap",
    "exact cost": "hitrate_lab.studies.exact.cost:ExactCost",
    "exact search": "hitrate_lab.studies.exact.search:ExactSearch",
    "exact tables": "hitrate_lab.studies.exact.tables:ExactTables",
    "gain law": "hitrate_lab.studies.gain.law:GainLaw",
    "image networks": "hitrate_lab.studies.networks.images:ImageNetworks",
    "learnt groups": "hitrate_lab.studies.networks.learnt:LearntGroups",
    "mixing escape": "hitrate_lab.studies.mixing.escape:MixingEscape",
    "mixing gradient norm": "hitrate_lab.studies.mixing.gradient_norm:MixingGradientNorm",
    "mixing table": "hitrate_lab.studies.mixing.table:MixingTable",
    "next words": "hitrate_lab.studies.text.next_words:NextWords",
    "text fine-tuning": "hitrate_lab.studies.text.fine_tuning:FineTuning",
    "text LSTM": "hitrate_lab.studies.text.lstm:TextLSTM",
    "text heads": "hitrate_lab.studies.text.heads:TextHeads",
}


def protocol_named(name: str) -> Protocol:
    """A protocol.

    Parameters
    ----------
    name : str
        One of `PROTOCOLS`.
    """
    found: Protocol = pkgutil.resolve_name(PROTOCOLS[name])()
    return found
