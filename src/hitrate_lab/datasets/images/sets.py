"""The image sets that are known."""

from __future__ import annotations

import functools
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hitrate_lab.bad_input import BadInput, listed, quoted
from hitrate_lab.datasets.fetch import Progress, download
from hitrate_lab.datasets.images import formats
from hitrate_lab.datasets.images.formats import Bytes, Labels
from hitrate_lab.tables.reading import data_folders
from hitrate_lab.whole_file import write_whole


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Training and test images, as bytes (N, C, H, W), and their classes.

    Where the test labels of a set are not published its validation part is in their place.
    """

    name: str
    train_images: Bytes
    train_labels: Labels
    test_images: Bytes
    test_labels: Labels
    classes: int


class Remote(NamedTuple):
    """A file on the web: its MD5, and whether it is an archive to unpack."""

    url: str
    md5: str
    is_archive: bool = True


@dataclass(frozen=True)
class Known:
    """An image set before it is read.

    Parameters
    ----------
    folder : str
        Its name in a data folder, as its archive has it.
    classes : int
    read : callable
        Training and test part from that folder.
    remote : tuple of Remote
        Where its files come from; none, where one has to ask for them.
    """

    folder: str
    classes: int
    read: Callable[[Path], tuple[tuple[Bytes, Labels], tuple[Bytes, Labels]]]
    remote: tuple[Remote, ...] = ()


Parts = tuple[tuple[Bytes, Labels], tuple[Bytes, Labels]]


def _mnist(folder: Path) -> Parts:
    return formats.mnist(folder, "train"), formats.mnist(folder, "t10k")


def _cifar_10(folder: Path) -> Parts:
    train = [folder / f"data_batch_{number}.bin" for number in range(1, 6)]
    return formats.cifar(train, 1, 0), formats.cifar([folder / "test_batch.bin"], 1, 0)


def _cifar_100(folder: Path) -> Parts:
    # A coarse label comes first; the fine one is meant.
    return formats.cifar([folder / "train.bin"], 2, 1), formats.cifar([folder / "test.bin"], 2, 1)


def _svhn(folder: Path) -> Parts:
    return formats.svhn(folder / "train_32x32.mat"), formats.svhn(folder / "test_32x32.mat")


def _tiny_imagenet(folder: Path) -> Parts:
    classes = formats.class_folders(folder / "train")
    train = formats.of_classes(folder / "train", classes, "images")
    table = folder / "val" / "val_annotations.txt"
    test = formats.listed_in(table, folder / "val" / "images", classes)
    return formats.pictures(train, 64), formats.pictures(test, 64)


def _in_class_folders(folder: Path, *, train: str, test: str, side: int) -> Parts:
    classes = formats.class_folders(folder / train)
    parts = (formats.of_classes(folder / part, classes) for part in (train, test))
    first, second = (formats.pictures(part, side) for part in parts)
    return first, second


_LECUN = "https://ossci-datasets.s3.amazonaws.com/mnist"
_ZALANDO = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_TORONTO = "https://www.cs.toronto.edu/~kriz"
_STANFORD = "http://ufldl.stanford.edu/housenumbers"

IMAGE_SETS: dict[str, Known] = {
    "mnist": Known(
        "mnist",
        10,
        _mnist,
        (
            Remote(
                f"{_LECUN}/train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", False
            ),
            Remote(
                f"{_LECUN}/train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", False
            ),
            Remote(
                f"{_LECUN}/t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", False
            ),
            Remote(
                f"{_LECUN}/t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", False
            ),
        ),
    ),
    "fashion_mnist": Known(
        "fashion-mnist",
        10,
        _mnist,
        (
            Remote(
                f"{_ZALANDO}/train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", False
            ),
            Remote(
                f"{_ZALANDO}/train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", False
            ),
            Remote(
                f"{_ZALANDO}/t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", False
            ),
            Remote(
                f"{_ZALANDO}/t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", False
            ),
        ),
    ),
    "cifar_10": Known(
        "cifar-10-batches-bin",
        10,
        _cifar_10,
        (Remote(f"{_TORONTO}/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
    ),
    "cifar_100": Known(
        "cifar-100-binary",
        100,
        _cifar_100,
        (Remote(f"{_TORONTO}/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
    ),
    "svhn": Known(
        "svhn",
        10,
        _svhn,
        (
            Remote(f"{_STANFORD}/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", False),
            Remote(f"{_STANFORD}/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", False),
        ),
    ),
    "tiny_imagenet": Known(
        "tiny-imagenet-200",
        200,
        _tiny_imagenet,
        (
            Remote(
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "90528d7ca1a48142e341f4ef8d21d0de",
            ),
        ),
    ),
    "cinic_10": Known(
        "CINIC-10",
        10,
        functools.partial(_in_class_folders, train="train", test="test", side=32),
    ),
    "imagenet": Known(
        "imagenet",
        1000,
        functools.partial(_in_class_folders, train="train", test="val", side=224),
    ),
}


def read_images(name: str, *, data_dir: Path | None = None) -> ImageSet:
    """An image set from a data folder.

    Parameters
    ----------
    name : str
        Of `IMAGE_SETS`.
    data_dir : Path, optional
        The data folder; by default that of HITRATE_DATA, or the user's cache.

    Raises
    ------
    BadInput
        There is no such set, it is not in the folder, or its files are not what they should be.
    """
    known, folder = _known(name), find_images(name, data_dir=data_dir)
    try:
        (images, labels), (test_images, test_labels) = known.read(folder)
    except FileNotFoundError as error:
        raise BadInput(f"image set {name}: {error.filename} is missing") from error
    for part in (labels, test_labels):
        if len(part) and not 0 <= part.min() <= part.max() < known.classes:
            raise BadInput(f"image set {name}: {folder} has labels beyond {known.classes} classes")
    return ImageSet(name, images, labels, test_images, test_labels, known.classes)


def find_images(name: str, *, data_dir: Path | None = None) -> Path:
    """The folder of an image set.

    Parameters
    ----------
    name : str
        Of `IMAGE_SETS`.
    data_dir : Path, optional
        As for `read_images`.

    Raises
    ------
    BadInput
        There is no such set, or it is in no data folder.
    """
    known = _known(name)
    folders = [base / known.folder for base in data_folders(data_dir)]
    for folder in folders:
        if folder.is_dir():
            return folder
    way = f"get it with hitrate_lab.datasets.images.fetch_images({name!r}, FOLDER)"
    looked = " or ".join(map(str, folders))
    raise BadInput(
        f"image set {name} is not in {looked}: let HITRATE_DATA name the folder above it"
        + (f", or {way}" if known.remote else "")
    )


def fetch_images(
    name: str, folder: str | Path, *, progress: Progress | None = None, timeout: float = 60.0
) -> Path:
    """Get an image set over the web into a data folder; every file is compared with its MD5 first.

    Returns
    -------
    Path
        The set's own folder.
    """
    known = _known(name)
    if not known.remote:
        raise BadInput(f"image set {name} cannot be fetched: put it into {known.folder} by hand")
    target = Path(folder).expanduser() / known.folder
    contents = []
    for remote in known.remote:
        content = download(remote.url, progress=progress, timeout=timeout)
        if hashlib.md5(content, usedforsecurity=False).hexdigest() != remote.md5:
            raise BadInput(
                f"{remote.url}: what came is not the file that is meant; nothing written"
            )
        contents.append(content)
    for remote, content in zip(known.remote, contents, strict=True):
        if remote.is_archive:
            _unpack(content, remote.url, target.parent)
        else:
            target.mkdir(parents=True, exist_ok=True)
            write_whole(target / remote.url.rsplit("/", 1)[1], content)
    return target


def _unpack(content: bytes, url: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if url.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            archive.extractall(folder)
        return
    with tarfile.open(fileobj=io.BytesIO(content)) as packed:
        packed.extractall(folder, filter="data")


def _known(name: str) -> Known:
    if name not in IMAGE_SETS:
        raise BadInput(f"no image set {quoted(name)}: there are {listed(IMAGE_SETS)}")
    return IMAGE_SETS[name]
