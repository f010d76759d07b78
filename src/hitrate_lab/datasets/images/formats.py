"""Readers of the files that image sets are published in; all give bytes (N, C, H, W) and labels."""

from __future__ import annotations

import gzip
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.bad_input import BadInput

Bytes = NDArray[np.uint8]
Labels = NDArray[np.int64]

# Endings of pictures in folders.
PICTURES = (".jpeg", ".jpg", ".png", ".webp")


def idx(path: Path) -> Bytes:
    """An array in MNIST's format: two zeros, a type, the number of dimensions, their lengths."""
    opened: Callable[[Path], bytes] = _unpacked if path.suffix == ".gz" else Path.read_bytes
    content = opened(path)
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise BadInput(f"{path}: not an idx file of bytes")
    start = 4 + 4 * content[3]
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    found = np.frombuffer(content, np.uint8, offset=start)
    if found.size != math.prod(shape):
        raise BadInput(f"{path}: has {found.size} values, where its head says {shape}")
    return found.reshape(shape)


def _unpacked(path: Path) -> bytes:
    try:
        with gzip.open(path) as packed:
            return packed.read()
    except (EOFError, gzip.BadGzipFile) as error:
        raise BadInput(f"{path}: {error}") from error


def mnist(folder: Path, part: str) -> tuple[Bytes, Labels]:
    """Images and labels of "train" or "t10k", packed or not."""
    images, labels = (
        idx(_first_of(folder / f"{part}-{kind}-ubyte", ".gz"))
        for kind in ("images-idx3", "labels-idx1")
    )
    return images[:, None], _fitting(labels.astype(np.int64), images, folder)


def _first_of(path: Path, ending: str) -> Path:
    packed = path.with_name(path.name + ending)
    return packed if packed.is_file() and not path.is_file() else path


def cifar(files: Sequence[Path], labels: int, column: int) -> tuple[Bytes, Labels]:
    """Rows of bytes: so many labels, of which one is meant, and an image of 3 x 32 x 32."""
    rows = []
    for file in files:
        content = np.frombuffer(file.read_bytes(), np.uint8)
        if not content.size or content.size % (labels + 3072):
            raise BadInput(f"{file}: {content.size} bytes are not rows of {labels + 3072}")
        rows.append(content.reshape(-1, labels + 3072))
    joined = np.concatenate(rows)
    return joined[:, labels:].reshape(-1, 3, 32, 32), joined[:, column].astype(np.int64)


def svhn(file: Path) -> tuple[Bytes, Labels]:
    """A .mat file of X (32, 32, 3, N) and y, where 10 stands for zero."""
    from scipy.io import loadmat

    try:
        content = loadmat(file, variable_names=["X", "y"])
        images, labels = content["X"], content["y"]
    except (KeyError, ValueError) as error:
        raise BadInput(f"{file}: not a .mat file with X and y in it") from error
    return images.transpose(3, 2, 0, 1), labels.reshape(-1).astype(np.int64) % 10


def class_folders(folder: Path) -> list[str]:
    """Names of the folders in a folder, each of which is a class."""
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir())


def of_classes(folder: Path, classes: Sequence[str], within: str = "") -> list[tuple[Path, int]]:
    """Pictures in ``class/within``, with their class's number."""
    return [
        (picture, number)
        for number, name in enumerate(classes)
        for picture in sorted((folder / name / within).iterdir())
        if picture.suffix.lower() in PICTURES
    ]


def listed_in(file: Path, folder: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    """Pictures that a table of names and classes has, as in Tiny-ImageNet's validation part."""
    number_of = {name: number for number, name in enumerate(classes)}
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        picture, _, rest = line.partition("\t")
        name = rest.split("\t")[0]
        if name not in number_of:
            raise BadInput(f"{file}, line {number}: {name!r} is no class")
        found.append((folder / picture, number_of[name]))
    return found


def pictures(entries: Iterable[tuple[Path, int]], side: int) -> tuple[Bytes, Labels]:
    """Pictures, decoded. Of another size, their shorter side is scaled and the centre cut out."""
    chosen = list(entries)
    images = np.empty((len(chosen), 3, side, side), np.uint8)
    for row, (file, _) in enumerate(chosen):
        images[row] = _decoded(file, side)
    return images, np.array([number for _, number in chosen], np.int64)


def _decoded(file: Path, side: int) -> Bytes:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as opened:
            picture = opened.convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise BadInput(f"{file}: {error}") from error
    width, height = picture.size
    if (width, height) != (side, side):
        scale = side / min(width, height)
        size = (max(side, round(width * scale)), max(side, round(height * scale)))
        picture = picture.resize(size, Image.Resampling.BILINEAR)
        left, top = (size[0] - side) // 2, (size[1] - side) // 2
        picture = picture.crop((left, top, left + side, top + side))
    return np.asarray(picture, np.uint8).transpose(2, 0, 1)


def _fitting(labels: Labels, images: Bytes, where: Path) -> Labels:
    if labels.shape != images.shape[:1]:
        raise BadInput(f"{where}: {len(images)} images, {len(labels)} labels")
    return labels
