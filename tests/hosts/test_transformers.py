"""The Trainer of transformers: resuming, accumulation, processes, evaluation, causal models."""

import copy

import pytest
import torch
from host_cases import CLASSES, problem, weights
from two_processes import run_in_processes

import hitrate

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PretrainedConfig,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from hitrate.integrations.transformers import AccuracyCallback

RECIPES = ["annealed", "annealed_softmax", "mixed_gradual", "exact_networks"]


class Config(PretrainedConfig):
    model_type = "tiny"


class Tiny(PreTrainedModel):
    """A linear classifier of features."""

    config_class = Config

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(6, CLASSES)
        self.post_init()

    def forward(self, x, labels=None):
        logits = self.layer(x)
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class Rows(torch.utils.data.Dataset):
    def __init__(self, x, labels):
        self.x, self.labels = x, labels

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.labels[i]}


def tiny():
    torch.manual_seed(0)
    return Tiny(Config())


def trainer(folder, recipe="annealed", *, data=None, model=None, changes=None, **arguments):
    settings = {
        "per_device_train_batch_size": 8,
        "num_train_epochs": 2,
        "learning_rate": 0.1,
        "optim": "sgd",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 1,
        "max_grad_norm": 0,
        **arguments,
    }
    accuracy = AccuracyCallback(recipe, **(changes or {}))
    data = Rows(*problem()) if data is None else data
    made = Trainer(
        model=tiny() if model is None else model,
        args=TrainingArguments(str(folder), **settings),
        train_dataset=data,
        eval_dataset=data,
        compute_loss_func=accuracy.compute_loss,
        callbacks=[accuracy],
    )
    return made, accuracy


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_resumed_training_ends_bit_equal(recipe, tmp_path):
    whole, _ = trainer(tmp_path / "whole", recipe, save_steps=5)
    whole.train()
    resumed, accuracy = trainer(tmp_path / "resumed", recipe)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-5"))
    assert resumed.state.global_step == 16
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert all(schedule.steps_done == 16 for schedule in accuracy.plan.schedules)


@pytest.mark.parametrize("recipe", RECIPES[:-1])
def test_parts_of_a_batch_equal_the_batch(recipe, tmp_path):
    whole, _ = trainer(tmp_path, recipe, per_device_train_batch_size=16)
    parts, accuracy = trainer(
        tmp_path, recipe, per_device_train_batch_size=4, gradient_accumulation_steps=4
    )
    whole.train()
    parts.train()
    torch.testing.assert_close(weights(parts.model), weights(whole.model), rtol=0, atol=1e-5)
    assert parts.state.global_step == whole.state.global_step == 8
    assert all(schedule.steps_done == 8 for schedule in accuracy.plan.schedules)
    logged = [x.state.log_history[-1]["train_loss"] for x in (whole, parts)]
    assert logged[0] == pytest.approx(logged[1], rel=1e-4)


def of_one_process(rank, recipe, folder):
    count = torch.distributed.get_world_size()
    made, _ = trainer(folder, recipe, per_device_train_batch_size=16 // count)
    made.train()
    found = made.evaluate()["eval_loss"]
    return weights(made.model), found


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_two_processes_equal_one(recipe, tmp_path):
    (one, loss), *_ = run_in_processes(1, of_one_process, recipe, str(tmp_path))
    for two, other in run_in_processes(2, of_one_process, recipe, str(tmp_path)):
        torch.testing.assert_close(two, one, rtol=0, atol=1e-6)
        assert other == pytest.approx(loss, abs=1e-5)


def test_evaluation_is_an_expected_error_rate(tmp_path):
    made, accuracy = trainer(tmp_path, "exact_networks")
    made.train()
    x, y = problem()
    with torch.no_grad():
        logits = made.model.layer(x)
    plain = hitrate.exact_loss(logits, y, float(accuracy.plan.loss.sigma))
    assert made.evaluate()["eval_loss"] == pytest.approx(float(plain), rel=1e-5)


def test_label_smoothing_is_the_callback_s(tmp_path):
    with pytest.raises(ValueError, match=r"say label_smoothing=0.1 to the callback"):
        trainer(tmp_path, label_smoothing_factor=0.1)
    made, _ = trainer(tmp_path, "cross_entropy", changes={"label_smoothing": 0.1}, max_steps=1)
    logits, y = torch.randn(5, CLASSES), torch.randint(CLASSES, (5,))
    torch.testing.assert_close(
        made.compute_loss_func({"logits": logits}, y),
        torch.nn.functional.cross_entropy(logits, y, label_smoothing=0.1),
    )


def test_class_weights_ignored_labels_and_probabilities(tmp_path):
    weight = torch.linspace(1, 2, CLASSES)
    _, accuracy = trainer(tmp_path, "cross_entropy", changes={"weight": weight})
    logits, y = torch.randn(5, CLASSES), torch.tensor([0, 1, -100, 2, 3])
    summed = torch.nn.functional.cross_entropy(logits, y, weight, reduction="sum")
    found = accuracy.compute_loss({"logits": logits}, y, num_items_in_batch=torch.tensor(4))
    torch.testing.assert_close(found, summed / 4)
    _, accuracy = trainer(tmp_path, "cross_entropy")
    soft = torch.softmax(torch.randn(5, CLASSES), 1)
    items = soft.ne(-100).sum()
    found = accuracy.compute_loss((logits,), soft, num_items_in_batch=items)
    torch.testing.assert_close(found, torch.nn.functional.cross_entropy(logits, soft))
    with pytest.raises(ValueError, match="no labels"):
        accuracy.compute_loss({"logits": logits}, None)


def test_without_a_count_of_labels_parts_of_a_batch_are_halved(tmp_path):
    _, accuracy = trainer(tmp_path, "cross_entropy", gradient_accumulation_steps=2)
    logits, y = torch.randn(5, CLASSES, requires_grad=True), torch.randint(CLASSES, (5,))
    mean = torch.nn.functional.cross_entropy(logits, y)
    torch.testing.assert_close(accuracy.compute_loss({"logits": logits}, y), mean / 2)
    with torch.no_grad():
        torch.testing.assert_close(accuracy.compute_loss({"logits": logits}, y), mean)


VOCABULARY = 30_000


def language_model(**changes):
    torch.manual_seed(0)
    settings = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    settings |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **settings, **changes))


def texts(rows=8, length=12):
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCABULARY, (rows, length), generator=generator)
    labels = tokens.clone()
    labels[:, :3] = -100
    labels[0, 8:] = -100
    return tokens, labels


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        tokens, labels = texts()
        return {"input_ids": tokens[i], "labels": labels[i]}


def test_cross_entropy_is_the_causal_model_s_own_loss(tmp_path):
    model, (tokens, labels) = language_model().eval(), texts()
    _, accuracy = trainer(tmp_path, "cross_entropy", data=Texts(), model=model)
    own = model(input_ids=tokens, labels=labels).loss
    logits = model(input_ids=tokens).logits
    found = accuracy.compute_loss({"logits": logits}, labels)
    assert float(found) == pytest.approx(float(own), abs=1e-6)
    items = labels[:, 1:].ne(-100).sum()
    own = model(input_ids=tokens, labels=labels, num_items_in_batch=items).loss
    found = accuracy.compute_loss({"logits": logits}, labels, num_items_in_batch=items)
    assert float(found) == pytest.approx(float(own), abs=1e-6)


def test_the_expectation_loss_has_the_gradient_of_dynamic_fine_tuning(tmp_path):
    model, (tokens, labels) = language_model().double().eval(), texts()
    # Sharp enough, and right often enough, for p to be anywhere.
    with torch.no_grad():
        model.lm_head.weight.mul_(40)
        likely = model(input_ids=tokens).logits.argmax(-1)
        labels[::2, 4:] = likely[::2, 3:-1]
    _, accuracy = trainer(tmp_path, "expectation", data=Texts(), model=model)
    found = []
    for ours in (True, False):
        model.zero_grad()
        logits = model(input_ids=tokens).logits
        if ours:
            loss = accuracy.compute_loss({"logits": logits}, labels)
        else:
            kept = labels[:, 1:] != -100
            log_p = logits[:, :-1].log_softmax(-1)[kept]
            log_p = log_p.gather(1, labels[:, 1:][kept][:, None])
            loss = -(log_p.exp().detach() * log_p).mean()
        loss.backward()
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-6 * float(found[1].abs().max()))


@pytest.mark.parametrize("recipe", ["annealed_softmax", "annealed"])
def test_a_causal_model_is_trained_without_all_logits(recipe, tmp_path):
    kept, _ = trainer(tmp_path, recipe, data=Texts(), model=language_model(), num_train_epochs=3)
    model = language_model()
    made, _ = trainer(
        tmp_path,
        recipe,
        data=Texts(),
        model=model,
        num_train_epochs=3,
        changes={"keep_logits": False},
    )
    seen = []
    model.lm_head.register_forward_hook(lambda *a: seen.append(a[2].shape[-1]))
    for each in (kept, made):
        each.train()
    # Once the check at the beginning, and then hidden states.
    assert seen.count(VOCABULARY) <= 2 and seen.count(16) >= 3
    torch.testing.assert_close(weights(made.model), weights(kept.model), rtol=0, atol=1e-5)
    assert "forward" not in vars(model.lm_head)
    assert made.evaluate()["eval_loss"] == pytest.approx(kept.evaluate()["eval_loss"], rel=1e-4)


def test_a_model_that_does_more_to_its_logits_keeps_them(tmp_path):
    class Capped(GPT2LMHeadModel):
        def forward(self, *args, **kwargs):
            outputs = super().forward(*args, **kwargs)
            outputs.logits = 30 * torch.tanh(outputs.logits / 30)
            return outputs

    model = language_model()
    with torch.no_grad():
        model.lm_head.weight.mul_(100)
    model.__class__ = Capped
    made, _ = trainer(tmp_path, data=Texts(), model=model, changes={"keep_logits": False})
    with pytest.raises(ValueError, match="Capped does more to its logits than its last layer"):
        made.train()
    assert "forward" not in vars(model.lm_head)


def test_a_second_training_begins_anew(tmp_path):
    made, accuracy = trainer(tmp_path)
    made.train()
    first = copy.deepcopy(weights(made.model))
    assert float(accuracy.plan.loss.q) == 1.0
    again, accuracy = trainer(tmp_path)
    again.train()
    again.train()
    assert float(accuracy.plan.loss.q) == 1.0
    assert not torch.equal(first, weights(again.model))
