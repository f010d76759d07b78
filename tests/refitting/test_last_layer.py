"""Penultimate features of any network, which is left as it was."""

import pytest
import torch
from torch import nn

import hitrate

ROWS, TARGET = torch.randn(30, 6), torch.arange(30) % 3
BATCHES = [(ROWS[:20], TARGET[:20]), (ROWS[20:], TARGET[20:])]


class Named(nn.Module):
    """A network of named inputs, whose last layer was not made last."""

    def __init__(self):
        super().__init__()
        self.classifier = nn.Linear(8, 3)
        self.body = nn.Linear(6, 8)
        self.unused = nn.Linear(9, 9)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, scale=1.0):
        return self.classifier(self.drop(self.body(x).relu()) * scale)


def test_features_are_what_the_last_layer_gets():
    model = Named()
    model.drop.eval()
    found = hitrate.last_layer(model, BATCHES)
    assert found.head is model.classifier
    torch.testing.assert_close(found.features, model.body(ROWS).relu().detach())
    torch.testing.assert_close(found.target, TARGET)
    assert model.training and not model.drop.training
    assert not model.classifier._forward_pre_hooks and not model.unused._forward_pre_hooks
    assert hitrate.headroom(*found).rows == 30


@pytest.mark.parametrize("label", ["labels", "label", "target"])
def test_batches_may_have_names(label):
    model = Named()
    batches = [{"x": rows, "scale": 2.0, label: target} for rows, target in BATCHES]
    found = hitrate.last_layer(model, batches)
    torch.testing.assert_close(found.features, 2 * model.body(ROWS).relu().detach())


def test_a_layer_may_be_asked_for():
    model = Named()
    for layer in ("body", model.body):
        found = hitrate.last_layer(model, BATCHES, layer=layer)
        assert found.head is model.body
        torch.testing.assert_close(found.features, ROWS)


@pytest.mark.parametrize(
    ("batches", "layer", "said"),
    [
        (BATCHES, "head", r"layer='head'.*'classifier', 'body', 'unused'"),
        (BATCHES, nn.Linear(1, 1), "is no torch.nn.Linear of the network"),
        (BATCHES, "unused", "does not call its layer 'unused'"),
        ([], None, "there are no batches"),
        ([ROWS], None, "got Tensor"),
        ([{"x": ROWS}], None, "has none of 'labels', 'label', 'target'"),
        ([(ROWS, TARGET[:4])], None, r"got \(30, 8\) and \(4,\)"),
        ([(ROWS[None], TARGET[:1])], None, r"got \(1, 30, 8\) and \(1,\)"),
    ],
)
def test_what_does_not_fit_is_said(batches, layer, said):
    model = Named()
    with pytest.raises(ValueError, match=said):
        hitrate.last_layer(model, batches, layer=layer)
    assert model.training and not model.classifier._forward_pre_hooks
