"""A made-up encoder of sentences with random weights, in the files that published ones have."""

import warnings

import pytest
import torch

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def write_encoder(data_dir, words, name="tiny"):
    """Its folder; what needs it is skipped where transformers is missing."""
    pytest.importorskip("transformers")
    # Mends a torchvision that does not fit.
    import host_cases  # noqa: F401

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tokenizers import Tokenizer, models, pre_tokenizers, processors
        from transformers import BertConfig, BertModel
    folder = data_dir / "text" / "encoders" / name
    folder.mkdir(parents=True)
    vocabulary = {word: k for k, word in enumerate((*SPECIAL, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    return folder
