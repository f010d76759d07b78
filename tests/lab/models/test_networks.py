"""Networks have the sizes that are known of them, and learn."""

import pytest
import torch

from hitrate_lab.models.networks import NETWORKS, Mirrored, Standardized, network
from hitrate_lab.models.networks.sentence_classifier import SentenceClassifier
from hitrate_lab.pages.of_studies.image_plan import operations

# Parameters for ten classes of 32 x 32 colour images, in units of the last digit, as the papers
# and well-known implementations have them: M3 without its head of 28 x 28 grey images aside.
SIZES = {
    "densenet_40_12": 1.06e6,
    "mobilenet_v2": 2236682,
    "preact_resnet_18": 11.17e6,
    "resnet_18": 11173962,
    "resnet_20": 0.27e6,
    "resnet_32": 0.464e6,
    "resnet_34": 21282122,
    "resnet_44": 0.659e6,
    "resnet_110": 1.73e6,
    "resnext_29": 4.78e6,
    "shufflenet_v2": 1263854,
    "vgg_16": 14.72e6,
    "wide_resnet_16_8": 10.96e6,
    "wide_resnet_28_10": 36.48e6,
    "linear": 30730,
}


def shape_of(name):
    return (1, 28) if name == "m3" else (3, 32)


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_that_are_known(name):
    count = sum(each.numel() for each in network(name, 10).parameters())
    assert count == pytest.approx(SIZES[name], rel=0 if SIZES[name] % 1000 else 5e-3)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if "110" in name or "28_10" in name else ())
        for name in NETWORKS
    ],
)
def test_every_parameter_that_learns_gets_a_gradient(name):
    channels, side = shape_of(name)
    torch.manual_seed(0)
    model = network(name, 7, channels=channels, side=side)
    x = torch.rand(2, channels, side, side)
    logits = model(x)
    assert logits.shape == (2, 7)
    logits.square().sum().backward()
    for label, parameter in model.named_parameters():
        has_gradient = parameter.grad is not None and bool(parameter.grad.isfinite().all())
        assert has_gradient == parameter.requires_grad, label


def test_a_name_that_there_is_not_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"network\('resnet_19'\): is not one of densenet_40_12"):
        network("resnet_19", 10)
    with pytest.raises(ValueError, match="20 pixels on a side are too small"):
        network("m3", 10, channels=1, side=20)


def test_whitened_patches_of_the_images_have_no_correlation():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(64, 3, 10, 10, generator=generator).cumsum(3).cumsum(2)
    x = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)
    model = network("fast", 10)
    model.fit(x)
    with torch.no_grad():
        found = model.whitening(x) - model.whitening.bias[:, None, None]
    found = found[:, :12].transpose(0, 1).flatten(1).double()
    second = found @ found.T / found.shape[1]
    assert float((second - torch.diag(second.diag())).abs().max()) < 1e-3
    # Directions with less variance than is added to all of them are not blown up to one.
    assert 0.9 < float(second.diag().max()) <= 1.001
    torch.testing.assert_close(model.whitening.weight[:12], -model.whitening.weight[12:])


def test_mirrored_logits_do_not_change_with_the_mirror_image():
    torch.manual_seed(0)
    inner = Standardized(network("linear", 4, channels=1, side=6), torch.ones(1), torch.ones(1))
    x = torch.rand(5, 1, 6, 6)
    model = Mirrored(inner).eval()
    torch.testing.assert_close(model(x), model(x.flip(3)))
    assert not torch.equal(model(x), inner(x))
    assert torch.equal(model.train()(x), inner(x))


def test_shifted_images_have_half_of_the_weight():
    # An image that does not change from left to right: only up and down matter.
    torch.manual_seed(0)
    inner = Standardized(network("linear", 4, channels=1, side=4), torch.ones(1), torch.ones(1))
    x = torch.tensor([1.0, 2.0, 4.0, 8.0]).view(1, 1, 4, 1).expand(1, 1, 4, 4)
    up = torch.tensor([2.0, 1.0, 2.0, 4.0]).view(1, 1, 4, 1).expand(1, 1, 4, 4)
    down = torch.tensor([2.0, 4.0, 8.0, 4.0]).view(1, 1, 4, 1).expand(1, 1, 4, 4)
    expected = 0.5 * inner(x) + 0.25 * (inner(up) + inner(down))
    torch.testing.assert_close(Mirrored(inner, 1).eval()(x), expected)


@pytest.mark.parametrize("name", ["resnet_20", "fast", "linear", "wide_resnet_16_8", "vgg_16"])
def test_logits_are_in_full_precision_where_all_else_is_not(name):
    torch.manual_seed(0)
    x = torch.rand(2, 3, 32, 32)
    with torch.autocast("cpu", torch.bfloat16):
        assert network(name, 7)(x).dtype == torch.float32


def test_cosines_are_those_of_features_and_directions():
    torch.manual_seed(0)
    model = network("resnet_20", 7, cosine=True).eval()
    x = torch.rand(3, 3, 32, 32)
    with torch.no_grad():
        features, directions = model[:-1](x), model[-1].weight
        expected = torch.cosine_similarity(features[:, None], directions[None], dim=2)
        torch.testing.assert_close(model(x), expected)
    # No length of the features or directions matters.
    torch.testing.assert_close(model[-1](5 * features), expected)
    assert directions.norm(dim=1).allclose(torch.ones(7))


@pytest.mark.parametrize("cosine", [False, True], ids=["linear", "cosines"])
def test_a_last_layer_has_a_shape_on_a_device_without_autocast(cosine):
    with torch.device("meta"):
        assert network("resnet_20", 7, cosine=cosine)(torch.zeros(2, 3, 32, 32)).shape == (2, 7)


def test_operations_of_a_network_are_those_that_its_paper_counts():
    # 40.6 million products and sums of one image, in three passes.
    assert operations("cifar_10", "resnet_20") == pytest.approx(3 * 2 * 40.6e6, rel=0.02)


def test_what_is_said_of_a_text_is_in_full_precision_too():
    torch.manual_seed(0)
    model = SentenceClassifier(torch.nn.Linear(4, 5), 5, 3).eval()
    assert [*model.state_dict()][2:] == ["last.weight", "last.bias"]
    with torch.autocast("cpu", torch.bfloat16):
        assert model.encoder(torch.rand(2, 4)).dtype == torch.bfloat16
        assert model(torch.rand(2, 4)).dtype == torch.float32
