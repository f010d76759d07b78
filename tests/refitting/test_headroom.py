"""What a refit of the last layer says: against scikit-learn, autograd and known answers."""

import importlib
import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import hitrate
from hitrate.links import GCE
from hitrate.refitting import rows as rows_module
from hitrate.refitting.descent import minimum
from hitrate.refitting.rows import Rows

CPU = torch.device("cpu")


def blobs(count, classes=3, width=5, seed=0, apart=1.0):
    """Features and classes; the features differ in scale and are correlated."""
    random = torch.Generator().manual_seed(seed)
    target = torch.randint(classes, (count,), generator=random)
    centers = apart * torch.randn(classes, width, generator=random)
    x = centers[target] + torch.randn(count, width, generator=random)
    mixing = torch.randn(width, width, generator=random) * torch.logspace(-1, 1, width)
    return x @ mixing + 3, target


def far(count, seed=0):
    """A tenth of the rows, far on the wrong side, pulls a likelihood's boundary along."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 2, generator=random)
    target = (x[:, 0] > 0).long()
    x[: count // 10], target[: count // 10] = torch.tensor([6.0, 0.0]), 0
    return x, target


def coin(count, width=4, seed=0):
    """Classes that have nothing to do with the features."""
    random = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=random), torch.randint(2, (count,), generator=random)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("strength", [1.0, 100.0])
def test_the_likelihoods_maximum_is_that_of_scikit_learn(classes, strength):
    x, y = blobs(600, classes)
    table = Rows(x, y, classes, CPU)
    zero = torch.zeros(classes, x.shape[1] + 1, dtype=torch.float64)
    head = minimum(table, GCE(0.0), zero, l2=strength / len(x), most=300, tol=1e-9)
    scaled = ((x - x.mean(0)) / x.std(0, correction=0)).double().numpy()
    # With two classes its one column has half of the penalty that two opposite ones have.
    reference = LogisticRegression(
        C=(2 if classes == 2 else 1) / strength, tol=1e-10, max_iter=5000
    )
    expected = reference.fit(scaled, y.numpy()).predict_log_proba(scaled)
    found = table.scores(head).double().log_softmax(1)
    torch.testing.assert_close(found, torch.from_numpy(expected), atol=2e-3, rtol=0)


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0])
def test_values_and_slopes_are_those_of_the_loss(q):
    x, y = blobs(50, 4)
    head = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) / 5
    value, slopes = Rows(x, y, 4, CPU).loss(GCE(q), head)
    wanted = head.clone().requires_grad_()
    logits = x.double() @ wanted[:, :-1].T + wanted[:, -1]
    loss = hitrate.ExactLoss(noise="gumbel", link=GCE(q))(logits, y)
    loss.backward()
    assert value == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(slopes, wanted.grad, atol=1e-5, rtol=1e-4)


def test_coordinates_of_steps_lead_back_and_carry_slopes():
    x, y = blobs(80)
    table = Rows(x, y, 3, CPU)
    head = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    steps = table.to_steps(head)
    torch.testing.assert_close(table.to_head(steps), head)
    slopes = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    steps.requires_grad_()
    (expected,) = torch.autograd.grad((table.to_head(steps) * slopes).sum(), steps)
    torch.testing.assert_close(table.slopes_of_steps(slopes), expected)


def test_a_boundary_that_was_pulled_aside_is_found():
    x, y = far(2000)
    found = hitrate.headroom(x, y)
    assert found.headroom > 0.05 and found.low > 0.05
    assert "gains about +" in found.sentence
    new, of = far(20_000, seed=1)
    gained = (found.head()(new).argmax(1) == of).double().mean()
    likely = LogisticRegression().fit(x.numpy(), y.numpy()).score(new.numpy(), of.numpy())
    assert found.low - 0.02 < gained - likely < found.high + 0.02


def test_noise_has_no_headroom():
    found = hitrate.headroom(*coin(1000))
    assert found.reachable > found.now
    assert found.headroom < 0.02
    assert found.low < 0 < found.high
    assert "gains" not in found.sentence


def test_what_is_fitted_is_said_to_be_fitted():
    x, y = blobs(300, apart=8.0)
    found = hitrate.headroom(x, y)
    assert found.now == 1.0 and found.headroom == 0.0
    assert found.sentence == (
        "Your network fits its training rows (100.0 %): training for accuracy will not help."
    )


def test_accuracies_are_those_of_the_head_that_was_given():
    x, y = blobs(400)
    head = torch.nn.Linear(5, 3)
    with torch.no_grad():
        right = (head(x).argmax(1) == y).double().mean().item()
    for given in (head, (head.weight, head.bias), (head.weight.detach().numpy(), head.bias)):
        found = hitrate.headroom(x, y, given)
        assert found.now == pytest.approx(right, abs=1e-9)
    error = 1 - right
    # Two columns of six are free where there are three classes.
    assert found.noise == pytest.approx(0.5 * math.sqrt(12 / 400 * error * right))


def test_with_test_rows_the_gain_is_theirs():
    x, y = blobs(400)
    new, of = blobs(300, seed=0)
    head = torch.nn.Linear(5, 3)
    found = hitrate.headroom(x, y, head, test=(new, of))
    with torch.no_grad():
        ours = (found.head()(new).argmax(1) == of).double()
        theirs = (head(new).argmax(1) == of).double()
    assert found.has_test and found.held_out == 300
    assert found.gain == pytest.approx((ours - theirs).mean().item(), abs=1e-6)
    spread = ((ours - theirs).square().sum() + 2) / 302 - found.gain**2
    reach = 1.959964 * math.sqrt(spread / 300)
    assert found.high - found.gain == pytest.approx(reach, rel=1e-4)
    assert found.gain - found.low == pytest.approx(reach, rel=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_file_on_the_disk_in_pieces_says_the_same(dtype, tmp_path, monkeypatch):
    x, y = far(700)
    np.save(tmp_path / "features.npy", x.numpy().astype(dtype))
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    expected = hitrate.headroom(torch.from_numpy(np.array(mapped)), y)
    monkeypatch.setattr(rows_module, "ROOM", 0)
    monkeypatch.setattr(rows_module, "IN_CACHE", 1)
    found = hitrate.headroom(mapped, y.numpy())
    for name in ("now", "reachable", "gain", "q", "l2"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=3e-3)


def test_of_many_rows_some_are_drawn():
    x, y = far(3000)
    found = hitrate.headroom(x, y, rows=500, seed=3)
    assert found.rows == found.held_out == 500
    again = hitrate.headroom(x, y, rows=500, seed=3)
    assert (found.gain, found.reachable) == (again.gain, again.reachable)


def test_of_many_rows_one_part_is_held_out(monkeypatch):
    # The function has the module's name.
    module = importlib.import_module("hitrate.refitting.headroom")
    monkeypatch.setattr(module, "FEW", 500)
    monkeypatch.setattr(module, "SOME", 600)
    x, y = far(3000)
    found = hitrate.headroom(x, y)
    assert found.held_out == 1000
    assert found.headroom > 0.05 and found.low > 0.05


def test_constant_and_missing_features_do_no_harm():
    x, y = far(400)
    padded = torch.cat([x, torch.full((400, 2), 7.0)], 1)
    assert hitrate.headroom(padded, y).headroom > 0.05
    only = hitrate.headroom(torch.ones(60, 1), torch.arange(60) % 3)
    assert only.now == pytest.approx(1 / 3) and only.weight.isfinite().all()


def test_a_class_without_rows_is_kept():
    x, y = blobs(200)
    found = hitrate.headroom(x, y, torch.nn.Linear(5, 7))
    assert found.weight.shape == (7, 5) and found.bias.shape == (7,)


def test_progress_is_told():
    said = []
    hitrate.headroom(*far(200), progress=said.append)
    assert said[0] == "reading" and said[-1] == "what is reachable"


@pytest.mark.slow
def test_where_nothing_is_to_be_gained_an_interval_seldom_says_so():
    # A likelihood cannot be beaten on rows that were drawn from it.
    wrong = 0
    for seed in range(60):
        random = torch.Generator().manual_seed(seed)
        x = torch.randn(300, 4, generator=random)
        p = (x @ torch.tensor([1.0, -1.0, 0.5, 0.0])).sigmoid()
        y = (torch.rand(300, generator=random) < p).long()
        wrong += hitrate.headroom(x, y, seed=seed).low > 0
    # At 2.5 % each more than 6 of 60 have a probability below 0.001.
    assert wrong <= 6


x, y = blobs(40)
WRONG = {
    "one dimension": ((x[0], y), {}, r"features must have shape \(N, F\)"),
    "no classes": ((x, y.float()), {}, "target must be class indices, got torch.float32"),
    "lengths": ((x, y[:-1]), {}, r"target must have shape \(40,\).*got \(39,\)"),
    "few": ((x[:4], y[:4]), {}, "needs 10 rows or more, got 4"),
    "one class": ((x, y * 0), {}, "one class only, 0"),
    "negative": ((x, y - 1), {}, r"target\[\d+\] = -1, which is none of the 2 classes"),
    "beyond": (
        (x, y, (torch.ones(2, 5), None)),
        {},
        r"target\[\d+\] = 2, which is none of the 2 classes",
    ),
    "head of another width": (
        (x, y, torch.nn.Linear(4, 3)),
        {},
        r"weight must have shape \(C, 5\).*got \(3, 4\)",
    ),
    "no head": ((x, y, "linear"), {}, r"a torch.nn.Linear or \(weight, bias\), got str"),
    "bias": ((x, y, (torch.ones(3, 5), torch.ones(2))), {}, r"shape \(3,\), got \(2,\)"),
    "infinite head": ((x, y, (torch.full((3, 5), math.inf), None)), {}, "not finite"),
    "infinite": ((x / 0, y), {}, "features must be finite; column 0"),
    "level": ((x, y), {"level": 1.0}, r"headroom\(level=1.0\)"),
    "rows": ((x, y), {"rows": 2}, r"headroom\(rows=2\)"),
    "test of one": ((x, y), {"test": x}, r"test must be \(features, target\), got Tensor"),
    "test of another width": ((x, y), {"test": (x[:, 1:], y)}, "test features have 4 columns"),
    "test classes": ((x, y), {"test": (x, y + 1)}, r"test target\[\d+\] = 3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_said(name):
    given, more, said = WRONG[name]
    with pytest.raises(ValueError, match=said):
        hitrate.headroom(*given, **more)
