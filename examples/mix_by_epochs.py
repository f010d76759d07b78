"""Cross entropy plus expectation loss, the focus moved from hard samples to the boundary.

The focus F is changed once per epoch, in six equal phases: F = 0, 0.1, ..., 0.5.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hitrate

EPOCHS = 12

generator = torch.Generator().manual_seed(0)
x = torch.randn(4000, 10, generator=generator)
target = (x[:, :4] * torch.tensor([2.0, 1.5, 1.0, 1.0])).argmax(1)
# A tenth of the labels is wrong: these samples can only be memorised.
wrong = torch.rand(4000, generator=generator) < 0.1
target[wrong] = torch.randint(4, (int(wrong.sum()),), generator=generator)
train, test = TensorDataset(x[:3000], target[:3000]), (x[3000:], target[3000:])

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
loss = hitrate.MixedLoss()
focus = hitrate.Schedule(loss, "focus", "focus_0_to_0.5", total_steps=EPOCHS)

print("epoch  focus  accuracy")
for epoch in range(EPOCHS):
    for inputs, labels in DataLoader(train, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        loss(model(inputs), labels).backward()
        optimizer.step()
    accuracy = (model(test[0]).argmax(1) == test[1]).float().mean().item()
    print(f"{epoch:5d}  {loss.focus:5.1f}  {accuracy:8.1%}")
    focus.step()

assert accuracy > 0.8
