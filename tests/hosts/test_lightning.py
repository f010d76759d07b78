"""Lightning: resuming, accumulation, processes, evaluation, and whose the loss is."""

import pytest
import torch
from host_cases import CLASSES, problem, weights
from host_cases import model as make_model
from two_processes import run_in_processes

import hitrate
from hitrate import schedules

pytest.importorskip("lightning")
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from hitrate.integrations.lightning import AccuracyCallback

RECIPES = ["annealed", "mixed_gradual", "exact_networks"]


class Classifier(LightningModule):
    def __init__(self, loss=None):
        super().__init__()
        self.layer = make_model()
        self.loss = torch.nn.CrossEntropyLoss() if loss is None else loss
        self.modes, self.kinds, self.checked = [], [], []

    def training_step(self, batch, _):
        x, target = batch
        self.kinds.append(type(self.loss).__name__)
        return self.loss(self.layer(x), target)

    def validation_step(self, batch, _):
        x, target = batch
        self.modes.append(self.loss.training)
        self.checked.append((self.layer(x), target, self.loss(self.layer(x), target)))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def loader(size=16):
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*problem()), batch_size=size)


def fit(callback, module=None, *, size=16, folder=None, resume=None, validate=False, **options):
    settings = {
        "max_epochs": 3,
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "enable_checkpointing": folder is not None,
        **options,
    }
    callbacks = [callback]
    if folder is not None:
        callbacks.append(ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1))
    module = module or Classifier()
    trainer = Trainer(callbacks=callbacks, **settings)
    trainer.fit(module, loader(size), loader() if validate else None, ckpt_path=resume)
    return module, trainer


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_resumed_training_ends_bit_equal(recipe, tmp_path):
    whole, _ = fit(AccuracyCallback(recipe), folder=tmp_path)
    callback = AccuracyCallback(recipe)
    resumed, trainer = fit(callback, folder=tmp_path / "b", resume=str(tmp_path / "epoch=0.ckpt"))
    assert trainer.global_step == 12
    assert torch.equal(weights(resumed), weights(whole))
    assert all(schedule.steps_done == 12 for schedule in callback.plan.schedules)


@pytest.mark.parametrize("recipe", RECIPES[:-1])
def test_parts_of_a_batch_equal_the_batch(recipe):
    whole, _ = fit(AccuracyCallback(recipe))
    callback = AccuracyCallback(recipe)
    parts, trainer = fit(callback, size=4, accumulate_grad_batches=4)
    assert trainer.global_step == 12
    torch.testing.assert_close(weights(parts), weights(whole), rtol=0, atol=1e-5)
    assert all(schedule.steps_done == 12 for schedule in callback.plan.schedules)


def of_one_process(rank, recipe):
    count = torch.distributed.get_world_size()
    strategy = {"strategy": "ddp", "devices": count}
    module, _ = fit(AccuracyCallback(recipe), size=16 // count, **strategy)
    return weights(module)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_two_processes_equal_one(recipe):
    (one,) = run_in_processes(1, of_one_process, recipe)
    for two in run_in_processes(2, of_one_process, recipe):
        torch.testing.assert_close(two, one, rtol=0, atol=1e-6)


def test_evaluation_is_an_expected_error_rate():
    callback = AccuracyCallback("exact_networks")
    module, _ = fit(callback, validate=True)
    assert set(module.modes) == {False}
    logits, target, value = module.checked[-1]
    sigma = float(callback.plan.loss.sigma)
    torch.testing.assert_close(value, hitrate.exact_loss(logits, target, sigma))


def test_the_loss_is_lent_and_checkpoints_keep_their_keys(tmp_path):
    module, _ = fit(AccuracyCallback("annealed"), folder=tmp_path)
    assert set(module.kinds) == {"ExactLoss"}
    assert type(module.loss) is torch.nn.CrossEntropyLoss
    state = torch.load(tmp_path / "epoch=2.ckpt", weights_only=False)["state_dict"]
    assert set(state) == {"layer.weight", "layer.bias"}
    assert torch.equal(
        weights(Classifier.load_from_checkpoint(tmp_path / "epoch=2.ckpt")), weights(module)
    )


def test_curves_move_a_loss_of_the_module_s_own_which_is_saved_with_it(tmp_path):
    curves = {"sigma": schedules.geometric(4.0, 1.0), "margin": schedules.linear(2.0, 1.0)}
    whole, _ = fit(AccuracyCallback(**curves), Classifier(hitrate.ExactLoss()), folder=tmp_path)
    assert float(whole.loss.sigma) == 1.0 and float(whole.loss.margin) == 1.0
    state = torch.load(tmp_path / "epoch=0.ckpt", weights_only=False)["state_dict"]
    assert {"loss.sigma", "loss.margin"} <= set(state)
    resumed, _ = fit(
        AccuracyCallback(**curves),
        Classifier(hitrate.ExactLoss()),
        folder=tmp_path / "b",
        resume=str(tmp_path / "epoch=0.ckpt"),
    )
    assert torch.equal(weights(resumed), weights(whole))


def test_a_loss_within_a_part_of_the_module():
    class Nested(Classifier):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Module()
            self.head.criterion = torch.nn.CrossEntropyLoss()

        def training_step(self, batch, _):
            x, target = batch
            self.kinds.append(type(self.head.criterion).__name__)
            return self.head.criterion(self.layer(x), target)

    module, _ = fit(AccuracyCallback("annealed", loss="head.criterion"), Nested())
    assert set(module.kinds) == {"ExactLoss"}
    assert type(module.head.criterion) is torch.nn.CrossEntropyLoss


def test_class_weights_smoothing_and_soft_targets_are_the_recipe_s():
    weight = torch.linspace(1, 2, CLASSES)
    callback = AccuracyCallback("cross_entropy", weight=weight, label_smoothing=0.1)
    fit(callback)
    logits, target = torch.randn(5, CLASSES), torch.randint(CLASSES, (5,))
    expected = torch.nn.functional.cross_entropy(logits, target, weight, label_smoothing=0.1)
    torch.testing.assert_close(callback.plan.loss(logits, target), expected)


def test_manual_optimisation_with_asam_is_counted():
    class Manual(Classifier):
        automatic_optimization = False

        def training_step(self, batch, _):
            x, target = batch
            asam = self.optimizers().optimizer
            self.optimizers().zero_grad()
            self.manual_backward(self.loss(self.layer(x), target))
            with asam.perturbed():
                asam.zero_grad()
                self.manual_backward(self.loss(self.layer(x), target))
            self.optimizers().step()

        def configure_optimizers(self):
            base = torch.optim.SGD(self.layer.parameters(), lr=0.1)
            return hitrate.optim.ASAM(self.layer.named_parameters(), base, rho=0.5)

    callback = AccuracyCallback("annealed")
    _, trainer = fit(callback, Manual())
    assert trainer.global_step == 12
    assert callback.plan.schedules[0].steps_done == 12


def test_what_is_wrong_is_told():
    with pytest.raises(ValueError, match="not one of"):
        AccuracyCallback("annealled")
    with pytest.raises(ValueError, match=r"Classifier.loss has to be a loss of hitrate, and is "):
        fit(AccuracyCallback(sigma=schedules.linear(2.0, 1.0)))
    with pytest.raises(ValueError, match="max_steps="):
        fit(AccuracyCallback("annealed"), max_epochs=-1, max_steps=-1, max_time="00:00:00:01")


def test_outside_of_a_fit_the_module_has_its_own_loss():
    callback, module = AccuracyCallback("annealed"), Classifier()
    quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    trainer = Trainer(callbacks=[callback], enable_model_summary=False, **quiet)
    trainer.validate(module, loader(), verbose=False)
    fit(callback, module)
    trainer.validate(module, loader(), verbose=False)
    assert type(module.loss) is torch.nn.CrossEntropyLoss
    logits, target, value = module.checked[0]
    torch.testing.assert_close(value, torch.nn.functional.cross_entropy(logits, target))
