"""What a loss cannot do it says in one line, with the value."""

import pytest
import torch
from loss_cases import NAMED

import hitrate

LOGITS, TARGET = torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])

BAD = {
    "logits that are no tensor": (([1.0, 2.0], TARGET), {}, "got list"),
    "integer logits": ((LOGITS.long(), TARGET), {}, "got torch.int64"),
    "a number for logits": ((torch.tensor(1.0), TARGET), {}, r"got \(\)"),
    "one class": ((LOGITS[:, :1], TARGET), {}, "at least two classes"),
    "a target above the range": ((LOGITS, TARGET + 1), {}, "target 3 is out of range for 3"),
    "a target below the range": ((LOGITS, TARGET - 1), {}, "target -1 is out of range for 3"),
    "a target that is no tensor": ((LOGITS, [0, 1, 2, 0]), {}, "got list"),
    "too few targets": ((LOGITS, TARGET[:2]), {}, r"of shape \(4,\)"),
    "float targets of the wrong shape": ((LOGITS, TARGET.float()), {}, "torch.float32"),
    "integer targets of the logits' shape": ((LOGITS, LOGITS.long()), {}, "torch.int64"),
    "weights for other classes": ((LOGITS, TARGET), {"weight": torch.ones(2)}, r"got shape \(2,\)"),
    "an unknown reduction": ((LOGITS, TARGET), {"reduction": "max"}, "'max' is not one of"),
    "too much smoothing": ((LOGITS, TARGET), {"label_smoothing": 1.5}, "got 1.5"),
    "ignored probabilities": ((LOGITS, LOGITS), {"ignore_index": 1}, "has no meaning"),
}


@pytest.mark.parametrize("case", NAMED, ids=lambda case: case.name)
@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_a_value_error(case, what):
    arguments, options, complaint = BAD[what]
    with pytest.raises(ValueError, match=complaint):
        case(*arguments, **options)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"sigma": 0.0}, "sigma must be a positive number, got 0.0"),
        ({"sigma": torch.ones(3)}, r"sigma must be a number or have shape \(4,\)"),
        ({"noise": "cauchy"}, "'cauchy' is not one of"),
        ({"link": "hinge"}, "neither a Link nor one of 'error'"),
        ({"margin": -1.0}, "margin must be None or a number >= 0"),
        ({"link": "batch_log", "reduction": "none"}, "can only be 'mean'"),
        ({"method": "simpson"}, "method is not one of"),
        ({"label_smoothing": 0.1, "backend": "cuda"}, "backend is not one of"),
        ({"label_smoothing": 0.1, "nodes": -3}, "nodes must be a whole number"),
    ],
)
def test_what_exact_cannot_do_is_a_value_error(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        hitrate.exact_loss(LOGITS, TARGET, **arguments)


def test_an_empty_batch_is_checked_too():
    empty, nobody = LOGITS[:0], TARGET[:0]
    for arguments in ({"noise": "cauchy"}, {"sigma": -1.0}, {"backend": "cuda"}):
        with pytest.raises(ValueError):
            hitrate.exact_loss(empty, nobody, **arguments)


@pytest.mark.parametrize("case", NAMED, ids=lambda case: case.name)
def test_class_weights_in_the_first_place_are_told_where_they_belong(case):
    # nn.CrossEntropyLoss takes them there.
    try:
        loss = case.module(torch.ones(4))
    except TypeError:
        return  # no first place to be mistaken for
    except ValueError as complaint:
        assert "weight=" in str(complaint)
        return
    with pytest.raises(ValueError, match="weight="):
        loss(torch.zeros(4, 4), TARGET)


def test_a_complaint_shows_the_call_that_was_made():
    with pytest.raises(ValueError, match=r"^focal_loss\(gamma=2.0\): target must be"):
        hitrate.FocalLoss()(LOGITS, TARGET.float())


def test_hinge_names_its_choices():
    with pytest.raises(ValueError, match="'max', 'sum', 'mean'"):
        hitrate.hinge_loss(LOGITS, TARGET, rivals="min")
    with pytest.raises(ValueError, match="margin must be a number >= 0"):
        hitrate.hinge_loss(LOGITS, TARGET, -1.0)
