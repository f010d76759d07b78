"""Bad input gives a ValueError that shows the call and the value."""

import math

import pytest
import torch

import hitrate

LOGITS, TARGET = torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])

WRONG = {
    "sigma_zero": ({"sigma": 0.0}, "sigma must be a positive number, got 0.0"),
    "sigma_negative": ({"sigma": -2}, "got -2"),
    "sigma_nan": ({"sigma": math.nan}, "got nan"),
    "sigma_infinite": ({"sigma": math.inf}, "got inf"),
    "sigma_true": ({"sigma": True}, "got True"),
    "sigma_beyond_float32": ({"sigma": 1e300}, "torch.float32 cannot hold sigma, got 1e\\+300"),
    "sigma_below_float32": ({"sigma": 1e-300}, "torch.float32 cannot hold sigma, got 1e-300"),
    "sigma_tensor_infinite": ({"sigma": torch.tensor([1.0, 1, math.inf, 1])}, "finite, got inf"),
    "sigma_text": ({"sigma": "1"}, "got '1'"),
    "sigma_tensor_not_positive": ({"sigma": torch.tensor([1.0, 1, -3, 1])}, "got -3.0"),
    "sigma_shape": ({"sigma": torch.ones(5)}, r"got \(5,\)"),
    "one_class": ({"logits": torch.zeros(4, 1)}, "at least two classes, logits has 1"),
    "logits_dimensions": ({"logits": torch.zeros(3)}, r"shape \(N, C\), got \(3,\)"),
    "logits_integer": (
        {"logits": torch.zeros(4, 3).long()},
        "floating point tensor, got torch.int",
    ),
    "logits_list": ({"logits": [[0.0, 1.0]]}, "floating point tensor, got list"),
    "target_too_large": ({"target": torch.tensor([0, 1, 3, 0])}, "target 3 is out of range for 3"),
    "target_negative": ({"target": torch.tensor([0, 1, -100, 0])}, "target -100 is out of range"),
    "target_shape": ({"target": torch.tensor([0, 1])}, r"shape \(4,\) to match.*got \(2,\)"),
    "target_float": ({"target": torch.zeros(4)}, "class indices, got torch.float32"),
    "margin_negative": ({"margin": -1.0}, "margin must be None or a number >= 0, got -1.0"),
    "noise": ({"noise": "cauchy"}, "noise='cauchy' is not one of 'normal', 'logistic', 'gumbel'"),
    "method": ({"method": "magic"}, "method='magic'.*'auto', 'quadrature', 'gridded'"),
    "backend": ({"backend": "tpu"}, "backend='tpu'.*is not one of 'auto', 'torch', 'triton'"),
    "backend_cannot_run": (
        {"backend": "triton", "noise": "gumbel"},
        "backend='triton'.*cannot run: there is no kernel for gumbel noise",
    ),
    "k_zero": ({"k": 0}, "k must be a whole number >= 1, got 0"),
    "k_true": ({"k": True}, "got True"),
    "k_fraction": ({"k": 1.5}, "k must be a whole number >= 1, got 1.5"),
    "k_all_classes": ({"k": 3}, "k must be smaller than the number of classes.*k=3 for 3 classes"),
    "k_beyond": ({"k": 7}, "k must be smaller than the number of classes.*k=7 for 3 classes"),
    "k_gridded": ({"k": 2, "method": "gridded"}, "gridded is for k = 1, and k is 2"),
    "k_genz": ({"k": 2, "method": "genz"}, "genz is for k = 1, and k is 2"),
    "nodes": ({"nodes": 3}, "nodes must be a whole number >= 4, got 3"),
    "samples": ({"method": "genz", "samples": 0}, "samples must be a whole number >= 1, got 0"),
    "gridded_noise": ({"method": "gridded", "noise": "gumbel"}, "gridded is for normal noise"),
    "genz_noise": ({"method": "genz", "noise": "logistic"}, "genz is for normal noise"),
    "genz_per_class": ({"method": "genz", "sigma": torch.ones(1, 3)}, "one sigma per row"),
}


@pytest.mark.parametrize("function", [hitrate.log_expected_accuracy, hitrate.expected_accuracy])
@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_named_with_its_value(function, change, message):
    arguments = {"logits": LOGITS, "target": TARGET, **change}
    with pytest.raises(ValueError, match=message) as error:
        function(**arguments)
    assert "log_expected_accuracy(noise=" in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(4, 1),), "at least two classes"),
        ((LOGITS, -1.0), "sigma must be a positive number, got -1.0"),
        ((LOGITS, torch.ones(1, 3)), "one sigma per row"),
    ],
    ids=["one_class", "sigma", "per_class"],
)
def test_class_probabilities_names_the_wrong_argument_too(arguments, message):
    with pytest.raises(ValueError, match=message):
        hitrate.class_probabilities(*arguments)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 0.0])
def test_a_wrong_sigma_of_a_learned_head_is_refused(wrong):
    sigma = torch.tensor([1.0, wrong, 1.0, 1.0], requires_grad=True)
    with pytest.raises(ValueError, match="sigma must be positive and finite, got"):
        hitrate.log_expected_accuracy(LOGITS, TARGET, sigma)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 0.0, -1.0])
def test_where_looking_is_not_free_it_spoils_its_own_row_only(wrong):
    def of_row(logits, target, sigma):
        return hitrate.log_expected_accuracy(logits[None], target[None], sigma[None])[0]

    sigma = torch.tensor([1.0, wrong, 1.0, 1.0])
    found = torch.func.vmap(of_row)(LOGITS, TARGET, sigma)
    assert found.isnan().tolist() == [False, True, False, False]
