"""Expected accuracy of three-class logits, as the noise on them shrinks.

With much noise every class wins about equally often; with little, the highest logit wins, and
expected accuracy is plain accuracy.
"""

import torch

import hitrate

generator = torch.Generator().manual_seed(0)
target = torch.randint(3, (1000,), generator=generator)
# A classifier that is right more often than not: the target's logit is raised by one.
logits = torch.randn(1000, 3, generator=generator)
logits[torch.arange(1000), target] += 1.0

accuracy = (logits.argmax(dim=1) == target).double().mean().item()

print("sigma   expected accuracy")
for sigma in (10.0, 1.0, 0.1):
    expected = hitrate.expected_accuracy(logits, target, sigma).mean().item()
    print(f"{sigma:5.1f}   {expected:.4f}")
print(f"plain   {accuracy:.4f}")

assert abs(expected - accuracy) < 0.01, "small noise should leave accuracy as it is"
