"""A second head predicts sigma: the network says how sure it is of each row.

Half of the rows carry pure noise. Their sigma grows and their gradient fades, while sure rows get
a small one. The scale of the logits is fixed by `normalize`, or sigma would have no meaning.
"""

import torch
from torch import nn

import hitrate

generator = torch.Generator().manual_seed(0)
x = torch.randn(4000, 6, generator=generator)
target = x[:, :3].argmax(1)
noisy = x[:, 5] > 0  # the network can see which rows are hopeless
target[noisy] = torch.randint(3, (int(noisy.sum()),), generator=generator)


class WithSigma(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 64), nn.ReLU())
        self.logits = nn.Linear(64, 3)
        self.log_sigma = nn.Linear(64, 1)

    def forward(self, x):
        features = self.body(x)
        return self.logits(features), self.log_sigma(features).squeeze(1).clamp(-3, 3).exp()


torch.manual_seed(0)
model = WithSigma()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
# The log link: with the error link, hopeless rows would gain nothing from a large sigma.
loss = hitrate.ExactLoss(link="log", normalize=True)
for _ in range(300):
    optimizer.zero_grad()
    logits, sigma = model(x)
    loss(logits, target, sigma).backward()
    optimizer.step()

with torch.no_grad():
    logits, sigma = model(x)
right = logits.argmax(1) == target
for name, rows in (("clear", ~noisy), ("noise", noisy)):
    print(f"{name} rows: sigma {sigma[rows].mean():.2f}, accuracy {right[rows].float().mean():.1%}")
assert sigma[noisy].mean() > 2 * sigma[~noisy].mean()
