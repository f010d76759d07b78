import gzip
import hashlib
import http.server
import io
import struct
import tarfile
import threading

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets.images import IMAGE_SETS, fetch_images, read_images
from hitrate_lab.datasets.images.sets import Known, Remote

RANDOM = np.random.default_rng(0)


def images(rows, channels, side):
    return RANDOM.integers(256, size=(rows, channels, side, side), dtype=np.uint8)


def labels(rows, classes):
    return RANDOM.integers(classes, size=rows)


def write_idx(path, array, *, packed=False):
    content = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    if packed:
        path = path.with_name(path.name + ".gz")
        content = gzip.compress(content)
    path.write_bytes(content)


def write_pictures(folder, pictures, names):
    folder.mkdir(parents=True)
    for picture, name in zip(pictures, names, strict=True):
        Image.fromarray(picture.transpose(1, 2, 0)).save(folder / name)


def make_mnist(base, name, *, packed):
    parts = []
    for part, rows in (("train", 7), ("t10k", 4)):
        x, y = images(rows, 1, 28), labels(rows, 10)
        write_idx(base / name / f"{part}-images-idx3-ubyte", x[:, 0], packed=packed)
        write_idx(base / name / f"{part}-labels-idx1-ubyte", y.astype(np.uint8), packed=packed)
        parts.append((x, y))
    return parts


def make_cifar(base, folder, files, heads):
    (base / folder).mkdir()
    made = []
    for file in files:
        x, y = images(3, 3, 32), labels(3, 10)
        head = [np.zeros((3, heads - 1), np.uint8), y[:, None].astype(np.uint8)]
        rows = np.concatenate([*head, x.reshape(3, -1)], 1)
        (base / folder / file).write_bytes(rows.tobytes())
        made.append((x, y))
    train = made[:-1]
    return [tuple(np.concatenate(each) for each in zip(*train, strict=True)), made[-1]]


def make_svhn(base):
    (base / "svhn").mkdir()
    parts = []
    for name in ("train", "test"):
        x, y = images(5, 3, 32), labels(5, 10)
        written = np.where(y == 0, 10, y)[:, None].astype(np.uint8)
        savemat(base / "svhn" / f"{name}_32x32.mat", {"X": x.transpose(2, 3, 1, 0), "y": written})
        parts.append((x, y))
    return parts


def make_tiny_imagenet(base):
    folder = base / "tiny-imagenet-200"
    x, y = images(4, 3, 64), np.array([0, 0, 1, 1])
    for number, name in enumerate(("n01", "n02")):
        write_pictures(folder / "train" / name / "images", x[y == number], ["a.png", "b.png"])
    test = images(3, 3, 64), np.array([1, 0, 1])
    names = [f"val_{row}.png" for row in range(3)]
    write_pictures(folder / "val" / "images", test[0], names)
    lines = [
        f"{name}\tn0{label + 1}\t0\t0\t1\t1\n" for name, label in zip(names, test[1], strict=True)
    ]
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    return [(x, y), test]


def make_class_folders(base, folder, second, side):
    parts = []
    for part in ("train", second):
        x, y = images(4, 3, side), np.array([0, 0, 1, 1])
        for number, name in enumerate(("airplane", "cat")):
            write_pictures(base / folder / part / name, x[y == number], ["1.png", "2.png"])
        parts.append((x, y))
    return parts


MAKERS = {
    "mnist": lambda base: make_mnist(base, "mnist", packed=False),
    "fashion_mnist": lambda base: make_mnist(base, "fashion-mnist", packed=True),
    "cifar_10": lambda base: make_cifar(
        base,
        "cifar-10-batches-bin",
        [*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"],
        1,
    ),
    "cifar_100": lambda base: make_cifar(base, "cifar-100-binary", ["train.bin", "test.bin"], 2),
    "svhn": make_svhn,
    "tiny_imagenet": make_tiny_imagenet,
    "cinic_10": lambda base: make_class_folders(base, "CINIC-10", "test", 32),
    "imagenet": lambda base: make_class_folders(base, "imagenet", "val", 224),
}


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_what_was_written_is_read(name, tmp_path):
    (x, y), (test_x, test_y) = MAKERS[name](tmp_path)
    found = read_images(name, data_dir=tmp_path)
    assert found.train_images.dtype == np.uint8
    np.testing.assert_array_equal(found.train_images, x)
    np.testing.assert_array_equal(found.train_labels, y)
    np.testing.assert_array_equal(found.test_images, test_x)
    np.testing.assert_array_equal(found.test_labels, test_y)
    assert found.classes == IMAGE_SETS[name].classes


def test_pictures_of_another_size_are_scaled_and_cut_at_the_centre(tmp_path):
    MAKERS["cinic_10"](tmp_path)
    # Twice as wide as high: what is left of it is the middle, which is white.
    wide = np.zeros((3, 64, 128), np.uint8)
    wide[:, :, 32:96] = 255
    Image.fromarray(wide.transpose(1, 2, 0)).save(tmp_path / "CINIC-10/train/cat/0.png")
    found = read_images("cinic_10", data_dir=tmp_path)
    assert found.train_images.shape == (5, 3, 32, 32)
    assert found.train_images[2, :, :, 2:-2].min() == 255
    assert found.train_labels.tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_a_set_that_is_missing_is_one_line(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HITRATE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(BadInput, match=f"image set {name} is not in") as told:
        read_images(name)
    assert "HITRATE_DATA" in str(told.value)
    assert "\n" not in str(told.value)
    assert ("fetch_images" in str(told.value)) == bool(IMAGE_SETS[name].remote)


def test_broken_files_are_told(tmp_path):
    MAKERS["mnist"](tmp_path)
    MAKERS["cifar_10"](tmp_path)
    MAKERS["cinic_10"](tmp_path)
    file = tmp_path / "mnist" / "train-images-idx3-ubyte"
    content = file.read_bytes()
    for broken, complaint in (
        (content[:-1], "where its head says"),
        (b"PK" + content[2:], "not an idx file"),
    ):
        file.write_bytes(broken)
        with pytest.raises(BadInput, match=complaint):
            read_images("mnist", data_dir=tmp_path)
    file.unlink()
    with pytest.raises(BadInput, match="train-images-idx3-ubyte is missing"):
        read_images("mnist", data_dir=tmp_path)
    batch = tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin"
    batch.write_bytes(batch.read_bytes()[:-5])
    with pytest.raises(BadInput, match="are not rows of 3073"):
        read_images("cifar_10", data_dir=tmp_path)
    (tmp_path / "CINIC-10/test/cat/1.png").write_bytes(b"no picture")
    with pytest.raises(BadInput, match=r"1\.png"):
        read_images("cinic_10", data_dir=tmp_path)
    with pytest.raises(BadInput, match="no image set 'mnits'"):
        read_images("mnits")


def test_labels_beyond_the_classes_are_told(tmp_path):
    MAKERS["mnist"](tmp_path)
    write_idx(tmp_path / "mnist" / "train-labels-idx1-ubyte", np.full(7, 11, np.uint8))
    with pytest.raises(BadInput, match="beyond 10 classes"):
        read_images("mnist", data_dir=tmp_path)


@pytest.fixture
def served(tmp_path):
    """A folder that a server of this process gives out."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_set_is_fetched_once_its_sum_is_right(served, tmp_path, monkeypatch):
    folder, address = served
    x, y = MAKERS["cifar_100"](folder)[0]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(folder / "cifar-100-binary", "cifar-100-binary")
    (folder / "cifar.tar.gz").write_bytes(packed.getvalue())
    right = hashlib.md5(packed.getvalue()).hexdigest()
    known = IMAGE_SETS["cifar_100"]
    for md5 in ("0" * 32, right):
        remote = (Remote(f"{address}/cifar.tar.gz", md5),)
        changed = Known(known.folder, known.classes, known.read, remote)
        monkeypatch.setitem(IMAGE_SETS, "cifar_100", changed)
        if md5 != right:
            with pytest.raises(BadInput, match="not the file that is meant"):
                fetch_images("cifar_100", tmp_path / "data")
            assert not (tmp_path / "data").exists()
    fetch_images("cifar_100", tmp_path / "data")
    found = read_images("cifar_100", data_dir=tmp_path / "data")
    np.testing.assert_array_equal(found.train_images, x)
    np.testing.assert_array_equal(found.train_labels, y)


def test_a_set_that_one_has_to_ask_for_is_not_fetched(tmp_path):
    with pytest.raises(BadInput, match="put it into imagenet by hand"):
        fetch_images("imagenet", tmp_path)


@pytest.mark.parametrize(
    ("name", "rows", "means"),
    [
        ("mnist", 60_000, [0.1307]),
        ("fashion_mnist", 60_000, [0.2860]),
        ("cifar_10", 50_000, [0.4914, 0.4822, 0.4465]),
        ("cifar_100", 50_000, [0.5071, 0.4865, 0.4409]),
    ],
)
def test_the_published_sets_have_the_means_that_everybody_uses(name, rows, means):
    try:
        found = read_images(name)
    except BadInput as missing:
        pytest.skip(str(missing))
    assert len(found.train_images) == rows
    assert len(found.test_images) == 10_000
    np.testing.assert_allclose(found.train_images.mean((0, 2, 3)) / 255, means, atol=1e-4)
