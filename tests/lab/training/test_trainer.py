import dataclasses
import itertools

import pytest
import torch
from networks_to_train import CASES, network, rows, trained, weights
from torch import nn

from hitrate_lab.training import Options, Ragged, Rows, Trainer


class Stop(Exception):
    pass


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_training_equals_an_uninterrupted_one(case, tmp_path):
    whole = trained(case)
    steps = (3, 6, 9)
    for stop in steps:

        def on_step(done, total, stop=stop):
            if done >= stop:
                raise Stop

        part = Trainer(network(), rows()[:160], CASES[case], held_out=rows()[160:], folder=tmp_path)
        with pytest.raises(Stop):
            part.fit(on_step=on_step)
    resumed = trained(case, tmp_path)
    assert torch.equal(weights(resumed), weights(whole))
    for ours, theirs in zip(resumed.epochs, whole.epochs, strict=True):
        assert (ours.epoch, ours.train_loss, ours.accuracy) == (
            theirs.epoch,
            theirs.train_loss,
            theirs.accuracy,
        )


def test_a_training_that_is_done_does_nothing(tmp_path):
    done = trained("annealed", tmp_path)
    before = weights(done)
    again = Trainer(
        network(), rows()[:160], CASES["annealed"], held_out=rows()[160:], folder=tmp_path
    )
    again.fit(on_step=lambda *_: pytest.fail("there is nothing to do"))
    assert torch.equal(weights(again), before)
    assert again.epochs == done.epochs


def test_a_folder_of_another_training_is_refused(tmp_path):
    trained("annealed", tmp_path)
    with pytest.raises(ValueError, match=r"recipe='annealed', not 'cross_entropy'"):
        trained("adamw", tmp_path)
    with pytest.raises(ValueError, match=r"seed=0, not 1"):
        trained("annealed", tmp_path, seed=1)


def test_it_is_the_plain_loop_of_torch():
    options = Options(epochs=2, batch_size=32, learning_rate=0.05, rate="constant", momentum=0.9)
    data = rows()[:160]
    trainer = Trainer(network(is_plain=True), data, options)
    trainer.fit()

    model = network(is_plain=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(2):
        for chosen in trainer._batches._order.of(epoch).split(32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(data.x[chosen]), data.target[chosen])
            loss.backward()
            optimizer.step()
    expected = torch.cat([p.double().flatten() for p in model.state_dict().values()])
    torch.testing.assert_close(weights(trainer), expected, rtol=1e-5, atol=1e-7)


def test_parts_of_a_batch_add_up_to_it():
    found = []
    for parts in (1, 4):
        options = Options("annealed", epochs=2, batch_size=32, accumulate=parts, rate="linear")
        trainer = Trainer(network(is_plain=True), rows()[:160], options)
        trainer.fit()
        found.append(weights(trainer))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


def test_every_row_comes_once_in_an_epoch_and_the_order_changes():
    trainer = Trainer(network(), rows()[:160], CASES["annealed"])
    order = trainer._batches._order
    first, second = order.of(0), order.of(1)
    assert sorted(first.tolist()) == list(range(160))
    assert not torch.equal(first, second)
    assert torch.equal(first, order.of(0))


def ragged(count=50):
    """Rows of 1 to 9 numbers; the class is the first one's."""
    random = torch.Generator().manual_seed(0)
    sizes = torch.randint(1, 10, (count,), generator=random).tolist()
    x = [torch.randint(1, 7, (size,), generator=random) for size in sizes]
    return Ragged(x, torch.tensor([int(row[0]) % 3 for row in x]), padding=7)


class Bag(nn.Module):
    """Sums over the rows' numbers, the first one aside."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.first = nn.Embedding(8, 3)
        self.others = nn.EmbeddingBag(8, 3, mode="sum", padding_idx=7)

    def forward(self, x):
        return self.first(x[:, 0]) + self.others(x)


def test_batches_of_texts_have_similar_lengths_and_each_row_once():
    data = ragged()
    order = Trainer(Bag(), data, Options(batch_size=8))._batches._order
    first, second = order.of(0), order.of(1)
    assert sorted(first.tolist()) == list(range(50))
    assert torch.equal(first, order.of(0)) and not torch.equal(first, second)
    lengths = data.lengths[first[:48]].view(6, 8)
    # The batches share the lengths from 1 to 9 among them.
    assert (lengths.amax(1) - lengths.amin(1)).sum() <= 8
    # Short ones are not always first.
    assert not torch.equal(lengths.amax(1), lengths.amax(1).sort().values)


def test_a_text_longer_than_others_does_not_change_what_is_said_of_them():
    trainer = Trainer(Bag(), ragged(), Options(epochs=30, batch_size=8, learning_rate=0.3))
    trainer.fit()
    assert trainer.evaluate(ragged())["accuracy"] > 0.9
    data = ragged()
    alone = [trainer.predict(Ragged([row], torch.tensor([0]), 7)) for row in data.x]
    torch.testing.assert_close(torch.cat(alone), trainer.predict(data))


def test_a_resumed_training_on_texts_equals_an_uninterrupted_one(tmp_path):
    options = Options("annealed", epochs=3, batch_size=8, optimizer="adam", save_every=2)

    def on_step(done, total):
        if done == 9:
            raise Stop

    whole = Trainer(Bag(), ragged(), options)
    whole.fit()
    with pytest.raises(Stop):
        Trainer(Bag(), ragged(), options, folder=tmp_path).fit(on_step=on_step)
    resumed = Trainer(Bag(), ragged(), options, folder=tmp_path)
    assert resumed.steps_done == 8
    resumed.fit()
    assert torch.equal(weights(resumed), weights(whole))


def test_fewer_texts_than_a_batch_are_one_batch():
    trainer = Trainer(Bag(), ragged(5), Options(epochs=2, batch_size=8))
    assert trainer.total_steps == 2
    trainer.fit()


def test_the_average_of_the_weights_is_what_is_evaluated():
    options = Options(epochs=1, batch_size=32, average=0.999, learning_rate=0.5)
    trainer = Trainer(network(is_plain=True), rows()[:160], options, held_out=rows()[160:])
    trainer.fit()
    with torch.no_grad():
        now = trainer.model(rows()[160:].x)
    assert not torch.allclose(trainer.predict(rows()[160:]), now)


def test_predictions_and_evaluation_agree():
    trainer = trained("annealed")
    held_out = rows()[160:]
    hits = (trainer.predict(held_out).argmax(1) == held_out.target).double().mean()
    assert trainer.evaluate()["accuracy"] == pytest.approx(float(hits))
    assert trainer.epochs[-1].accuracy == pytest.approx(float(hits))
    # A loss of the 1 - p family reads as an expected error.
    assert 0 <= trainer.evaluate()["loss"] <= 1


def test_ctrl_c_ends_behind_a_step_with_the_state_kept(tmp_path):
    import os
    import signal

    def press(done, total):
        if done == 7:
            os.kill(os.getpid(), signal.SIGINT)

    trainer = Trainer(
        network(), rows()[:160], CASES["annealed"], held_out=rows()[160:], folder=tmp_path
    )
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(on_step=press)
    assert trainer.steps_done == 7
    resumed = Trainer(
        network(), rows()[:160], CASES["annealed"], held_out=rows()[160:], folder=tmp_path
    )
    assert resumed.steps_done == 7
    resumed.fit()
    assert torch.equal(weights(resumed), weights(trained("annealed")))


def test_images_of_bytes_become_numbers():
    images = torch.randint(256, (64, 1, 6, 6), dtype=torch.uint8)
    target = torch.randint(4, (64,))
    trainer = Trainer(network(), Rows(images, target), CASES["annealed"])
    (part,) = trainer._batches.parts(0)
    assert part.x.dtype == torch.float32
    assert 0 <= float(part.x.min()) <= float(part.x.max()) <= 1


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"optimizer": "lion"}, "optimizer='lion' is not one of 'sgd'"),
        ({"rate": "sawtooth"}, "rate='sawtooth' is not one of 'constant'"),
        ({"augment": {"turn": 3}}, "augment='turn' is not one of rotate"),
        ({"epochs": 0}, "epochs must be a whole number >= 1, got 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number >= 1, got 2.5"),
        ({"learning_rate": -1.0}, "learning_rate must be a number >= 0"),
        ({"average": 1.0}, r"average must be in \[0, 1\), got 1.0"),
    ],
)
def test_a_mistake_is_told_where_it_is_made(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        Options(**changes)


def test_rows_and_parts_that_do_not_fit_are_told():
    with pytest.raises(ValueError, match="3 rows of x, 2 of target"):
        Rows(torch.randn(3, 2), torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match="32 rows of a batch cannot be computed in 3 parts"):
        Trainer(network(), rows(), Options(batch_size=32, accumulate=3))
    with pytest.raises(ValueError, match="which rows"):
        Trainer(network(), rows(), Options()).evaluate()


def test_rates_begin_and_end_where_they_should():
    for name, ends in {
        "cosine": (1, 0),
        "linear": (1, 0),
        "triangle": (0, 0),
        "constant": (1, 1),
    }.items():
        options = Options(rate=name, learning_rate=2.0)
        assert (options.rate_at(0.0), options.rate_at(1.0)) == pytest.approx([2 * e for e in ends])
    warm = Options(rate="constant", learning_rate=2.0, warmup=0.1)
    assert [warm.rate_at(p) for p in (0.0, 0.05, 0.1, 0.5)] == pytest.approx([0, 1, 2, 2])
    steps = [Options(rate="steps", learning_rate=1.0).rate_at(p) for p in (0.1, 0.4, 0.7, 0.9)]
    assert all(a > b for a, b in itertools.pairwise(steps))


def test_progress_is_shown(capsys):
    from hitrate_lab.training.progress import fit_with_progress

    trainer = Trainer(network(), rows()[:160], CASES["annealed"], held_out=rows()[160:])
    fit_with_progress(trainer)
    shown = capsys.readouterr().out
    assert "15/15" in shown
    assert "epoch 3, training" in shown
    assert "held out" in shown


@pytest.mark.slow
def test_a_compiled_network_trains_alike_and_resumes(tmp_path):
    plain = Options("annealed", epochs=2, batch_size=32, learning_rate=0.05)
    compiled = dataclasses.replace(plain, compile=True)
    found = []
    for options in (plain, compiled):
        trainer = Trainer(network(is_plain=True), rows()[:160], options)
        trainer.fit()
        found.append(weights(trainer))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)

    def stop(done, total):
        if done == 7:
            raise Stop

    with pytest.raises(Stop):
        Trainer(network(is_plain=True), rows()[:160], compiled, folder=tmp_path).fit(on_step=stop)
    resumed = Trainer(network(is_plain=True), rows()[:160], compiled, folder=tmp_path)
    assert resumed.steps_done == 5
    resumed.fit()
    assert torch.equal(weights(resumed), found[1])
