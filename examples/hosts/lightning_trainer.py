"""Lightning: a recipe in the place of a module's loss, with both accuracies logged."""

import torch
from lightning import LightningModule, Trainer, seed_everything
from sklearn.datasets import load_digits
from torch import nn

from hitrate.integrations.lightning import AccuracyCallback
from hitrate.metrics import ExpectedAccuracy

x, y = (torch.tensor(a) for a in load_digits(return_X_y=True))
x = x.float() / 16


def loader(rows, shuffle):
    data = torch.utils.data.TensorDataset(x[rows], y[rows])
    return torch.utils.data.DataLoader(data, batch_size=60, shuffle=shuffle)


class Classifier(LightningModule):
    """Its loss is cross entropy, unless somebody puts another into its place."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.loss = nn.CrossEntropyLoss()
        self.metric = ExpectedAccuracy(sigma=1.0)

    def training_step(self, batch, _):
        return self.loss(self.layer(batch[0]), batch[1])

    def on_validation_epoch_start(self):
        self.metric.reset()

    def validation_step(self, batch, _):
        self.metric.update(self.layer(batch[0]), batch[1])

    def on_validation_epoch_end(self):
        self.log_dict(self.metric.compute())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.9)


for recipe in ("cross_entropy", "annealed", "exact_networks"):
    seed_everything(0, verbose=False)
    trainer = Trainer(
        max_epochs=10,
        accelerator="cpu",
        callbacks=[AccuracyCallback(recipe)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), loader(slice(0, 1200), True), loader(slice(1200, None), False))
    found = {name: round(float(value), 3) for name, value in trainer.callback_metrics.items()}
    print(f"{recipe:15}", found)
