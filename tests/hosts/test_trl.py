"""TRL's SFTTrainer: the softmax's losses through its own last layer."""

import pytest
import torch
from host_cases import weights

pytest.importorskip("trl")
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from hitrate.integrations.transformers import AccuracyCallback
from hitrate.integrations.trl import AccuracyMixin

WORDS = 50


class AccuracyTrainer(AccuracyMixin, SFTTrainer):
    pass


def tokenizer():
    words = {f"w{i}": i for i in range(WORDS)}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="w1", eos_token="w2", unk_token="w0"
    )


def texts():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(3, WORDS, (16, 10), generator=generator)
    return Dataset.from_dict({"text": [" ".join(f"w{i}" for i in row) for row in rows.tolist()]})


def train(folder, kind=SFTTrainer, callbacks=(), resume=None, **options):
    torch.manual_seed(0)
    settings = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    settings |= {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, **settings))
    # Sharp enough for p to matter.
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    arguments = {
        "per_device_train_batch_size": 4,
        "num_train_epochs": 2,
        "learning_rate": 1e-2,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "max_length": 16,
        **options,
    }
    trainer = kind(
        model=model,
        args=SFTConfig(str(folder), **arguments),
        train_dataset=texts(),
        processing_class=tokenizer(),
        callbacks=list(callbacks),
    )
    trainer.train(resume_from_checkpoint=resume)
    return weights(trainer.model), trainer


def test_cross_entropy_is_trl_s_own_loss(tmp_path):
    own, _ = train(tmp_path)
    ours, _ = train(tmp_path, AccuracyTrainer, [AccuracyCallback("cross_entropy")])
    torch.testing.assert_close(ours, own, rtol=0, atol=1e-6)


def test_the_expectation_loss_trains_as_dynamic_fine_tuning_does(tmp_path):
    own, _ = train(tmp_path, loss_type="dft")
    ours, _ = train(tmp_path, AccuracyTrainer, [AccuracyCallback("expectation")])
    plain, _ = train(tmp_path)
    torch.testing.assert_close(ours, own, rtol=0, atol=1e-5)
    assert (plain - own).abs().max() > 1e-3


def test_a_recipe_moves_and_parts_of_a_batch_equal_the_batch(tmp_path):
    callback = AccuracyCallback("annealed_softmax")
    whole, _ = train(tmp_path, AccuracyTrainer, [callback])
    assert float(callback.plan.loss.q) == 1.0
    parts, _ = train(
        tmp_path,
        AccuracyTrainer,
        [AccuracyCallback("annealed_softmax")],
        per_device_train_batch_size=1,
        gradient_accumulation_steps=4,
    )
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-4)


def test_a_resumed_training_ends_bit_equal(tmp_path):
    callbacks = [AccuracyCallback("annealed_softmax") for _ in range(2)]
    whole, _ = train(tmp_path / "whole", AccuracyTrainer, callbacks[:1], save_steps=3)
    checkpoint = str(tmp_path / "whole" / "checkpoint-3")
    resumed, _ = train(tmp_path / "resumed", AccuracyTrainer, callbacks[1:], resume=checkpoint)
    assert torch.equal(resumed, whole)
    assert callbacks[1].plan.schedules[0].steps_done == 8


@pytest.mark.parametrize(
    "callback",
    [("annealed", {}), ("cross_entropy", {"label_smoothing": 0.1}), ("hinge", {})],
    ids=lambda callback: callback[0],
)
def test_what_is_no_link_of_the_softmax_is_refused(callback, tmp_path):
    name, changes = callback
    with pytest.raises(ValueError, match="is more than a link of the softmax"):
        train(tmp_path, AccuracyTrainer, [AccuracyCallback(name, **changes)])


def test_a_callback_is_needed(tmp_path):
    with pytest.raises(ValueError, match="needs one AccuracyCallback among callbacks, has 0"):
        train(tmp_path, AccuracyTrainer)
