"""The map of capacity and wrong labels, on small files and with made-up results."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets.images import read_images
from hitrate_lab.runs.work import Context
from hitrate_lab.studies import plan_of, read_study
from hitrate_lab.studies.gain import places
from hitrate_lab.studies.gain.places import slope
from hitrate_lab.studies.networks import capacity_summary
from hitrate_lab.studies.networks.capacity import CapacityMap, split_of
from hitrate_lab.studies.networks.capacity_pictures import pictures
from hitrate_lab.studies.networks.capacity_summary import places_of, tables

FILE = Path(__file__).resolve().parents[4] / "studies" / "capacity_map.toml"
TEXT = FILE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def study():
    return read_study(FILE)


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    for module in (places, capacity_summary):
        monkeypatch.setattr(module, "RESAMPLES", 30)


def made_up(study, per_point=2.0):
    """Results in which each point of training accuracy gained is worth so many on test rows."""
    random = np.random.default_rng(0)
    for spec in plan_of(study):
        methods = {}
        for k, method in enumerate(study.methods):
            gained = 0.0 if not k else 0.01 * random.random()
            still = 1e-4 * np.arange(5)
            methods[method.name] = {
                "train": list(0.8 + gained + still),
                "test": list(0.7 + per_point * gained + still),
                "learning_rate": 0.01,
                "weight_decay": 0.0,
            }
        yield spec, {"methods": methods, "parameters": 50, "classes": 10, "train_rows": 8000}


def test_a_cell_is_tuned_and_trained_from_fresh_seeds(study, data):
    spec = {
        **next(each for each in plan_of(study) if each["hidden"] == 4 and each["noise"]),
        **{"rows": 100, "validation": 60, "epochs": 3, "batch_size": 25, "seeds": [0, 1]},
    }
    found, again = (CapacityMap().run(spec, Context(data)) for _ in range(2))
    assert found["methods"] == again["methods"]
    assert list(found["methods"]) == [method.name for method in study.methods]
    for each in found["methods"].values():
        assert len(each["train"]) == len(each["test"]) == 2
        assert each["learning_rate"] in spec["learning_rates"]
        assert each["weight_decay"] in spec["weight_decays"]
    assert found["copies"] == 5 * (9 + 2)
    assert found["parameters"] == (14 * 14 + 1) * 4 + 5 * 10


def test_validation_rows_are_as_wrong_as_training_rows_and_test_rows_are_right(data):
    images = read_images("mnist", data_dir=data)
    spec = {"rows": 100, "validation": 100, "noise": 0.4, "pool": 2}
    noisy, clean = split_of(images, spec), split_of(images, {**spec, "noise": 0.0})
    for part in ("train", "validation"):
        (x, y), (same, right) = getattr(noisy, part), getattr(clean, part)
        assert torch.equal(x, same) and 0.25 < (y != right).double().mean() < 0.55
    assert torch.equal(noisy.test[1], clean.test[1])
    assert noisy.test[1].tolist() == images.test_labels.tolist()
    assert noisy.inputs == 14 * 14
    rows = {tuple(row) for row in noisy.train[0].tolist()}
    assert not rows & {tuple(row) for row in noisy.validation[0].tolist()}


def test_pixels_are_the_mean_of_four_and_standardised(data):
    images = read_images("mnist", data_dir=data)
    x = split_of(images, {"rows": 200, "validation": 0, "noise": 0.0, "pool": 2}).train[0]
    assert abs(float(x.mean())) < 1e-4 and float(x.std()) == pytest.approx(1, abs=1e-4)
    test = split_of(images, {"rows": 200, "validation": 0, "noise": 0.0, "pool": 2}).test[0]
    wanted = images.test_images[:, 0].reshape(50, 14, 2, 14, 2).mean((2, 4)).reshape(50, -1)
    assert np.corrcoef(wanted.ravel(), test.numpy().ravel())[0, 1] == pytest.approx(1)


def test_what_the_gain_goes_with_is_found(study):
    runs = list(made_up(study))
    found = tables(study, runs)
    (goes_with,) = [each for each in found if each["title"] == "What the gain goes with"]
    for name, predictor, per_point, rank, *_ in goes_with["rows"]:
        if predictor == "training accuracy gained":
            assert per_point.startswith("+2.00 [") and rank.startswith("1.00 ["), name
    drawn = pictures(study, runs)
    assert set(drawn) == {"capacity-map", "capacity-training-error", "capacity-headroom"}
    # A dot for each cell and method beside the baseline, and those of the legend.
    marks = len(re.findall(r"<title>(?:mixed|annealed|GCE|EXACT)</title>", drawn["capacity-map"]))
    assert marks == len(runs) * 4


def test_gains_and_what_was_known_are_those_of_the_runs(study):
    (place, *_) = places_of(study, made_up(study))
    gained = {name: each["training accuracy gained"] for name, each in place.known.items()}
    for name, value in gained.items():
        assert place.gain[name].value == pytest.approx(2 * value)
        assert place.known[name]["headroom"] == pytest.approx(max(gained.values()))
        assert place.known[name]["training error"] == pytest.approx(0.2 - 2e-4)
        assert place.known[name]["the same less noise"] < value


def test_the_slope_is_that_of_least_squares():
    random = np.random.default_rng(0)
    x = random.random(20)
    y = 3 * x + random.random(20)
    assert slope(np.stack([x, y], 1)) == pytest.approx(np.polyfit(x, y, 1)[0])
    assert slope(np.array([[1.0, 2.0], [1.0, 3.0]])) == 0


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("tuning_seed = 100", "tuning_seed = 3", "tuning_seed: is one of the seeds"),
        ('judged = "annealed"', 'judged = "anealed"', "'anealed' is no method"),
        ("noise = [0.0, 0.2, 0.4]", "noise = [0.0, 1.0]", "shares below 1"),
        ('"images/mnist", "images/fash', '"exact/car", "images/fash', "is none of images/NAME"),
        ("mlp_64_test_accuracy", "mlp_65_test_accuracy", "'mlp_65_test_accuracy' is none of"),
        ('recipe = "exact"', 'recipe = "exact_networks"', "trained at once"),
    ],
)
def test_what_a_file_cannot_say_is_one_line(tmp_path, old, new, complaint):
    assert old in TEXT
    (tmp_path / "capacity_map.toml").write_text(TEXT.replace(old, new))
    with pytest.raises(BadInput, match=complaint) as error:
        plan_of(read_study(tmp_path / "capacity_map.toml"))
    assert "\n" not in str(error.value)
