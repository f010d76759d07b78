"""Inline pictures: small functions from plain numbers to SVG elements.

Colours are classes that the page's style sheet fills, so a picture follows light and dark.
"""

from hitrate_lab.pictures.curve import curve
from hitrate_lab.pictures.folds import folds
from hitrate_lab.pictures.hits.changes import mosaic
from hitrate_lab.pictures.hits.confusion import confusion
from hitrate_lab.pictures.hits.reliability import reliability
from hitrate_lab.pictures.profile import profile
from hitrate_lab.pictures.ranking import ranking
from hitrate_lab.pictures.ranks import ranks

PICTURES = {
    "ranking": ranking,
    "folds": folds,
    "confusion": confusion,
    "reliability": reliability,
    "curve": curve,
    "mosaic": mosaic,
    "ranks": ranks,
    "profile": profile,
}

__all__ = ["PICTURES"]
