"""The last layer alone, trained again for accuracy: what is there to gain?"""

from hitrate.refitting.headroom import Headroom, headroom

__all__ = ["Headroom", "headroom"]
