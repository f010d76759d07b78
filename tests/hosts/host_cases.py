"""What every host is tried with: a small problem, and processes of its own."""

import torch

try:
    import torchvision  # noqa: F401
except ImportError:
    pass
except RuntimeError:
    # Its compiled part is of another torch, and says so by what it has not registered. Hosts import
    # it for images alone.
    LIBRARY = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

ROWS, FEATURES, CLASSES = 64, 6, 4


def problem(rows=ROWS, seed=0):
    """Features, and the class of the largest of some noisy sums of them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, FEATURES, generator=generator)
    scores = x[:, :CLASSES] + 0.5 * torch.randn(rows, CLASSES, generator=generator)
    return x, scores.argmax(1)


def model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Linear(FEATURES, CLASSES)


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])
