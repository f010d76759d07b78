import numpy as np
import pytest


def write_idx(path, values):
    head = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
    path.write_bytes(head + values.tobytes())


@pytest.fixture
def data(tmp_path):
    """Bright squares whose place is the class, as MNIST's files have images."""
    folder, random = tmp_path / "data" / "mnist", np.random.default_rng(0)
    folder.mkdir(parents=True)
    for part, rows in (("train", 200), ("t10k", 50)):
        labels = random.integers(0, 10, rows).astype(np.uint8)
        images = random.integers(0, 40, (rows, 28, 28)).astype(np.uint8)
        for k, label in enumerate(labels):
            images[k, 2 * label : 2 * label + 6, 8:20] += 180
        write_idx(folder / f"{part}-images-idx3-ubyte", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte", labels)
    return tmp_path / "data"
