"""A training that was saved at a third and resumed in another process ends as if it had not been.

Weights, sigma, focus and the normalizer's mean are equal bit for bit, in a plain loop, with a
GradScaler, with gradient accumulation, under DDP and under FSDP2.
"""

import functools

import pytest
import torch
from torch import nn
from two_processes import run_in_processes

import hitrate
from hitrate.optim import GradientNormalizer

STEPS, SAVED = 12, 4
ROWS, FEATURES, CLASSES = 16, 6, 4
# Sigma and focus move, logits and gradients are normalised.
RECIPE = functools.partial(hitrate.recipe, "exact_focused", total_steps=STEPS)


def batch_of(step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(ROWS, FEATURES, generator=generator)
    return x, torch.randint(CLASSES, (ROWS,), generator=generator)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, CLASSES))


class PlainLoop:
    """The loop of a tutorial; the others change parts of it."""

    parts = 1

    def __init__(self, rank):
        self.rank = rank
        self.model = self.wrapped(network())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.05)
        self.plan = RECIPE(optimizer=self.optimizer)
        self.scaler = None

    def wrapped(self, model):
        return model

    def rows(self, step):
        return batch_of(step)

    def train(self, first, last):
        for step in range(first, last):
            x, y = self.rows(step)
            for inputs, target in zip(x.chunk(self.parts), y.chunk(self.parts), strict=True):
                loss = self.plan.loss(self.model(inputs), target) / self.parts
                (loss if self.scaler is None else self.scaler.scale(loss)).backward()
            if self.scaler is None:
                self.optimizer.step()
            else:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            self.optimizer.zero_grad()
            self.plan.step()

    def save(self, path):
        torch.save({key: part.state_dict() for key, part in self.saved().items()}, path)

    def load(self, path):
        state = torch.load(path, weights_only=True)
        for key, part in self.saved().items():
            part.load_state_dict(state[key])

    def saved(self):
        return {"model": self.model, "optimizer": self.optimizer, "plan": self.plan}

    def result(self):
        weights = [getattr(p, "full_tensor", lambda p=p: p)() for p in self.model.parameters()]
        return {
            "weights": torch.cat([weight.detach().flatten() for weight in weights]),
            "sigma": self.plan.loss.sigma.clone(),
            "focus": self.plan.loss.focus.clone(),
            "mean": self.plan.normalizer.mean_norm,
        }


class PartsOnly(PlainLoop):
    """Saves what hosts save unasked: Modules, of which the loss is one, and the optimizer."""

    def saved(self):
        return {"model": self.model, "optimizer": self.optimizer, "loss": self.plan.loss}


class ScheduleMadeLater(PartsOnly):
    """Builds its schedules after the loss was restored, as a callback at the start of fit does."""

    def load(self, path):
        self.plan = RECIPE(optimizer=self.optimizer)
        fresh = hitrate.ExactLoss(link="focused", normalize=True)
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        fresh.load_state_dict(state["loss"])
        made = [hitrate.Schedule(fresh, each.name, each.fn, STEPS) for each in self.plan.schedules]
        self.plan.loss, self.plan.schedules = fresh, made


class Scaled(PlainLoop):
    def __init__(self, rank):
        super().__init__(rank)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=128.0, growth_interval=3)

    def saved(self):
        return super().saved() | {"scaler": self.scaler}


class Accumulated(PlainLoop):
    parts = 4


class TwoProcesses(PlainLoop):
    def rows(self, step):
        x, y = batch_of(step)
        return x.chunk(2)[self.rank], y.chunk(2)[self.rank]

    def wrapped(self, model):
        return nn.parallel.DistributedDataParallel(model)


class Sharded(TwoProcesses):
    def wrapped(self, model):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (2,))
        for layer in model:
            if any(True for _ in layer.parameters()):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model

    def state(self):
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "plan": self.plan}

    def save(self, path):
        from torch.distributed import checkpoint

        checkpoint.save(self.state(), checkpoint_id=path.with_suffix(".folder"))

    def load(self, path):
        from torch.distributed import checkpoint
        from torch.distributed.checkpoint.state_dict import set_state_dict

        state = self.state()
        checkpoint.load(state, checkpoint_id=path.with_suffix(".folder"))
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )


def whole(rank, kind):
    loop = kind(rank)
    loop.train(0, STEPS)
    return loop.result()


def first_third(rank, kind, folder):
    loop = kind(rank)
    loop.train(0, SAVED)
    loop.save(folder / f"{0 if kind is Sharded else rank}.pt")
    return loop.result()


def rest(rank, kind, folder):
    loop = kind(rank)
    loop.load(folder / f"{0 if kind is Sharded else rank}.pt")
    loop.train(SAVED, STEPS)
    return loop.result()


WAYS = {
    "plain": (PlainLoop, 1),
    "parts only": (PartsOnly, 1),
    "schedule made later": (ScheduleMadeLater, 1),
    "GradScaler": (Scaled, 1),
    "accumulation": (Accumulated, 1),
    "DDP": (TwoProcesses, 2),
    "FSDP2": (Sharded, 2),
}


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=[] if way == "plain" else [pytest.mark.slow]) for way in WAYS],
)
@pytest.mark.filterwarnings("ignore:.*TypedStorage is deprecated:UserWarning")
def test_a_resumed_training_ends_where_an_uninterrupted_one_does(way, tmp_path):
    kind, count = WAYS[way]
    (expected, *_) = run_in_processes(count, whole, kind)
    (before, *_) = run_in_processes(count, first_third, kind, tmp_path)
    (after, *_) = run_in_processes(count, rest, kind, tmp_path)
    assert not torch.equal(before["weights"], expected["weights"])
    for part, value in expected.items():
        assert torch.equal(after[part], value), part


def test_the_optimizer_s_own_state_has_the_mean():
    loop = PlainLoop(0)
    loop.train(0, 2)
    mean = loop.plan.normalizer.mean_norm
    other = PlainLoop(0)
    other.optimizer.load_state_dict(loop.optimizer.state_dict())
    assert other.plan.normalizer.mean_norm == mean > 0
    older = loop.optimizer.state_dict()
    older["param_groups"][0].pop("mean_gradient_norm")
    other.optimizer.load_state_dict(older)
    assert other.plan.normalizer.mean_norm == 0
    other.train(0, 1)
    assert other.plan.normalizer.mean_norm > 0


class Wrapper:
    """As accelerate's and fastai's are to us: something that has an optimizer."""

    def __init__(self, **inner):
        vars(self).update(inner)


def test_an_optimizer_inside_wrappers_is_found():
    optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
    for wrapped in (Wrapper(optimizer=optimizer), Wrapper(opt=Wrapper(optimizer=optimizer))):
        assert GradientNormalizer(wrapped).optimizer is optimizer
    with pytest.raises(TypeError, match=r"Wrapper is no torch\.optim\.Optimizer"):
        GradientNormalizer(Wrapper())
    with pytest.raises(TypeError, match=r"Wrapper with a str is no torch\.optim\.Optimizer"):
        GradientNormalizer(Wrapper(opt="sgd"))
