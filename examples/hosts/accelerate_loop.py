"""Accelerate: a loop with gradient accumulation, stopped half way and resumed from its state."""

import tempfile

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits

import hitrate
from hitrate.integrations.accelerate import prepare

EPOCHS, PARTS = 10, 2
x, y = (torch.tensor(a) for a in load_digits(return_X_y=True))
x = x.float() / 16
train, test = slice(0, 1200), slice(1200, None)


def run(folder, first, last):
    """Train some epochs, from the state in the folder unless they are the first."""
    torch.manual_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=PARTS)
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    data = torch.utils.data.TensorDataset(x[train], y[train])
    loader = torch.utils.data.DataLoader(data, batch_size=30)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = EPOCHS * len(loader) // PARTS
    plan = hitrate.recipe("annealed", total_steps=steps, optimizer=optimizer)
    plan = prepare(plan, accelerator)
    if first:
        accelerator.load_state(folder)
    for _ in range(first, last):
        for batch, target in loader:
            with accelerator.accumulate(model):
                accelerator.backward(plan.loss(model(batch), target))
                optimizer.step()
                optimizer.zero_grad()
                plan.step()
    accelerator.save_state(folder)
    with torch.no_grad():
        hits = model(x[test].to(accelerator.device)).argmax(1).cpu() == y[test]
    return f"accuracy {hits.float().mean():.3f}, q = {float(plan.loss.q):.2f}"


with tempfile.TemporaryDirectory() as folder:
    print("half way:     ", run(folder, 0, EPOCHS // 2))
    print("resumed:      ", run(folder, EPOCHS // 2, EPOCHS))
    print("in one piece: ", run(folder, 0, EPOCHS))
