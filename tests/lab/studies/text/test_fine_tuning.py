"""Fine-tuning in miniature: a made-up encoder, texts of which a word tells the class."""

import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from tiny_encoder import write_encoder

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.store import Store, key_of
from hitrate_lab.runs.work import Context
from hitrate_lab.studies import document, markdown, plan_of, read_study, run_study
from hitrate_lab.studies.text import fine_tuning
from hitrate_lab.studies.text.fine_tuning import FineTuning, best_of, stages_of

WORDS = "the a red green blue dress coat fits well poorly who where when".split()
STUDY = """
name = "small"
title = "In miniature"
reproduces = "No paper"
protocol = "text fine-tuning"
seeds = [0, 1]
data_sets = ["texts/trec", "texts/rte"]

[measures]
test_accuracy = "Test accuracy, %"
train_accuracy = "Training accuracy, %"

[settings]
encoder = "tiny"
tokens = 20
held_out = 0.25
learning_rates = [1e-3, 1e-2]

[settings.training]
batch_size = 8
optimizer = "adamw"
warmup = 0.1
precision = "bfloat16"

[settings.sets."texts/trec"]
rows = 48
test_rows = 20
epochs = 3

[settings.sets."texts/rte"]
rows = 30
test_rows = 15
epochs = 2

[[methods]]
name = "CE"
recipe = "cross_entropy"

[[methods]]
name = "EL, warm"
recipe = "expectation"
warm = 1

[[methods]]
name = "EXACT"
recipe = "exact_networks"
"""


def study_of(folder, old="", new=""):
    assert old in STUDY
    path = folder / "small.toml"
    path.write_text(STUDY.replace(old, new) if old else STUDY)
    return read_study(path)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """An encoder; texts of three classes, and pairs that have a word in common or not."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    write_encoder(folder, WORDS)
    trec, rte = "sentence\tlabel\n", "sentence1\tsentence2\tlabel\n"
    for k in range(60):
        words = [*random.choice(WORDS[:10], 4), WORDS[10 + k % 3]]
        trec += f"{' '.join(random.permutation(words))}\t{k % 3}\n"
        rte += f"{' '.join(words[:3])}\t{words[0] if k % 2 else 'who'}\t{k % 2}\n"
    for place, text in (("sentence_cls/trec_{}.tsv", trec), ("glue/rte_{}.tsv", rte)):
        for part in ("train", "test", "dev"):
            file = folder / place.format(part)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def done(data_dir, tmp_path_factory):
    """A study and the store of its runs."""
    folder = tmp_path_factory.mktemp("study")
    study, store = study_of(folder), folder / "runs.sqlite"
    status = run_study(study, store=store, jobs=1, data_dir=data_dir)
    assert (status.done, status.failed) == (24, 0), status.failures
    return study, store


def stored(done):
    study, store = done
    with Store(store) as runs:
        return {key_of(run.specification): run for run in runs.runs(plan_of(study))}


def test_one_rate_needs_no_trials(data_dir, tmp_path):
    study, store = study_of(tmp_path, "[1e-3, 1e-2]", "[1e-2]"), tmp_path / "runs.sqlite"
    plan = plan_of(study)
    assert len(plan) == 12 and {spec["stage"] for spec in plan} == {"final"}
    assert run_study(study, store=store, jobs=1, data_dir=data_dir).done == 12
    for run in stored((study, store)).values():
        assert run.result["learning_rate"] == 1e-2 and run.result["validation_accuracy"] is None


def test_each_method_goes_on_with_the_rate_that_its_trials_chose(done):
    runs = stored(done)
    protocol, plan = FineTuning(), plan_of(done[0])
    finals = [spec for spec in plan if spec["stage"] == "final"]
    assert len(finals) == 12
    for spec in finals:
        trials = [runs[key_of(each)].result for each in protocol.needs(spec, plan)]
        assert [each["learning_rate"] for each in trials] == [1e-3, 1e-2]
        # A quarter of the rows is held out, and what it says of both is compared.
        assert {each["train_rows"] for each in trials} == {36 if "trec" in spec["data_set"] else 23}
        result, best = runs[key_of(spec)].result, best_of(trials)
        for key in ("learning_rate", "validation_accuracy"):
            assert result[key] == best[key]
        assert result["train_rows"] == spec["rows"] and result["test_rows"] == spec["test_rows"]
        assert len(result["curve"]) == spec["training"]["epochs"]
        assert 0 <= result["test_accuracy"] <= 1 and 0 < result["most_said"] <= 1


def test_the_report_compares_methods_and_says_how_training_went(done):
    study, store = done
    found = document(study, store)
    titles = [table["title"] for table in found["extra_tables"]]
    pairs = "Over 2 pairs of a data set and a model"
    assert titles == ["Accuracy of CE, and differences from it", pairs, "How training went"]
    course = found["extra_tables"][2]
    assert [row[:2] for row in course["rows"]][:3] == [["trec", name] for name in names(study)]
    # Sets with fewer epochs have empty cells.
    assert all((row[5] == "") == (row[0] == "rte") for row in course["rows"])
    assert "| trec, tiny, fine-tuned | " in markdown(found)


def names(study):
    return [method.name for method in study.methods]


def test_a_report_on_the_first_runs_shows_what_is_there(done, tmp_path):
    study, _ = done
    runs = list(stored(done).values())
    protocol = FineTuning()
    for count in (0, 12, 13, 20):
        for table in protocol.extra_tables(study, runs[:count]):
            assert all(len(row) == len(table["head"]) for row in table["rows"])
        assert all(not table["scores"] for table in protocol.score_tables(study, runs[:count]))


class Stop(Exception):
    pass


@pytest.mark.parametrize(
    ("save_every", "second"), [(0, 4), (100, 0)], ids=["epochs", "more steps than there are"]
)
def test_a_run_that_was_killed_goes_on_in_its_scratch_folder(
    done, data_dir, tmp_path, monkeypatch, save_every, second
):
    from hitrate_lab.training import Trainer

    plan = plan_of(done[0])
    spec = next(each for each in plan if each["warm"] and each["stage"] == "trial")
    asked = {**spec, "training": {**spec["training"], "save_every": save_every}}
    context = Context(data_dir, scratch=tmp_path / "scratch")
    fit = Trainer.fit

    def killed(trainer):
        def on_step(steps, total):
            # Behind the first checkpoint of what follows the epoch of cross entropy.
            if trainer.options.recipe == "expectation" and steps == trainer._batches.steps + 1:
                raise Stop

        fit(trainer, on_step=on_step)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "fit", killed)
        with pytest.raises(Stop):
            FineTuning().run(asked, context)
    begun = []

    def watched(trainer):
        begun.append(trainer.steps_done)
        fit(trainer)

    monkeypatch.setattr(Trainer, "fit", watched)
    result = FineTuning().run(asked, context)
    # The first part is done, the second has an epoch behind it or nothing.
    assert begun == [4, second]
    whole = stored(done)[key_of(spec)].result
    for key in ("curve", "validation_accuracy"):
        assert result[key] == whole[key]


def test_a_warm_start_is_an_epoch_of_cross_entropy_within_the_same_fall_of_the_rate():
    training = {"recipe": "expectation", "changes": {}, "epochs": 4, "warmup": 0.1, "clip": 1.0}
    first, second = stages_of(training, 1)
    assert (first["recipe"], first["epochs"]) == ("cross_entropy", 1)
    assert (second["recipe"], second["epochs"]) == ("expectation", 3)
    assert first["rate"](0.0) == 1 and first["rate"](1.0) == second["rate"](0.0) == 0.75
    assert second["rate"](1.0) == 0
    # Of all four epochs a tenth is that of the first one's four tenths.
    assert first["warmup"] == pytest.approx(0.4) and second["warmup"] == 0
    assert [each["clip"] for each in (first, second)] == [1.0, 1.0]
    (alone,) = stages_of(training, 0)
    assert (alone["recipe"], alone["epochs"], alone["warmup"]) == ("expectation", 4, 0.1)


def test_of_rates_with_the_same_accuracy_the_lowest_is_taken():
    accuracies = {1e-3: 0.5, 1e-4: 0.75, 1e-5: 0.75}
    trials = [{"learning_rate": k, "validation_accuracy": v} for k, v in accuracies.items()]
    assert best_of(trials)["learning_rate"] == 1e-5


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("warm = 1", "warm = 2", r"methods\[EL, warm\].warm: leaves no epoch of texts/rte"),
        ("held_out = 0.25", "held_out = 1.0", "settings.held_out: needs a share below 1, not 1"),
        ("test_accuracy =", "best =", "measures: 'best' is none of test_accuracy, train_accuracy"),
        ('"texts/rte"]', '"images/rte"]', "data_sets: 'images/rte' is none of texts/NAME"),
        ("rows = 30", "", "settings.sets.texts/rte.rows: is missing"),
    ],
)
def test_a_wrong_file_is_told(old, new, said, tmp_path):
    with pytest.raises(BadInput, match=said):
        study_of(tmp_path, old, new)


def test_an_option_of_training_that_there_is_not_is_told(tmp_path):
    study = study_of(tmp_path, "warmup = 0.1", "warm_up = 0.1")
    with pytest.raises(BadInput, match=r"methods\[CE\]: warm_up is no option of training"):
        plan_of(study)


def test_a_warm_start_that_is_over_before_the_rate_has_risen_is_told(tmp_path):
    study = study_of(tmp_path, "warmup = 0.1", "warmup = 0.5")
    said = r"methods\[EL, warm\].warm: needs more epochs than the 1.5 in which the rate of"
    with pytest.raises(BadInput, match=said):
        plan_of(study)


def test_texts_that_an_encoder_cannot_read_are_told_before_training(data_dir, tmp_path):
    texts = tmp_path / "data"
    shutil.copytree(data_dir, texts)
    config = texts / "text" / "encoders" / "tiny" / "config.json"
    config.write_text(config.read_text().replace('embeddings": 32', 'embeddings": 6'))
    weights = config.with_name("model.safetensors")
    held = load_file(weights)
    name = "embeddings.position_embeddings.weight"
    save_file({**held, name: held[name][:6].clone()}, weights)
    spec = plan_of(study_of(tmp_path))[0]
    fine_tuning._numbered.cache_clear()
    with pytest.raises(BadInput, match="a text of 7 tokens is too long: tiny has 6 positions"):
        FineTuning().run(spec, Context(texts))


def test_tokens_are_counted_once_for_all_runs_on_a_set(done, data_dir):
    fine_tuning._numbered.cache_clear()
    parts = 48, 20, 0.0
    one = fine_tuning._numbered("trec", "tiny", data_dir, 20, parts)
    assert fine_tuning._numbered("trec", "tiny", data_dir, 20, parts) is one
