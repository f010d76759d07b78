"""Image sets in the files that they are published in.

A set is an entry of `IMAGE_SETS`: where it lies in a data folder, how it is read, and where its
files come from. Adding one touches `sets.py` alone.
"""

from hitrate_lab.datasets.images.sets import (
    IMAGE_SETS,
    ImageSet,
    fetch_images,
    find_images,
    read_images,
)

__all__ = ["IMAGE_SETS", "ImageSet", "fetch_images", "find_images", "read_images"]
