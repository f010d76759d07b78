"""Long tails and top-k in studies of images: what losses are told, what is counted and shown."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from hitrate import recipe
from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets.images import read_images
from hitrate_lab.datasets.long_tail import counts_of
from hitrate_lab.runs.store import Store
from hitrate_lab.studies import document, plan_of, read_study, run_study
from hitrate_lab.studies.changes import BALANCES, moving, told
from hitrate_lab.studies.markdown import sections
from hitrate_lab.studies.networks.counted import balanced, by_class, top_k_accuracy
from hitrate_lab.studies.networks.images import parts_of
from hitrate_lab.wording import points

TEXT = """
name = "tails"
title = "Tails"
reproduces = "nothing"
protocol = "image networks"
data_sets = ["images/mnist"]
seeds = [0, 1, 2]

[measures]
balanced_accuracy = "Balanced, %"
top_3_accuracy = "Top-3, %"

[settings]
imbalance = 4
k = 3
beside = ["CE", "weights"]

[settings.networks]
"images/mnist" = ["linear"]

[settings.epochs]
"images/mnist" = 2

[settings.training]
batch_size = 10
learning_rate = 0.0003

[[methods]]
name = "CE"
recipe = "cross_entropy"
balance = "none"

[methods.paper.balanced_accuracy]
"images/mnist" = 38.32

[[methods]]
name = "weights"
recipe = "cross_entropy"
balance = "prior"

[[methods]]
name = "LDAM, deferred"
recipe = "exact"
balance = "margin and weights"
largest_margin = 2.0

[methods.changes]
noise = "gumbel"
link = "log"
reweighting = [[0.0, 1.0], [0.5]]

[[methods]]
name = "annealed, k=3"
recipe = "annealed"
balance = "prior"
changes = { k = 3, logit_adjustment = 1.0 }
"""
TITLE = "Balanced accuracy, %"


def study(tmp_path, text=TEXT):
    path = tmp_path / "tails.toml"
    path.write_text(text)
    return read_study(path)


@pytest.fixture
def done(tmp_path, data):
    """A study that was run, its results by method and seed, and its report."""
    asked, store = study(tmp_path), tmp_path / "runs.sqlite"
    status = run_study(asked, store=store, jobs=1, data_dir=data)
    assert (status.done, status.failed) == (12, 0)
    with Store(store) as runs:
        found = {
            (run.specification["method"], run.specification["seed"]): run.result
            for run in runs.runs(plan_of(asked))
        }
    return asked, found, document(asked, store)


def test_a_study_of_a_tail_runs_and_shows_what_was_counted(done):
    asked, found, report = done
    shares = {}
    for method in asked.methods:
        for seed in method.seeds:
            counted = found[method.name, seed]["by_class"]
            assert sum(counted["learnt"]) == found[method.name, seed]["train_rows"]
            assert sum(counted["rows"]) == 50
            hits = np.array(counted["right"])
            assert hits.sum() / 50 == pytest.approx(found[method.name, seed]["test_accuracy"])
            mean = np.mean([right / n for right, n in zip(hits, counted["rows"], strict=True)])
            shares.setdefault(method.name, []).append(mean)
    (table,) = [each for each in report["extra_tables"] if each["title"] == TITLE]
    lines = {row[1]: row for row in table["rows"]}
    assert list(lines) == [*(method.name for method in asked.methods), "CE, adjusted afterwards"]
    for name, values in shares.items():
        mean = f"{100 * np.mean(values):.2f} ± {100 * np.std(values, ddof=1):.2f}"
        assert lines[name][2:4] == ["3", mean]
        for column, base in ((4, "CE"), (5, "weights")):
            if name == base:
                assert lines[name][column] == ""
                continue
            interval = stats.ttest_ind(values, shares[base], equal_var=False).confidence_interval()
            assert lines[name][column].endswith(f"({' to '.join(points(e, 2) for e in interval)})")
    assert lines["CE"][-1] == "38.3" and lines["weights"][-1] == ""
    (cell,) = [each for each in report["tables"] if each["measure"] == "balanced_accuracy"]
    assert cell["rows"][0]["cells"]["CE"]["mean"] == pytest.approx(100 * np.mean(shares["CE"]))


def test_top_k_is_shown_beside_top_1(done):
    asked, found, report = done
    text = sections(report)["Top-1 and top-3 accuracy"]
    for method in asked.methods:
        for key in ("test_accuracy", "top_k_accuracy"):
            mean = np.mean([found[method.name, seed][key] for seed in method.seeds])
            assert f"{100 * mean:.2f}" in text
        assert all(
            found[method.name, seed]["top_k_accuracy"] >= found[method.name, seed]["test_accuracy"]
            for seed in method.seeds
        )


def test_only_training_rows_are_left_out_the_same_for_all(tmp_path, data):
    images = read_images("mnist", data_dir=data)
    specs = plan_of(study(tmp_path))
    parts = [parts_of(images, spec) for spec in specs]
    for train, held in parts:
        assert torch.equal(train.x, parts[0][0].x) and len(held) == 50
    counts = parts[0][0].target.bincount(minlength=10)
    most, there = counts_of(200, 10, 4.0), np.bincount(images.train_labels, minlength=10)
    assert counts.tolist() == np.minimum(most, there).tolist()
    # What is held out of the training part is not cut, and not trained on.
    train, held = parts_of(images, {**specs[0], "validation": 60})
    assert len(held) == 60
    assert not {x.numpy().tobytes() for x in train.x} & {x.numpy().tobytes() for x in held.x}


def test_deferred_margins_by_class_are_the_loss_of_their_authors():
    random = torch.Generator().manual_seed(0)
    target = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), 50, True, generator=random)
    counts = target.bincount(minlength=3)
    cosines = 2 * torch.rand(50, 3, generator=random) - 1
    changes = {"noise": "gumbel", "link": "log", "sigma": 1 / 30}
    changes = {**moving({**changes, "reweighting": [[0.0, 1.0], [0.8]]})}
    known = told("margin and weights", 0.5, target, 3)
    plan = recipe("exact", total_steps=11, **changes, **known)
    margin = 0.5 * (counts.min() / counts) ** 0.25
    logits = 30 * (cosines - F.one_hot(target, 3) * margin)
    early = F.cross_entropy(logits, target)
    late = F.cross_entropy(logits, target, weight=1 / counts)
    for step in range(11):
        expected = early if step < 8 else late
        torch.testing.assert_close(plan.loss(cosines, target), expected, msg=str(step))
        plan.step()


@pytest.mark.parametrize("balance", BALANCES)
def test_a_loss_is_told_what_its_method_asks_for(balance):
    found = told(balance, 0.5, torch.tensor([0, 0, 1]), 2)
    wanted = {
        "none": set(),
        "prior": {"class_prior"},
        "margin": {"class_margin"},
        "margin and weights": {"class_prior", "class_margin"},
    }
    assert found.keys() == wanted[balance]


def test_what_is_adjusted_afterwards_are_logits_less_the_logarithms_of_shares():
    # The rare class is behind by less than log 9 in the first row, by more in the second.
    logits = torch.tensor([[2.0, 0.0], [2.5, 0.0], [0.0, 1.0]])
    learnt = torch.tensor([0] * 9 + [1])
    found = by_class(logits, torch.tensor([1, 1, 1]), learnt, 2)
    assert found["learnt"] == [9, 1] and found["rows"] == [0, 3]
    assert found["right"] == [0, 1] and found["right_adjusted"] == [0, 2]
    assert balanced(found, "right_adjusted") == pytest.approx(2 / 3)
    assert top_k_accuracy(logits, torch.tensor([1, 1, 1]), 1) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("imbalance = 4", "imbalance = 0.5", "imbalance: needs a number of at least 1"),
        ("k = 3\nb", "k = 0\nb", "k: needs a whole number of 1 or more"),
        ('beside = ["CE", "weights"]', 'beside = ["softmax"]', "'softmax' is no method"),
        ('balance = "prior"', 'balance = "shares"', "balance: needs one of"),
        ("imbalance = 4\n", "", "'balanced_accuracy' is none of"),
        ("k = 3\nb", "b", "'top_3_accuracy' is none of"),
        ('balance = "margin and weights"', "", "reweighting.* needs class_prior"),
        ("[[0.0, 1.0], [0.5]]", "[[0.0, 1.0], [0.5, 0.7]]", "phases"),
    ],
)
def test_what_a_file_cannot_say_is_one_line(tmp_path, old, new, complaint):
    assert old in TEXT
    with pytest.raises(BadInput, match=complaint) as error:
        plan_of(study(tmp_path, TEXT.replace(old, new, 1)))
    assert "\n" not in str(error.value)


def test_more_first_classes_than_there_are_are_told_before_anything_is_trained(tmp_path):
    asked = study(tmp_path, TEXT.replace("k = 3\nb", "k = 11\nb").replace("top_3", "top_11"))
    with pytest.raises(BadInput, match=r"settings.k: 11 is more than the 10 classes of images/mni"):
        plan_of(asked)
