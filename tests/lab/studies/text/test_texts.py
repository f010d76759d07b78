"""Studies of texts in miniature, and what gains of made-up results go with."""

import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from hitrate_lab.bad_input import BadInput
from hitrate_lab.pages.of_studies.text_plan import operations
from hitrate_lab.runs.work import Context
from hitrate_lab.studies import plan_of, read_study
from hitrate_lab.studies.gain import places
from hitrate_lab.studies.registry import protocol_named
from hitrate_lab.studies.text.features import features_of
from hitrate_lab.studies.text.heads_gain import pictures, places_of, table

FOLDER = Path(__file__).resolve().parents[4] / "studies"
WORDS = "the a red green blue dress coat fits well poorly small large".split()


def study_of(name):
    return read_study(FOLDER / f"{name}.toml")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Texts of which a word tells the class, in the files of two published sets."""
    folder, random = tmp_path_factory.mktemp("texts"), np.random.default_rng(0)
    rows = []
    for k in range(80):
        words = [*random.choice(WORDS, 6), ("who", "where", "when")[k % 3]]
        rows.append((" ".join(random.permutation(words)), k % 3))
    trec = "sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows)
    for part in ("train", "test"):
        file = folder / "sentence_cls" / f"trec_{part}.tsv"
        file.parent.mkdir(exist_ok=True)
        file.write_text(trec, encoding="utf-8")
    intents = "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows)
    (folder / "intents").mkdir()
    for part in ("clinc150_imbalanced_train", "clinc150_val", "clinc150_test"):
        (folder / "intents" / f"{part}.tsv").write_text(intents, encoding="utf-8")
    reviews = "Review Text,Rating,Recommended IND\n"
    reviews += "".join(f"{text},{label + 1},{label % 2}\n" for text, label in rows)
    (folder / "womens_reviews").mkdir()
    (folder / "womens_reviews" / "womens_clothing_ecommerce_reviews.csv").write_text(reviews)
    return folder


SMALL = {
    "text_intents_imbalanced": {
        **{"features": "words", "seeds": [0, 1], "epochs": 3, "batch_size": 20, "imbalance": 3.0},
        **{"tuning_seeds": 2, "learning_rates": [1e-2, 3e-2]},
    },
    "text_words": {"seeds": [0, 1], "epochs": 3, "batch_size": 20, "headroom": 10},
    "mixing_table_3": {
        **{"vocabulary": 30, "words": 8, "rows": 40, "test_rows": 20, "held_out": 0.25},
        "training": {"recipe": "annealed", "epochs": 2, "batch_size": 10, "optimizer": "adam"},
    },
    "text_next_words": {
        **{"vocabulary": 20, "hidden": 4, "streams": 2, "length": 5, "base_steps": 6},
        **{"steps": 3, "test_words": 60},
    },
}


@pytest.mark.parametrize("name", SMALL)
def test_a_run_in_miniature_gives_finite_cells_and_the_same_ones_again(name, data):
    study = study_of(name)
    protocol = protocol_named(study.protocol)
    spec = {**plan_of(study)[0], **SMALL[name]}
    found, again = (
        [
            cell
            for cell in protocol.cells(spec, protocol.run(spec, Context(data)))
            if "calibration" not in cell[0]
        ]
        for _ in range(2)
    )
    assert found == again
    assert {cell[2] for cell in found} <= {method.name for method in study.methods}
    assert np.isfinite([cell[3] for cell in found]).all()


def test_a_tail_is_cut_from_training_rows_alone(data):
    context = Context(data)
    whole, cut = (
        features_of("clinc150_imbalanced", "words", context, imbalance=imbalance, validation=True)
        for imbalance in (1.0, 3.0)
    )
    # 80 rows of three classes: 26 of the first, a third of it of the last.
    assert np.bincount(whole.train[1]).tolist() == [27, 27, 26]
    assert np.bincount(cut.train[1]).tolist() == [26, 15, 8]
    for part in ("test", "validation"):
        assert getattr(cut, part)[1].equal(getattr(whole, part)[1])
    assert features_of("trec", "words", context).validation is None
    with pytest.raises(BadInput, match="trec has no validation rows beside test rows"):
        features_of("trec", "words", context, validation=True)


def test_candidates_are_chosen_by_published_validation_rows(data, tmp_path):
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    # Labels of validation rows are others: who learns from the training rows has none of them.
    file = tmp_path / "intents" / "clinc150_val.tsv"
    head, *rows = file.read_text(encoding="utf-8").splitlines()
    pairs = (row.split("\t") for row in rows)
    shifted = [f"{text}\t{(int(label) + 1) % 3}" for text, label in pairs]
    file.write_text("\n".join([head, *shifted, ""]), encoding="utf-8")
    study = study_of("text_intents_imbalanced")
    small = {"epochs": 60, "tuning_seeds": 1, "learning_rates": [0.1, 0.3]}
    spec = {**plan_of(study)[0], **SMALL[study.name], **small}
    spec["methods"] = spec["methods"][:3]
    for held_out, by_published in ((0.0, True), (0.25, False)):
        found = protocol_named(study.protocol).run(
            {**spec, "held_out": held_out}, Context(tmp_path)
        )
        assert found["train_rows"] == 49
        for name, each in found["methods"].items():
            assert min(each["test"]) > 0.8, name
            assert (each["validation"] < 0.2) == by_published, name


@pytest.mark.parametrize(
    ("name", "old"),
    [("text_heads", "held_out = 0.25"), ("mixing_table_3", "[settings]")],
)
def test_all_rows_held_out_are_too_many(name, old, tmp_path):
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    assert text.count(f"{old}\n") == 1
    new = old.partition("held_out")[0] + "\nheld_out = 1.5"
    (tmp_path / f"{name}.toml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(BadInput, match=r"settings.held_out: needs a share below 1, not 1.5"):
        read_study(tmp_path / f"{name}.toml")


def made_up(study, per_point=2.0):
    """Results in which each point of training accuracy gained is worth so many on test rows."""
    random = np.random.default_rng(0)
    for spec in plan_of(study):
        methods = {}
        for k, method in enumerate(study.methods):
            gained = 0.0 if not k else 0.01 * random.random()
            still = 1e-4 * np.arange(5)
            methods[method.name] = {
                "train": list(0.8 + gained + still),
                "test": list(0.7 + per_point * gained + still),
            }
        yield spec, {"methods": methods, "parameters": 50, "classes": 2, "train_rows": 4000}


def test_the_line_finds_what_a_point_of_training_accuracy_is_worth(monkeypatch):
    monkeypatch.setattr(places, "RESAMPLES", 30)
    study = study_of("text_heads")
    runs = list(made_up(study))
    found = table(study, runs)
    rows = [row for row in found["rows"] if row[1] == places.GAINED]
    assert rows and all(row[2].startswith("+2.00 [") for row in rows)
    # All pairs, then those of each model.
    assert all(len(row) == len(found["head"]) == 6 for row in found["rows"])
    drawn = pictures(study, runs)
    assert list(drawn) == ["text-heads-training-error", "text-heads-headroom"]
    for picture in drawn.values():
        assert ElementTree.fromstring(picture).tag.endswith("svg")
        assert "trec, linear" in picture
    assert len(places_of(study, runs)) == 22
    assert table(study, runs[:3]) is None and pictures(study, runs[:3]) == {}


def test_operations_are_those_of_the_products():
    spec = {"protocol": "text LSTM 2", "architecture": "5", "rows": 10, "words": 3}
    spec["training"] = {"epochs": 2}
    # Three passes, two operations a product, 60 words, two layers, four gates of word and state.
    assert operations([spec]) == 3 * 2 * 60 * 2 * 4 * 2 * 100**2
    assert operations([{"protocol": "another 1"}]) == 0
