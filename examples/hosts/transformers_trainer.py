"""transformers: a small BERT that reads made-up reviews, with accumulation, stopped and resumed."""

import random
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from hitrate.integrations.transformers import AccuracyCallback

GOOD, BAD, FILL = range(10, 20), range(20, 30), range(30, 100)


def reviews(count, seed):
    """Words of praise and of blame among others: which are more? A tenth of labels are wrong."""
    chance, rows = random.Random(seed), []
    for _ in range(count):
        label = chance.randrange(2)
        more, less = (GOOD, BAD) if label else (BAD, GOOD)
        words = chance.choices(more, k=3) + chance.choices(less, k=1) + chance.choices(FILL, k=4)
        chance.shuffle(words)
        label ^= chance.random() < 0.1
        rows.append({"input_ids": torch.tensor(words), "labels": label})
    return rows


def trainer(folder, recipe):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=100, **sizes, intermediate_size=64, initializer_range=0.2)
    accuracy = AccuracyCallback(recipe)
    arguments = TrainingArguments(
        folder,
        num_train_epochs=6,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        learning_rate=5e-3,
        save_steps=40,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    return Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=reviews(480, seed=0),
        eval_dataset=reviews(480, seed=1),
        compute_metrics=lambda p: {"accuracy": (p.predictions.argmax(1) == p.label_ids).mean()},
        compute_loss_func=accuracy.compute_loss,
        callbacks=[accuracy],
    )


for recipe in ("cross_entropy", "annealed"):
    with tempfile.TemporaryDirectory() as folder:
        (whole := trainer(folder, recipe)).train()
        resumed = trainer(folder, recipe)
        resumed.train(resume_from_checkpoint=f"{folder}/checkpoint-40")
        found = [each.evaluate()["eval_accuracy"] for each in (whole, resumed)]
    print(f"{recipe:14} accuracy {found[0]:.3f}, stopped and resumed {found[1]:.3f}")
