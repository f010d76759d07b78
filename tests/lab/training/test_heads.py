"""Heads trained together are those trained alone, by torch and the loss itself."""

import pytest
import torch
from torch import nn

from hitrate import class_margin, class_prior
from hitrate.recipes import recipe
from hitrate_lab.training.heads import Heads, Method, Training

PRIOR = class_prior(torch.tensor([0, 0, 0, 1, 2]))
METHODS = [
    Method("CE", "cross_entropy"),
    Method("annealed", "annealed"),
    Method("mixed", "mixed_gradual"),
    Method("EXACT", "exact_networks"),
    Method("warm", "exact", {}, warm=2),
    Method("batch", "exact", {"link": "batch_log"}),
    Method("GCE", "generalized_cross_entropy"),
    Method("balanced", "cross_entropy", {"class_prior": PRIOR, "logit_adjustment": 1.0}),
    Method("LDAM", "cross_entropy", {"class_margin": class_margin(PRIOR)}),
]
RATES, DECAYS = [0.02, 0.05], [0.0, 0.5]
EPOCHS, SIZE, SEEDS = 4, 16, [3, 8]


@pytest.fixture(scope="module")
def rows():
    random = torch.Generator().manual_seed(0)
    x = torch.randn(50, 6, generator=random)
    return x, (x[:, :3] + 0.5 * torch.randn(50, 3, generator=random)).argmax(1)


@pytest.fixture(scope="module", params=[0, 5])
def heads(request, rows):
    size = len(METHODS), 1
    made = Heads(
        METHODS,
        Training(EPOCHS, SIZE, request.param),
        6,
        3,
        torch.tensor([RATES]).repeat(size),
        torch.tensor([DECAYS]).repeat(size),
        SEEDS,
    )
    start = [w.detach().clone() for w in made.weights]
    made.fit(*rows)
    return made, start


@pytest.mark.parametrize("place", range(len(METHODS)), ids=[each.name for each in METHODS])
@pytest.mark.parametrize("seed, candidate", [(0, 1), (1, 0)])
def test_a_copy_is_what_torch_trains_alone(heads, rows, place, seed, candidate):
    made, start = heads
    layers = [w[seed, place, candidate] for w in start]
    model = network(layers)
    method = METHODS[place]
    optimizer = torch.optim.AdamW(
        model.parameters(), RATES[candidate], weight_decay=DECAYS[candidate]
    )
    plan = recipe(method.recipe, total_steps=EPOCHS, optimizer=optimizer, **method.changes)
    x, y = rows
    total, step = EPOCHS * -(-len(y) // SIZE), 0
    random = torch.Generator().manual_seed((1 << 32) + SEEDS[seed])
    for epoch in range(EPOCHS):
        loss = nn.CrossEntropyLoss() if epoch < method.warm else plan.loss
        for some in torch.randperm(len(y), generator=random).split(SIZE):
            optimizer.param_groups[0]["lr"] = RATES[candidate] * (1 - step / total)
            optimizer.zero_grad()
            loss(model(x[some]), y[some]).backward()
            optimizer.step()
            step += 1
        plan.step()
    alone = model(x).detach()
    together = made.predict(x)[seed, :, place, candidate]
    torch.testing.assert_close(together, alone, rtol=2e-3, atol=2e-3)


def network(layers):
    parts = []
    for weights in layers:
        layer = nn.Linear(weights.shape[1] - 1, len(weights))
        with torch.no_grad():
            layer.weight.copy_(weights[:, :-1])
            layer.bias.copy_(weights[:, -1])
        parts += [nn.ReLU(), layer] if parts else [layer]
    return nn.Sequential(*parts)
