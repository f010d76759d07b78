"""Studies of networks on images, on small files of the official formats."""

import json

import numpy as np
import pytest
from scipy import stats

from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets.images import read_images
from hitrate_lab.runs.store import Store
from hitrate_lab.runs.work import Context
from hitrate_lab.studies import document, plan_of, read_study, run_study
from hitrate_lab.studies.networks.differences import Cell, headroom_of, welch
from hitrate_lab.studies.networks.images import packed, parts_of, unpacked, wrong_labels
from hitrate_lab.studies.registry import protocol_named
from hitrate_lab.training import Trainer

TEXT = """
name = "images"
title = "Images"
reproduces = "nothing"
protocol = "image networks"
data_sets = ["images/mnist"]
seeds = [0, 1]

[measures]
linear_test_accuracy = "Linear, %"
mlp_4_noise_30_test_accuracy = "Four hidden units, 30 % wrong labels, %"

[settings]
noise = [0.0, 0.3]
keep_hits = true

[settings.networks]
"images/mnist" = ["linear", "mlp_4"]

[settings.epochs]
"images/mnist" = 2

[settings.augment]
"images/mnist" = { shift = 0.1 }

[settings.training]
batch_size = 20
rate = "exponential"
last_learning_rate = 1e-3

[[methods]]
name = "CE"
recipe = "cross_entropy"
learning_rate = 0.1

[[methods]]
name = "EXACT"
recipe = "exact_networks"

[methods.parameters]
"images/mnist" = { learning_rate = 0.05, changes = { margin = 1.0 } }
"""


def study(tmp_path, text=TEXT):
    path = tmp_path / "images.toml"
    path.write_text(text)
    return read_study(path)


def test_a_study_runs_and_is_reported_on(tmp_path, data):
    asked, store = study(tmp_path), tmp_path / "runs.sqlite"
    status = run_study(asked, store=store, jobs=1, data_dir=data)
    assert (status.done, status.failed) == (16, 0)
    with Store(store) as runs:
        results = [run.result for run in runs.runs(plan_of(asked))]
    for result in results:
        assert len(result["curve"]) == 2 and result["steps"] == 20
        hits = unpacked(result["hits"], result["test_rows"])
        assert hits.mean() == pytest.approx(result["test_accuracy"])
    report = document(asked, store)
    text = json.dumps(report)
    assert "Differences from CE" in text and "mnist, mlp_4, 30 % wrong labels" in text
    # Checkpoints are gone when what they were for is kept.
    assert not list(tmp_path.glob("*.scratch"))


def test_equal_specifications_give_equal_results(tmp_path, data):
    asked = study(tmp_path, TEXT.replace("seeds = [0, 1]", "seeds = [3]"))
    found = []
    for name in ("a", "b"):
        run_study(asked, store=tmp_path / name, jobs=1, data_dir=data)
        with Store(tmp_path / name) as runs:
            found.append([(r.key, r.result["test_log_loss"]) for r in runs.runs(plan_of(asked))])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"linear", "mlp_4"]', '"linear", "mlp_4", "resnet_19"]', "'resnet_19' is none of"),
        ('"images/mnist"]', '"exact/car"]', "is none of images/NAME"),
        ('rate = "exponential"', 'rate = "falling"', "goes with the rate 'exponential'"),
        ("batch_size = 20", "batch = 20", "batch is no option of training"),
        ('recipe = "exact_networks"', 'recipe = "exakt"', "exakt"),
        ("margin = 1.0", "margins = 1.0", "margins"),
        ("noise = [0.0, 0.3]", "noise = [0.0, 1.0]", "shares below 1"),
        ("linear_test_accuracy", "test_accuracy", "would mix several networks"),
        ('"images/mnist" = 2', '"images/mnist" = 0', "whole number of 1 or more"),
    ],
)
def test_what_a_file_cannot_say_is_one_line(tmp_path, old, new, complaint):
    assert old in TEXT
    with pytest.raises(BadInput, match=complaint) as error:
        plan_of(study(tmp_path, TEXT.replace(old, new)))
    assert "\n" not in str(error.value)


def test_missing_images_are_told_before_anything_runs(tmp_path):
    with pytest.raises(BadInput, match="image set mnist is not in"):
        run_study(study(tmp_path), store=tmp_path / "s", jobs=1, data_dir=tmp_path / "nowhere")
    assert not (tmp_path / "s").exists()


def test_held_out_rows_are_of_the_training_part_and_not_trained_on(data):
    images = read_images("mnist", data_dir=data)
    spec = {"rows": 100, "validation": 30, "noise": 0.2}
    train, held = parts_of(images, spec)
    assert (len(train), len(held)) == (100, 30)
    every = {image.tobytes() for image in images.train_images}
    some = {image.numpy().tobytes() for image in train.x}
    others = {image.numpy().tobytes() for image in held.x}
    assert some <= every and others <= every and not some & others
    # Only labels that are learned from are wrong.
    right = {
        image.tobytes(): label
        for image, label in zip(images.train_images, images.train_labels, strict=True)
    }
    assert all(
        right[x.numpy().tobytes()] == y for x, y in zip(held.x, held.target.tolist(), strict=True)
    )
    wrong = [
        right[x.numpy().tobytes()] != y for x, y in zip(train.x, train.target.tolist(), strict=True)
    ]
    assert 0.1 < np.mean(wrong) < 0.3


def test_wrong_labels_are_any_other_class():
    labels = np.random.default_rng(1).integers(0, 5, 20000)
    found = wrong_labels(labels, 5, 0.4)
    assert np.mean(found != labels) == pytest.approx(0.4, abs=0.02)
    away = ((found - labels) % 5)[found != labels]
    assert stats.chisquare(np.bincount(away, minlength=5)[1:]).pvalue > 1e-3
    np.testing.assert_array_equal(wrong_labels(labels, 5, 0.0), labels)


def test_hits_are_packed_without_loss():
    hits = np.random.default_rng(0).random(1003) < 0.7
    np.testing.assert_array_equal(unpacked(packed(hits), 1003), hits)


def test_intervals_are_those_of_scipy():
    random = np.random.default_rng(0)
    a, b = random.normal(1, 1, 12), random.normal(0, 3, 40)
    found = welch(a, b)
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.smallest > (found.high - found.low) / 2
    assert welch(a[:1], b) is None


def test_headroom_is_what_another_method_reaches_in_training():
    train = {"CE": np.array([0.8, 0.82]), "A": np.array([0.9, 0.88]), "B": np.array([0.5, 0.5])}
    cell = Cell("images/mnist", "linear", 0.0, train, train)
    assert headroom_of(cell, "CE") == pytest.approx(0.08)
    assert headroom_of(cell, "A") == 0


class Stop(BaseException):
    """As sudden as a kill."""


def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path, data, monkeypatch):
    asked = study(tmp_path)
    protocol, spec = protocol_named("image networks"), plan_of(asked)[0]
    whole = protocol.run(spec, Context(data))
    scratch, save = tmp_path / "scratch", Trainer.save

    def save_and_die(self):
        save(self)
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", save_and_die)
        with pytest.raises(Stop):
            protocol.run(spec, Context(data, scratch=scratch))
    again = protocol.run(spec, Context(data, scratch=scratch))
    same = {"test_log_loss", "train_loss", "curve", "steps", "hits"}
    assert {key: again[key] for key in same} == {key: whole[key] for key in same}
