"""Encoders of sentences: their folders, what their tokens are, and the network.

An encoder is a folder ``text/encoders/NAME`` of a data folder: config.json, tokenizer.json and
model.safetensors, as `transformers` reads them.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hitrate_lab.bad_input import BadInput
from hitrate_lab.tables.reading import data_folders

# Of an encoder's folder.
FILES = ("config.json", "tokenizer.json", "model.safetensors")
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
    """The folder's own name, and what `digest_of` says of its files."""
    return f"{folder.absolute().name} {digest_of(folder)}"


def digest_of(folder: Path) -> str:
    """Eight digits of a SHA-256 of all that vectors depend on: configuration, tokenizer, weights.

    Parameters
    ----------
    folder : Path
    """
    whole = hashlib.sha256()
    for name in FILES:
        if not (folder / name).is_file():
            raise BadInput(f"{folder} is no encoder: it has no {name}")
        with (folder / name).open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()[:8]


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
    with using(folder):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return int(config.get("pad_token_id") or 0)


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
    positions : int
        Tokens of a text that it can read.
    """

    _places: Tensor

    def __init__(self, folder: Path, used: Collection[int] | None = None) -> None:
        super().__init__()
        with using(folder):
            self._read(folder, used)

    def _read(self, folder: Path, used: Collection[int] | None) -> None:
        self.inner = _loaded(folder)
        config = self.inner.config
        self.padding = padding_of(folder)
        self.width: int = config.hidden_size
        self.positions = _positions(self.inner)
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
        """Means (N, width) in float32 of tokens (N, T); a text without any has zeros."""
        if not tokens.shape[1]:
            return torch.zeros(len(tokens), self.width, device=tokens.device)
        mask = tokens != self.padding
        words = self.inner.get_input_embeddings()(self._places[tokens])
        types = {}
        if self._separator is not None:
            ends = tokens == self._separator
            types["token_type_ids"] = (ends.cumsum(1) - ends.long()).clamp_max(1)
        found = self.inner(inputs_embeds=words, attention_mask=mask.long(), **types)
        last: Tensor = found.last_hidden_state.float()
        # What attends to nothing may be no number, times 0 as well.
        kept = last.masked_fill(~mask[:, :, None], 0.0)
        return kept.sum(1) / mask.sum(1, keepdim=True).clamp_min(1)


@contextlib.contextmanager
def using(folder: Path) -> Iterator[None]:
    """Tell in one line what others' code says of files that are damaged or do not go together.

    Parameters
    ----------
    folder : Path
        Of the encoder.
    """
    try:
        yield
    except BadInput:
        raise
    except ImportError as error:
        raise BadInput(f"encoders need pip install 'hitrate[transformers]': {error}") from error
    except Exception as error:  # Each library has its own, and tokenizers no class for them.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        # "Error(s) in loading state_dict for BertModel:" is only what comes before a reason.
        said = lines[: 2 if lines and lines[0].endswith(":") else 1]
        why = " ".join(said) or type(error).__name__
        raise BadInput(f"the encoder {folder} cannot be used: {why}") from error


def _tokenizer(folder: Path) -> Any:
    with using(folder):
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(folder / "tokenizer.json"))


def _loaded(folder: Path) -> Any:
    """The network with its weights, in float32, without what comes behind the last layer."""
    from safetensors.torch import load_file

    # Parts of transformers are imported when they are asked for.
    from transformers import MODEL_MAPPING, AutoConfig, AutoModel

    config = AutoConfig.from_pretrained(folder)
    known = MODEL_MAPPING.get(type(config), None)
    pools = inspect.isclass(known) and "add_pooling_layer" in inspect.signature(known).parameters
    model = AutoModel.from_config(config, **({"add_pooling_layer": False} if pools else {}))
    lacking = model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    if lacking.missing_keys:
        raise BadInput(f"{folder / 'model.safetensors'}: lacks {lacking.missing_keys[0]}")
    return model.float()


def _positions(model: nn.Module) -> int:
    """Tokens that a model has places for; RoBERTa's kin number them from behind the padding's."""
    config: Any = model.config
    most = getattr(config, "max_position_embeddings", None) or 0
    for name, each in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(each, nn.Embedding):
            most = each.num_embeddings - (0 if each.padding_idx is None else each.padding_idx + 1)
    return most if most > 0 else sys.maxsize
