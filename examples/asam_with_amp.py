"""ASAM around SGD, in mixed precision with a GradScaler, accumulating over two micro-batches.

Runs on a GPU where there is one, else on the CPU.
"""

import functools

import torch
from torch import nn

import hitrate
from hitrate.optim import ASAM, GradientNormalizer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.float16 if DEVICE == "cuda" else torch.bfloat16
STEPS = 60

generator = torch.Generator().manual_seed(0)
images = torch.randn(512, 1, 8, 8, generator=generator)
target = torch.arange(512) % 3
for label, place in enumerate((0, 3, 5)):
    images[target == label, :, place : place + 3, 2:6] += 1.0  # a bar at one of three heights
images, target = images.to(DEVICE), target.to(DEVICE)

torch.manual_seed(0)
layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3)]
model = nn.Sequential(*layers).to(DEVICE)
sgd = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9)
asam = ASAM(model.named_parameters(), sgd, rho=0.5, eta=0.01)
GradientNormalizer(asam)
scaler = torch.amp.GradScaler(DEVICE)
loss = hitrate.ExactLoss(normalize=True)
sigma = hitrate.Schedule(loss, "sigma", "sigma_10_to_1", total_steps=STEPS)


def backward(rows):
    """Gradients of two micro-batches, added up."""
    for part in rows.chunk(2):
        with torch.autocast(DEVICE, DTYPE):
            value = loss(model(images[part]), target[part]) / 2
        scaler.scale(value).backward()


for _ in range(STEPS):
    rows = torch.randint(384, (128,), device=DEVICE)
    backward(rows)
    with asam.perturbed(model):
        backward(rows)
    scaler.step(asam)
    scaler.update()
    asam.zero_grad()
    sigma.step()

model.eval()
loss.eval()  # or `normalize` would still act: model.eval() does not reach the loss
logits = model(images[384:])
error = loss(logits, target[384:]).item()
accuracy = (logits.argmax(1) == target[384:]).float().mean().item()
print(f"{DEVICE}, {DTYPE}: {accuracy:.1%} of 128 held-out images right, expected error {error:.1%}")
assert accuracy > 0.8
