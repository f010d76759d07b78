"""Encoders of sentences: their folders, what their tokens are, and the network.

An encoder is a folder ``text/encoders/NAME`` of a data folder: config.json, tokenizer.json and
model.safetensors, as `transformers` reads them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hitrate_lab.bad_input import BadInput
from hitrate_lab.tables.reading import data_folders

# What stands behind each text of a pair, where the two have other types.
SEPARATOR = "[SEP]"


def encoder_folder(encoder: str, data_dir: Path | None = None) -> Path:
    """Where an encoder is.

    Parameters
    ----------
    encoder : str
        A folder's name.
    data_dir : Path, optional
        As for `read_texts`.
    """
    for base in data_folders(data_dir):
        folder = base / "text" / "encoders" / encoder
        if (folder / "model.safetensors").is_file():
            return folder
    looked = " or ".join(map(str, data_folders(data_dir)))
    raise BadInput(f"no encoder text/encoders/{encoder} with model.safetensors in {looked}")


def folder_name(folder: Path) -> str:
    """The folder's own name, and the first eight digits of its weights' SHA-256."""
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise BadInput(f"{folder} is no encoder: it has no {name}")
    with (folder / "model.safetensors").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return f"{folder.absolute().name} {digest.hexdigest()[:8]}"


def tokens_of(
    folder: Path, first: Sequence[str], second: Sequence[str] | None = None, *, most: int
) -> list[list[int]]:
    """Numbers of the tokens of texts, or of pairs in one row.

    Parameters
    ----------
    folder : Path
    first, second : sequence of str
    most : int
        Tokens of a row; of a pair the longer text is cut.
    """
    tokenizer = _tokenizer(folder)
    tokenizer.enable_truncation(most)
    tokenizer.no_padding()
    rows = list(first) if second is None else list(zip(first, second, strict=True))
    return [each.ids for each in tokenizer.encode_batch(rows)]


def padding_of(folder: Path) -> int:
    """The token that stands behind shorter texts."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return int(config.get("pad_token_id", 0))


class Encoder(nn.Module):
    """The mean of an encoder's last layer over a text's tokens: what all-MiniLM-L6-v2 is for.

    Parameters
    ----------
    folder : Path
    used : collection of int, optional
        Tokens that there are; embeddings of others are left out, as they would never move.

    Attributes
    ----------
    padding : int
        What stands behind shorter texts.
    width : int
        Of what is made of a text.
    """

    _places: Tensor

    def __init__(self, folder: Path, used: Collection[int] | None = None) -> None:
        super().__init__()
        self.inner = _loaded(folder)
        config = self.inner.config
        self.padding = padding_of(folder)
        self.width: int = config.hidden_size
        has_types = getattr(config, "type_vocab_size", 1) > 1
        self._separator = _tokenizer(folder).token_to_id(SEPARATOR) if has_types else None
        table = self.inner.get_input_embeddings().weight.detach()
        every = range(len(table)) if used is None else {*used, self.padding}
        kept = torch.tensor(sorted(every))
        places = torch.zeros(len(table), dtype=torch.long)
        places[kept] = torch.arange(len(kept))
        self.register_buffer("_places", places, persistent=False)
        embedding = nn.Embedding(len(kept), table.shape[1], _weight=table[kept])
        self.inner.set_input_embeddings(embedding)

    def forward(self, tokens: Tensor) -> Tensor:
        """Means (N, width) in float32 of tokens (N, T)."""
        mask = tokens != self.padding
        words = self.inner.get_input_embeddings()(self._places[tokens])
        types = {}
        if self._separator is not None:
            ends = tokens == self._separator
            types["token_type_ids"] = (ends.cumsum(1) - ends.long()).clamp_max(1)
        found = self.inner(inputs_embeds=words, attention_mask=mask.long(), **types)
        last: Tensor = found.last_hidden_state.float()
        weight = mask[:, :, None].float()
        return (last * weight).sum(1) / weight.sum(1)


def _tokenizer(folder: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise _missing(error) from error
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def _loaded(folder: Path) -> Any:
    """The network with its weights, in float32, without what comes behind the last layer."""
    try:
        from safetensors.torch import load_file
        from transformers import AutoConfig, AutoModel

        # Its parts are imported when they are asked for.
        config = AutoConfig.from_pretrained(folder)
        model = AutoModel.from_config(config, add_pooling_layer=False)
    except ImportError as error:
        raise _missing(error) from error
    lacking = model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    if lacking.missing_keys:
        raise BadInput(f"{folder / 'model.safetensors'}: lacks {lacking.missing_keys[0]}")
    return model.float()


def _missing(error: ImportError) -> BadInput:
    return BadInput(f"encoders need pip install 'hitrate[transformers]': {error}")
