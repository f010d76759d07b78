"""Estimators trained for balanced accuracy, cost and macro F1: objectives, judges, decisions."""

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.metrics import balanced_accuracy_score, f1_score

import hitrate
from hitrate.sklearn import AccuracyClassifier, AccuracyMLPClassifier
from hitrate.sklearn.goals import Goal
from hitrate.sklearn.solvers.objective import Objective
from hitrate.sklearn.solvers.row_losses import ExactError
from hitrate.sklearn.solvers.standardized import Standardized

COST = np.array([[0.0, 1, 5, 2], [1, 0, 1, 1], [9, 3, 0, 4], [2, 2, 2, 0]])
GOALS = {"cost": Goal(4, COST), "f1_macro": Goal(4)}
QUICK = {"l2": 0.01, "sigma": 0.5, "margin": None, "polish": False, "random_state": 0}
EVERY = [("balanced_accuracy", None), ("cost", COST), ("f1_macro", None)]


def macro_f1(y, said, weight=None):
    return f1_score(y, said, average="macro", sample_weight=weight, zero_division=0.0)


def cost_of(y, said):
    return COST[y, said].mean()


@pytest.fixture(scope="module")
def imbalanced():
    shares = [0.7, 0.2, 0.07, 0.03]
    x, y = make_classification(
        1200, 8, n_informative=5, n_classes=4, weights=shares, class_sep=0.8, random_state=1
    )
    return x, y


def problem(classes=4, rows=80):
    """A table with uneven weights, and some theta."""
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, 3))
    target = np.arange(rows) % classes
    table = Standardized(x, target, random.uniform(0.5, 2, rows), classes)
    return table, random.standard_normal((4, classes - 1))


@pytest.mark.parametrize("goal", GOALS.values(), ids=GOALS)
def test_the_slopes_of_an_objective_are_those_of_differences(goal):
    table, theta = problem()
    objective, rule = Objective(table), goal.rule(0.6)
    _, slopes = objective.loss(rule, theta)

    def value(flat):
        return objective.loss(rule, flat.reshape(theta.shape))[0]

    numbers = approx_fprime(theta.ravel(), value, 1e-6)
    np.testing.assert_allclose(slopes.ravel(), numbers, atol=1e-6)


def test_at_a_small_sigma_the_objectives_are_scikit_learn_s_scores():
    table, theta = problem()
    said = np.pad(table.scores(theta), ((0, 0), (1, 0))).argmax(1)
    objective, y, weight = Objective(table), table.target, table.weight
    f1, _ = objective.loss(GOALS["f1_macro"].rule(1e-6), theta)
    assert 1 - f1 == pytest.approx(macro_f1(y, said, weight), abs=1e-9)
    cost, _ = objective.loss(GOALS["cost"].rule(1e-6), theta)
    assert cost == pytest.approx(weight @ COST[y, said], abs=1e-9)
    total = np.bincount(y, weight)
    balanced = Standardized(table.x, y, weight / total[y], 4)
    moved = balanced.inwards(theta[:-1].T, theta[-1])
    error, _ = Objective(balanced).loss(ExactError(1e-6), moved)
    assert 1 - error == pytest.approx(balanced_accuracy_score(y, said, sample_weight=weight))


def test_the_objective_of_macro_f1_is_the_loss_of_the_library():
    table, theta = problem()
    ours, _ = Objective(table).loss(GOALS["f1_macro"].rule(0.6), theta)
    logits = torch.from_numpy(np.pad(table.scores(theta), ((0, 0), (1, 0))))
    mass = torch.zeros(80, 4, dtype=torch.float64)
    mass[torch.arange(80), torch.from_numpy(table.target)] = torch.from_numpy(table.weight)
    theirs = hitrate.expected_f_beta_loss(logits, mass, sigma=0.6, noise="gumbel")
    assert ours == pytest.approx(float(theirs), abs=1e-9)


@pytest.mark.parametrize("goal", GOALS.values(), ids=GOALS)
def test_a_row_s_part_in_the_score_is_its_derivative_by_the_weight(goal):
    random = np.random.default_rng(1)
    y, said, weight = (*random.integers(4, size=(2, 60)), random.uniform(0.5, 2, 60))
    weight /= weight.sum()
    score, rows = goal.counted(y, said, weight)
    for n in range(5):
        more = weight.copy()
        more[n] += 1e-6
        if goal.cost is None:
            assert (goal.counted(y, said, more)[0] - score) / 1e-6 == pytest.approx(
                rows[n], abs=1e-4
            )
        else:
            assert rows[n] == -COST[y[n], said[n]]


@pytest.mark.parametrize(
    "goal", [Goal(2), Goal(2, np.array([[0.0, 1], [5, 0]]))], ids=["f1", "cost"]
)
def test_the_threshold_of_two_classes_is_the_best_of_all(goal):
    random = np.random.default_rng(2)
    y = (random.random(90) < 0.2).astype(int)
    scores = (random.standard_normal(90) + y)[:, None]
    weight = random.uniform(0.5, 2, 90)
    judged = goal.judged(scores, y, weight)
    share = weight / weight.sum()
    cuts = [-9.0, *np.sort(scores[:, 0])]
    best = max(goal.counted(y, (scores[:, 0] > cut).astype(int), share)[0] for cut in cuts)
    assert judged.score == pytest.approx(best, abs=1e-12)
    said = (scores[:, 0] + judged.offsets[0] > 0).astype(int)
    assert goal.counted(y, said, share)[0] == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("goal", GOALS.values(), ids=GOALS)
def test_offsets_are_never_worse_than_none_and_say_what_they_are_worth(goal):
    random = np.random.default_rng(3)
    y = random.choice(4, 200, p=[0.6, 0.25, 0.1, 0.05])
    scores = random.standard_normal((200, 3)) + 1.5 * np.eye(4)[y][:, 1:]
    weight = np.ones(200)
    plain, moved = (goal.judged(scores, y, weight, free=free) for free in (False, True))
    assert moved.score > plain.score and (plain.offsets == 0).all()
    said = np.pad(scores + moved.offsets, ((0, 0), (1, 0))).argmax(1)
    truth = macro_f1(y, said) if goal.cost is None else -cost_of(y, said)
    assert moved.score == pytest.approx(truth, abs=1e-12)


def decisions(x, y, make):
    """Decisions for the second half by fits to the first half, by objective."""
    half = len(x) // 2
    return {
        name: make(objective=name, cost=cost, random_state=0)
        .fit(x[:half], y[:half])
        .predict(x[half:])
        for name, cost in [("accuracy", None), *EVERY]
    }, y[half:]


@pytest.mark.slow
@pytest.mark.parametrize("make", [AccuracyClassifier, AccuracyMLPClassifier])
def test_each_objective_is_served_best_by_the_training_for_it(make, imbalanced):
    said, y = decisions(*imbalanced, make)
    scorers = {
        "balanced_accuracy": balanced_accuracy_score,
        "cost": lambda y, said: -cost_of(y, said),
        "f1_macro": macro_f1,
    }
    for name, score in scorers.items():
        assert score(y, said[name]) > score(y, said["accuracy"]), name


def test_costs_of_the_right_class_alone_are_weights_of_rows(imbalanced):
    x, y = imbalanced
    factors = [1.0, 2.0, 4.0, 8.0]
    cost = np.array(factors)[:, None] * (1 - np.eye(4)) + 0.5  # what cannot be changed
    ours = AccuracyClassifier(objective="cost", cost=cost, **QUICK)
    weights = AccuracyClassifier(class_weight=dict(enumerate(factors)), **QUICK)
    np.testing.assert_array_equal(ours.fit(x, y).coef_, weights.fit(x, y).coef_)
    balanced = AccuracyClassifier(objective="balanced_accuracy", **QUICK).fit(x, y)
    weighted = AccuracyClassifier(class_weight="balanced", **QUICK).fit(x, y)
    np.testing.assert_allclose(balanced.coef_, weighted.coef_, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "cost"), EVERY)
def test_a_weight_of_two_is_a_row_twice_and_names_of_classes_do_not_matter(
    objective, cost, imbalanced
):
    x, y = imbalanced
    x, y = x[:300], y[:300]
    exactly = {**QUICK, "sigma": 1.0, "tol": 1e-12, "max_iter": 5000}
    model = AccuracyClassifier(objective=objective, cost=cost, **exactly)
    weight = 1.0 + (np.arange(300) % 2)
    # Held-out rows differ, and with them thresholds, but not the weights of the features.
    first = clone(model).fit(x, y, sample_weight=weight)
    second = clone(model).fit(np.repeat(x, weight.astype(int), 0), np.repeat(y, weight.astype(int)))
    np.testing.assert_allclose(first.coef_, second.coef_, rtol=1e-3, atol=1e-4)
    names = np.array(["a", "b", "c", "d"])
    other = clone(model).fit(x, names[y], sample_weight=weight)
    assert (other.predict(x) == names[first.predict(x)]).all()
    assert (names[first.predict_proba(x).argmax(1)] == other.predict(x)).mean() > 0.99


@pytest.mark.parametrize("make", [AccuracyClassifier, AccuracyMLPClassifier])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"objective": "auc"}, "objective='auc' is not one of 'accuracy', 'balanced_accuracy'"),
        ({"objective": "cost"}, "objective='cost' and cost=None do not go together"),
        ({"cost": COST}, "objective='accuracy' and cost=.* do not go together"),
        ({"objective": "cost", "cost": COST[:3, :3]}, r"cost \(3, 3\) does not fit the 4 classes"),
        ({"objective": "cost", "cost": COST[:3]}, r"cost must have shape \(C, C\)"),
        ({"objective": "cost", "cost": -COST}, r"every cost must be a finite number >= 0"),
        (
            {"objective": "cost", "cost": COST + 5 * np.eye(4)},
            "must not cost more than a wrong one",
        ),
        ({"objective": "f1_macro", "loss": "hinge"}, "without loss='hinge'"),
    ],
    ids=str,
)
def test_bad_objectives_are_one_value_error(make, arguments, message, imbalanced):
    x, y = imbalanced
    with pytest.raises(ValueError, match=rf"(?s){make.__name__}.*{message}"):
        make(**arguments).fit(x, y)


@pytest.mark.parametrize(
    "arguments", [{"solver": "sgd"}, {"margin": 1.0}, {"polish": True}], ids=str
)
def test_what_an_objective_of_its_own_leaves_no_room_for_is_a_value_error(arguments, imbalanced):
    with pytest.raises(
        ValueError, match="objective='f1_macro' is trained by an objective of its own"
    ):
        AccuracyClassifier(objective="f1_macro", **arguments).fit(*imbalanced)


def test_the_path_of_a_goal_is_told_in_its_own_score(imbalanced):
    x, y = imbalanced
    model = AccuracyClassifier(objective="f1_macro", **QUICK).fit(x, y)
    assert all(0 < stage["expected"] < 1 and 0 < stage["actual"] < 1 for stage in model.path_)
    assert model.path_[-1]["expected"] > model.path_[0]["expected"]
