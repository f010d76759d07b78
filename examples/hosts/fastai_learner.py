"""fastai: a Learner with a recipe, and its predictions as probabilities."""

import torch
from fastai.callback.progress import ProgressCallback  # noqa: F401, for no_bar
from fastai.callback.schedule import fit_one_cycle  # noqa: F401, for the Learner
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.metrics import accuracy
from sklearn.datasets import load_digits

from hitrate.integrations.fastai import AccuracyCallback

x, y = (torch.tensor(a) for a in load_digits(return_X_y=True))
x = x.float() / 16
train, test = (
    torch.utils.data.TensorDataset(x[rows], y[rows]) for rows in (slice(0, 1200), slice(1200, None))
)

for recipe in ("cross_entropy", "annealed"):
    torch.manual_seed(0)
    loaders = DataLoaders(DataLoader(train, bs=60, shuffle=True), DataLoader(test, bs=60))
    callback = AccuracyCallback(recipe)
    model = torch.nn.Linear(64, 10)
    learn = Learner(loaders, model, callback.loss_func, metrics=accuracy, cbs=callback)
    with learn.no_bar(), learn.no_logging():
        learn.fit_one_cycle(10, 0.1)
        p, target = learn.get_preds()
    hits = (p.argmax(1) == target).float().mean().item()
    print(f"{recipe:14} accuracy {hits:.3f}, mean probability of its choice {p.amax(1).mean():.3f}")
