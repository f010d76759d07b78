"""Encoders of sentences: tokens, means over them, and vectors that are kept."""

import json
import shutil

import numpy as np
import pytest
import torch
from tiny_encoder import write_encoder

from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets import sentence_vectors as module
from hitrate_lab.datasets.encoders import FILES, Encoder, encoder_folder, folder_name, tokens_of
from hitrate_lab.datasets.sentence_vectors import TextVectors, sentence_vectors

WORDS = "the a red green blue dress coat fits well poorly".split()
TEXTS = ("the red dress", "a coat fits", "blue")
OTHERS = ("fits well", "the dress fits poorly", "a green dress")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_encoder(folder, WORDS)
    return folder


@pytest.fixture(scope="module")
def folder(data_dir):
    return encoder_folder("tiny", data_dir)


def write_texts(data_dir):
    """The folder of a set with three rows to learn from and three to test on."""
    texts = data_dir / "text" / "sentence_cls"
    texts.mkdir(parents=True)
    for part, rows in (("train", TEXTS), ("test", OTHERS)):
        lines = "".join(f"{text}\t{k}\n" for k, text in enumerate(rows))
        (texts / f"trec_{part}.tsv").write_text("sentence\tlabel\n" + lines)
    return texts


def filled(rows, padding=0):
    rows = [torch.tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding)


@pytest.mark.parametrize("second", [None, OTHERS], ids=["texts", "pairs"])
def test_it_is_the_mean_of_what_transformers_makes_of_the_tokens(folder, second):
    from tokenizers import Tokenizer
    from transformers import BertModel

    found = Encoder(folder).eval()(filled(tokens_of(folder, TEXTS, second, most=20)))
    model = BertModel.from_pretrained(folder).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = TEXTS if second is None else list(zip(TEXTS, second, strict=True))
    for row, ours in zip(rows, found, strict=True):
        encoded = tokenizer.encode(row) if second is None else tokenizer.encode(*row)
        ids, types = torch.tensor([encoded.ids]), torch.tensor([encoded.type_ids])
        last = model(input_ids=ids, token_type_ids=types).last_hidden_state
        torch.testing.assert_close(ours, last[0].mean(0), rtol=1e-5, atol=1e-6)


def test_embeddings_of_tokens_that_do_not_occur_can_be_left_out(folder):
    tokens = filled(tokens_of(folder, TEXTS, OTHERS, most=20))
    whole, part = Encoder(folder).eval(), Encoder(folder, tokens.unique().tolist()).eval()
    assert torch.equal(part(tokens), whole(tokens))
    spared = len(WORDS) + 4 - len(tokens.unique())
    assert spared > 0
    sizes = [sum(each.numel() for each in model.parameters()) for model in (whole, part)]
    assert sizes[0] - sizes[1] == 16 * spared


def test_rows_are_cut_to_so_many_tokens(folder):
    rows = tokens_of(folder, ["the red dress fits well"], ["a coat"], most=6)
    # Of the longer text first: both keep what they can.
    assert len(rows[0]) == 6 and rows[0].count(3) == 2


def test_vectors_have_length_one_and_are_kept(data_dir, folder):
    texts = write_texts(data_dir)
    found = sentence_vectors("trec", "tiny", data_dir=data_dir)
    assert found["train_x"].shape == (3, 16) and found["classes"] == 3
    np.testing.assert_allclose(np.linalg.norm(found["test_x"], axis=1), 1, rtol=1e-5)
    (texts / "trec_train.tsv").unlink()
    again = sentence_vectors("trec", "tiny", data_dir=data_dir)
    assert all(np.array_equal(again[key], value) for key, value in found.items())


@pytest.fixture
def copy(folder, tmp_path):
    """A folder with the encoder's files, to be changed."""
    return shutil.copytree(folder, tmp_path / "copy")


def changed(file, **fields):
    """Write a JSON file anew, with other fields."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


@pytest.mark.parametrize("kind", ["DistilBert", "Roberta", "MPNet", "Electra"])
def test_other_kinds_are_read_and_texts_cut_to_their_positions(copy, kind):
    import transformers

    sizes = {"vocab_size": 14, "max_position_embeddings": 12, "intermediate_size": 16}
    sizes |= {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = getattr(transformers, f"{kind}Config")(**sizes)
    getattr(transformers, f"{kind}Model")(config).save_pretrained(copy)
    # RoBERTa's kin begin behind the padding's number.
    assert Encoder(copy).positions == (10 if kind in ("Roberta", "MPNet") else 12)
    vectors = TextVectors(copy)(["the red dress fits well " * 20, "the red dress"])
    assert vectors.shape == (2, 16) and np.isfinite(vectors).all()


def test_a_text_without_tokens_is_zeros_beside_others_and_alone(copy):
    changed(copy / "tokenizer.json", post_processor=None)
    vectors = TextVectors(copy)
    found = vectors(["", "the red dress"])
    assert not found[0].any() and np.linalg.norm(found[1]) == pytest.approx(1, rel=1e-5)
    assert not vectors([""]).any()


def test_no_token_for_padding_is_the_first_one(copy, folder):
    changed(copy / "config.json", pad_token_id=None)
    np.testing.assert_array_equal(TextVectors(copy)(TEXTS), TextVectors(folder)(TEXTS))


@pytest.mark.parametrize("file", FILES)
def test_each_of_its_files_is_in_the_name_and_the_folder_beside(copy, folder, file):
    name, digest = folder_name(folder).split()
    assert (name, folder_name(copy)) == ("tiny", f"copy {digest}")
    (copy / file).write_bytes((copy / file).read_bytes() + b" ")
    assert folder_name(copy) != f"copy {digest}"


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 90868376\n"


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("config.json", "{}", "model_type"),
        ("config.json", "{", "not a valid JSON"),
        ("tokenizer.json", "{}", "Model missing"),
        ("model.safetensors", POINTER, "header"),
        ("model.safetensors", 900, "incomplete metadata|header"),
    ],
    ids=["no type", "no JSON", "no tokenizer", "pointer", "cut"],
)
def test_a_damaged_folder_is_told_in_one_line(copy, file, content, why):
    if isinstance(content, int):
        (copy / file).write_bytes((copy / file).read_bytes()[:-content])
    else:
        (copy / file).write_text(content)
    with pytest.raises(BadInput, match=rf"the encoder .*copy cannot be used: .*({why})") as error:
        TextVectors(copy)
    assert "\n" not in str(error.value)


def test_files_that_do_not_go_together_are_told_in_one_line(copy):
    changed(copy / "config.json", hidden_size=32)
    with pytest.raises(BadInput, match=r"cannot be used: Error.* size mismatch for .*\[14, 16\]"):
        TextVectors(copy)
    changed(copy / "config.json", hidden_size=16)
    model = json.loads((copy / "tokenizer.json").read_text())["model"]
    # Of another encoder, whose words have higher numbers; some of them alone.
    vocabulary = {word: k + 90 * (word == "coat") for word, k in model["vocab"].items()}
    changed(copy / "tokenizer.json", model={**model, "vocab": vocabulary})
    vectors = TextVectors(copy)
    with pytest.raises(BadInput, match="cannot be used: index 100 is out of bounds"):
        vectors(["a coat"])


@pytest.fixture
def made(data_dir, tmp_path):
    """A data folder of its own with an encoder, texts, and where their vectors will be."""
    shutil.copytree(data_dir / "text" / "encoders", tmp_path / "text" / "encoders")
    write_texts(tmp_path)
    return tmp_path, tmp_path / "text" / "vectors" / "tiny" / "trec.npz"


def test_vectors_of_another_encoder_of_that_name_are_made_anew(made):
    data_dir, file = made
    first = sentence_vectors("trec", "tiny", data_dir=data_dir)
    written = file.stat().st_mtime_ns
    sentence_vectors("trec", "tiny", data_dir=data_dir)
    assert file.stat().st_mtime_ns == written
    changed(data_dir / "text" / "encoders" / "tiny" / "tokenizer.json", post_processor=None)
    found = sentence_vectors("trec", "tiny", data_dir=data_dir)
    assert not np.array_equal(found["train_x"], first["train_x"])
    assert file.stat().st_mtime_ns != written
    # Without the encoder there is nothing to compare them with, nor to make others by.
    shutil.rmtree(data_dir / "text" / "encoders")
    again = sentence_vectors("trec", "tiny", data_dir=data_dir)
    assert np.array_equal(again["train_x"], found["train_x"])


def test_vectors_of_other_numbers_of_rows_are_made_anew(made, monkeypatch):
    data_dir, _ = made
    for limits, rows in (({}, 3), ({"MOST_TRAIN": 2}, 2), ({"WHOLE": ("trec",)}, 3)):
        for name, value in limits.items():
            monkeypatch.setattr(module, name, value)
        assert len(sentence_vectors("trec", "tiny", data_dir=data_dir)["train_y"]) == rows


@pytest.mark.parametrize(
    ("limits", "is_taken"),
    [({}, True), ({"MOST_TRAIN": 2}, False), ({"MOST_TRAIN": 3, "WHOLE": ("trec",)}, False)],
    ids=["fewer rows", "more rows", "cut"],
)
def test_files_that_do_not_say_what_they_are_of_go_by_their_rows(
    made, limits, is_taken, monkeypatch
):
    data_dir, file = made
    found = sentence_vectors("trec", "tiny", data_dir=data_dir)
    np.savez(file, **{**found, "train_x": found["train_x"] + 1})
    for name, value in limits.items():
        monkeypatch.setattr(module, name, value)
    again = sentence_vectors("trec", "tiny", data_dir=data_dir)["train_x"]
    assert np.array_equal(again, found["train_x"] + 1) == is_taken


def test_what_is_missing_is_told_in_one_line(data_dir, folder, tmp_path):
    with pytest.raises(BadInput, match=r"no encoder text/encoders/large with model"):
        encoder_folder("large", data_dir)
    config = json.loads((folder / "config.json").read_text())
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    with pytest.raises(BadInput, match=r"model.safetensors: lacks encoder.layer.1"):
        Encoder(tmp_path)
