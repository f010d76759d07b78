"""Encoders of sentences: tokens, means over them, and vectors that are kept."""

import json

import numpy as np
import pytest
import torch
from tiny_encoder import write_encoder

from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets.encoders import Encoder, encoder_folder, tokens_of
from hitrate_lab.datasets.sentence_vectors import sentence_vectors

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
    texts = data_dir / "text" / "sentence_cls"
    texts.mkdir(parents=True)
    for part, rows in (("train", TEXTS), ("test", OTHERS)):
        lines = "".join(f"{text}\t{k}\n" for k, text in enumerate(rows))
        (texts / f"trec_{part}.tsv").write_text("sentence\tlabel\n" + lines)
    found = sentence_vectors("trec", "tiny", data_dir=data_dir)
    assert found["train_x"].shape == (3, 16) and found["classes"] == 3
    np.testing.assert_allclose(np.linalg.norm(found["test_x"], axis=1), 1, rtol=1e-5)
    (texts / "trec_train.tsv").unlink()
    again = sentence_vectors("trec", "tiny", data_dir=data_dir)
    assert all(np.array_equal(again[key], value) for key, value in found.items())


def test_what_is_missing_is_told_in_one_line(data_dir, folder, tmp_path):
    with pytest.raises(BadInput, match=r"no encoder text/encoders/large with model"):
        encoder_folder("large", data_dir)
    config = json.loads((folder / "config.json").read_text())
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    with pytest.raises(BadInput, match=r"model.safetensors: lacks encoder.layer.1"):
        Encoder(tmp_path)
