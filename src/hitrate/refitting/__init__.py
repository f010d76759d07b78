"""The last layer alone, trained again for accuracy: what there is to gain."""

from hitrate.refitting.headroom import Headroom, headroom
from hitrate.refitting.last_layer import LastLayer, last_layer

__all__ = ["Headroom", "LastLayer", "headroom", "last_layer"]
