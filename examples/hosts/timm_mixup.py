"""timm: a small network under mixup, smoothing and a cosine, with a loss that moves along."""

import torch
from sklearn.datasets import load_digits
from timm.data import Mixup
from timm.models import create_model
from timm.scheduler import CosineLRScheduler
from timm.task import ClassificationTask

from hitrate.integrations.timm import AccuracyScheduler, create_loss

EPOCHS, BATCH = 4, 50
x, y = (torch.tensor(a) for a in load_digits(return_X_y=True))
images = torch.nn.functional.interpolate(x.float().reshape(-1, 1, 8, 8) / 16, 32).repeat(1, 3, 1, 1)
train = slice(0, 600)

for recipe in ("cross_entropy", "annealed"):
    torch.manual_seed(0)
    model = create_model("test_resnet", num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    mixup = Mixup(mixup_alpha=0.2, label_smoothing=0.1, num_classes=10)
    train_loss, validate_loss = create_loss(recipe, smoothing=0.1, mixup=True)
    task = ClassificationTask(model, train_loss, verbose=False)
    updates = 600 // BATCH
    cosine = CosineLRScheduler(optimizer, t_initial=EPOCHS)
    scheduler = AccuracyScheduler(cosine, train_loss, EPOCHS, updates)
    for epoch in range(EPOCHS):
        order = torch.randperm(600).split(BATCH)
        for update, rows in enumerate(order):
            batch, target = mixup(images[train][rows], y[train][rows])
            task(batch, target)["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step_update(epoch * updates + update + 1)
        scheduler.step(epoch + 1)
    model.eval()
    with torch.no_grad():
        logits = model(images[600:])
    hits = (logits.argmax(1) == y[600:]).float().mean()
    print(f"{recipe:14} accuracy {hits:.3f}, cross entropy {validate_loss(logits, y[600:]):.3f}")
