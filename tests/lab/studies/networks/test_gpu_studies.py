"""Studies that take hours of a GPU, in miniature: all that they say can be trained."""

from pathlib import Path

import numpy as np
import pytest

from hitrate_lab.datasets.images.sets import ImageSet
from hitrate_lab.runs.work import Context
from hitrate_lab.studies import plan_of, read_study
from hitrate_lab.studies.networks import images
from hitrate_lab.studies.registry import protocol_named
from hitrate_lab.training import Trainer

FOLDER = Path(__file__).resolve().parents[4] / "studies"
STUDIES = sorted(
    path.stem
    for path in FOLDER.glob("*.toml")
    if 'protocol = "image networks"' in path.read_text(encoding="utf-8")
)
# Rows of a part, of a batch, and classes: each of them has rows, and more than five are there.
ROWS, BATCH, CLASSES = 8, 4, 6


def few_images(name, _):
    """So many random ones, of the set's shape, of a few classes."""
    random = np.random.default_rng(0)
    shape = (1, 28, 28) if "mnist" in name else (3, 32, 32)
    x = random.integers(0, 256, (2 * ROWS, *shape)).astype(np.uint8)
    y = np.arange(ROWS) % CLASSES
    return ImageSet(name, x[:ROWS], y, x[ROWS:], y, CLASSES)


def small(spec, epochs=1):
    training = {**spec["training"], "epochs": epochs, "batch_size": BATCH}
    # There are too few rows to hold some out.
    return {**spec, "rows": ROWS, "validation": 0, "training": training}


def few(study):
    """One run of each network, and one of each method with the first network."""
    found = {}
    for spec in plan_of(study):
        found.setdefault(("network", spec["data_set"], spec["model"]), spec)
        first = next(iter(found.values()))["model"]
        if spec["model"] == first:
            found.setdefault(("method", spec["data_set"], spec["method"]), spec)
    return list({id(spec): spec for spec in found.values()}.values())


class Stop(BaseException):
    """As sudden as a kill."""


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_every_network_and_method_of_a_large_study_trains(name, monkeypatch):
    monkeypatch.setattr(images, "read_set", few_images)
    study = read_study(FOLDER / f"{name}.toml")
    for spec in few(study):
        found = protocol_named(study.protocol).run(small(spec), Context())
        # A long tail leaves out rows, but of no class all of them.
        assert CLASSES <= found["train_rows"] <= ROWS and found["test_rows"] == ROWS
        assert found["steps"] == found["train_rows"] // BATCH
        assert np.isfinite(found["train_loss"]) and 0 <= found["test_accuracy"] <= 1
        assert protocol_named(study.protocol).cells(spec, found)


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_killed_run_of_a_large_study_goes_on(name, monkeypatch, tmp_path):
    monkeypatch.setattr(images, "read_set", few_images)
    study = read_study(FOLDER / f"{name}.toml")
    protocol, spec, save = protocol_named(study.protocol), small(plan_of(study)[0], 2), Trainer.save

    def save_and_die(self):
        save(self)
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", save_and_die)
        with pytest.raises(Stop):
            protocol.run(spec, Context(scratch=tmp_path))
    steps = []
    patched = Trainer._step

    def counted(self):
        steps.append(1)
        patched(self)

    monkeypatch.setattr(Trainer, "_step", counted)
    done = protocol.run(spec, Context(scratch=tmp_path))["steps"]
    # The first of two epochs was not done again.
    assert len(steps) == done // 2 > 0
