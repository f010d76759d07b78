"""TRL: fine-tuning a tiny language model on made-up sentences, by log probabilities and links."""

import random
import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from hitrate.integrations.transformers import AccuracyCallback
from hitrate.integrations.trl import AccuracyMixin

NAMES, VERBS, THINGS = ("ann", "bob", "eve"), ("reads", "writes", "buys"), ("books", "maps", "tea")
words = ["<pad>", "<eos>", "<unk>", "and", *NAMES, *VERBS, *THINGS]


class AccuracyTrainer(AccuracyMixin, SFTTrainer):
    """SFTTrainer with the loss of its AccuracyCallback."""


def sentence(chance):
    """Everybody has a favourite thing."""
    name, verb = chance.choice(NAMES), chance.choice(VERBS)
    thing = THINGS[NAMES.index(name)] if chance.random() < 0.8 else chance.choice(THINGS)
    return f"{name} {verb} {thing}"


chance = random.Random(0)
data = Dataset.from_dict(
    {"text": [" and ".join(sentence(chance) for _ in range(3)) for _ in range(200)]}
)
vocabulary = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
vocabulary.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=vocabulary, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
)
for recipe in ("cross_entropy", "annealed_softmax"):
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 32}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(words), **sizes))
    with tempfile.TemporaryDirectory() as folder:
        settings = {"num_train_epochs": 4, "learning_rate": 5e-3, "use_cpu": True, "bf16": False}
        settings |= {"report_to": [], "disable_tqdm": True, "logging_steps": 50}
        trainer = AccuracyTrainer(
            model=model,
            args=SFTConfig(folder, **settings),
            train_dataset=data,
            processing_class=tokenizer,
            callbacks=[AccuracyCallback(recipe)],
        )
        trainer.train()
        log = [row for row in trainer.state.log_history if "mean_token_accuracy" in row][-1]
    print(f"{recipe:17} accuracy of tokens {log['mean_token_accuracy']:.3f}")
