"""A small problem for the trainer, and a program that trains it: resumed, killed, or by torchrun.

    python networks_to_train.py CASE FOLDER [DIE_AT]

Every step is told on a line of its own. With DIE_AT the last process kills itself behind that step,
once. At the end the first process writes the weights to FOLDER/weights.pt.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

from hitrate import schedules
from hitrate_lab.training import Options, Rows, Trainer, processes

CASES = {
    "annealed": Options("annealed", epochs=3, batch_size=32, learning_rate=0.05),
    "every_option": Options(
        "mixed_gradual",
        {"label_smoothing": 0.1},
        epochs=3,
        batch_size=32,
        accumulate=2,
        learning_rate=0.05,
        rate="triangle",
        warmup=0.1,
        nesterov=True,
        weight_decay=1e-3,
        decay_vectors=False,
        clip=1.0,
        augment={"crop": 1, "flip": 0.5, "alternate": 1, "rotate": 10, "shift": 0.1, "cutout": 3},
        bias_rate=4.0,
        mixup=0.2,
        cutmix=1.0,
        average=0.9,
        save_every=2,
    ),
    # A rate that is a function: what it says of itself is the same in every process.
    "asam": Options(
        "exact_networks",
        epochs=2,
        batch_size=32,
        optimizer="asam",
        rate=schedules.geometric(1.0, 0.01),
        save_every=1,
    ),
    "half": Options(
        "annealed_softmax", epochs=2, batch_size=32, precision="bfloat16", channels_last=True
    ),
    "adamw": Options(epochs=2, batch_size=32, optimizer="adamw", learning_rate=1e-3, rate="steps"),
}


def rows(count=200):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 1, 6, 6, generator=generator)
    return Rows(x, x[:, 0, 0, :4].argmax(1))


def network(*, is_plain=False):
    torch.manual_seed(1)
    convolution = nn.Conv2d(1, 4, 3, padding=1)
    middle = [] if is_plain else [nn.BatchNorm2d(4), nn.Dropout(0.1)]
    return nn.Sequential(convolution, *middle, nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))


def weights(trainer):
    return torch.cat([value.double().flatten() for value in trainer.model.state_dict().values()])


def trained(case, folder=None, **changes):
    trainer = Trainer(
        network(), rows()[:160], CASES[case], held_out=rows()[160:], folder=folder, **changes
    )
    trainer.fit()
    return trainer


def main() -> None:
    case, folder = sys.argv[1], Path(sys.argv[2])
    die_at = int(sys.argv[3]) if len(sys.argv) > 3 else None
    torch.set_num_threads(1)
    with processes.group("cpu") as place:

        def on_step(done: int, total: int) -> None:
            if place.is_first:
                print(done, flush=True)
            if done == die_at and place.rank == place.size - 1 and not (folder / "died").exists():
                (folder / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)

        model = network(is_plain=place.size > 1 or die_at is not None)
        trainer = Trainer(
            model, rows()[:160], CASES[case], held_out=rows()[160:], folder=folder, place=place
        )
        trainer.fit(on_step=on_step)
        if place.is_first:
            torch.save([weights(trainer), trainer.epochs[-1].accuracy], folder / "weights.pt")


if __name__ == "__main__":
    main()
