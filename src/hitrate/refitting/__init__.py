"""The last layer alone, trained again for accuracy: what there is to gain."""

from hitrate.refitting.headroom import Headroom, headroom

__all__ = ["Headroom", "headroom"]
