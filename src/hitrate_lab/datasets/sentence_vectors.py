"""Vectors of sentences by an encoder whose weights stay, computed once and kept.

What an encoder made of a text set lies in ``text/vectors/NAME`` of the last data folder, with what
it was made of: where that differs it is made anew.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets.texts import Texts, TextSet, read_texts
from hitrate_lab.tables.reading import data_folders
from hitrate_lab.whole_file import whole_file

if TYPE_CHECKING:
    from hitrate_lab.datasets.encoders import Encoder

Floats = NDArray[np.float32]
# Tokens of a text that are read, as in Mixing; rows of a set that are used; and sentences at once.
TOKENS, MOST_TRAIN, MOST_TEST, AT_ONCE = 64, 4000, 2000, 64
# Pairs take twice as long.
MOST_PAIRS = 2000
# Sets of which all rows are used: whose classes are many, or rare.
WHOLE = ("clinc150_imbalanced",)
# A set without test rows keeps this share of its rows for them.
TEST_SHARE = 0.25
SEED = 0
# In a file of vectors: what they were made of, as JSON; and what it says where no row is left out.
MADE_OF, ALL = "made_of", "all"


def parts_of(data: TextSet, most: tuple[int, int] | None = None) -> tuple[Texts, Texts]:
    """Rows to learn from and rows to test on, the same ones for everybody.

    Test rows are the published ones, else those of validation, else a quarter that is drawn. Of
    more rows than are wanted some are drawn.

    Parameters
    ----------
    data : TextSet
    most : pair of int, optional
        Rows to learn from, and to test on; by default as many as vectors are made of.
    """
    random = np.random.default_rng(SEED)
    test = data.test or data.validation
    train = data.train
    if test is None:
        order = random.permutation(len(train))
        cut = int(TEST_SHARE * len(train))
        train, test = some_of(train, order[cut:]), some_of(train, order[:cut])
    if most is None:
        if data.name in WHOLE:
            return train, test
        most = MOST_TRAIN if train.second is None else MOST_PAIRS, MOST_TEST
    return _drawn(train, most[0], random), _drawn(test, most[1], random)


def validation_of(data: TextSet) -> Texts:
    """The published validation rows of a set that has test rows beside them.

    Parameters
    ----------
    data : TextSet
    """
    if data.validation is None or data.test is None:
        raise BadInput(f"text set {data.name} has no validation rows beside test rows")
    return data.validation


def _drawn(texts: Texts, most: int, random: np.random.Generator) -> Texts:
    if len(texts) <= most:
        return texts
    return some_of(texts, np.sort(random.permutation(len(texts))[:most]))


def some_of(texts: Texts, places: NDArray[np.int64]) -> Texts:
    """These rows of a part."""
    second = None if texts.second is None else tuple(texts.second[k] for k in places)
    return Texts(tuple(texts.first[k] for k in places), second, texts.labels[places])


def sentence_vectors(
    name: str, encoder: str = "minilm", *, data_dir: Path | None = None
) -> dict[str, Any]:
    """Features and classes of a text set's rows, as an encoder sees them.

    A pair has the vectors u and v of its texts, |u - v| and u v.

    Parameters
    ----------
    name : str
        Of `TEXT_SETS`.
    encoder : str
        A folder's name.
    data_dir : Path, optional
        As for `read_texts`.

    Returns
    -------
    dict
        "train_x" (N, I), "train_y" (N,), "test_x", "test_y", and "classes", a number.
    """
    from hitrate_lab.datasets.encoders import Encoder, encoder_folder

    def make() -> dict[str, Any]:
        data, folder = read_texts(name, data_dir=data_dir), encoder_folder(encoder, data_dir)
        model = Encoder(folder).eval()
        train, test = parts_of(data)
        made: dict[str, Any] = {"classes": np.int64(len(data.classes))}
        for part, texts in (("train", train), ("test", test)):
            made[f"{part}_x"], made[f"{part}_y"] = _features(texts, folder, model), texts.labels
        return made

    rows = ALL if name in WHOLE else [MOST_TRAIN, MOST_PAIRS, MOST_TEST]
    found = _kept(f"{encoder}/{name}.npz", encoder, rows, data_dir, make)
    return {**found, "classes": int(found["classes"])}


def validation_vectors(
    name: str, encoder: str = "minilm", *, data_dir: Path | None = None
) -> tuple[Floats, NDArray[np.int64]]:
    """Features (N, I) and classes (N,) of a set's published validation rows.

    Parameters
    ----------
    name, encoder, data_dir
        As for `sentence_vectors`.
    """
    from hitrate_lab.datasets.encoders import Encoder, encoder_folder

    def make() -> dict[str, Any]:
        texts = validation_of(read_texts(name, data_dir=data_dir))
        folder = encoder_folder(encoder, data_dir)
        return {"x": _features(texts, folder, Encoder(folder).eval()), "y": texts.labels}

    found = _kept(f"{encoder}/{name}_validation.npz", encoder, ALL, data_dir, make)
    return found["x"], found["y"]


def _kept(
    file: str, encoder: str, rows: object, data_dir: Path | None, make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Arrays of a file in a folder text/vectors; made and written where none has the right ones."""
    from hitrate_lab.datasets.encoders import digest_of, encoder_folder

    wanted = {"tokens": TOKENS, "rows": rows}
    # Without the encoder its vectors are taken as they are.
    with contextlib.suppress(BadInput):
        wanted["encoder"] = digest_of(encoder_folder(encoder, data_dir))
    for base in data_folders(data_dir):
        kept = base / "text" / "vectors" / file
        if kept.is_file():
            with np.load(kept) as stored:
                found = {key: stored[key] for key in stored.files}
            said = found.pop(MADE_OF, None)
            if _may_be(found, rows) if said is None else _is(json.loads(str(said)), wanted):
                return found
    made = make()
    kept.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(kept) as beside, beside.open("wb") as whole:
        np.savez(whole, **{**made, MADE_OF: np.array(json.dumps(wanted))})
    return made


def _is(made_of: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(made_of.get(key) == value for key, value in wanted.items())


def _may_be(found: Mapping[str, Any], rows: object) -> bool:
    """Whether vectors that do not say what they were made of can be of so many rows.

    They are from before files said so. What was cut has as many rows as the limit.
    """
    limits = (("train_y", MOST_TRAIN), ("test_y", MOST_TEST))
    counts = [(len(found[key]), most) for key, most in limits if key in found]
    return all(count != most if rows == ALL else count <= most for count, most in counts)


class TextVectors:
    """An encoder of any folder, for columns of free text.

    Parameters
    ----------
    folder : Path
        With config.json, tokenizer.json and model.safetensors, as `transformers` reads them.
    """

    def __init__(self, folder: Path) -> None:
        from hitrate_lab.datasets.encoders import Encoder, folder_name

        self.name = folder_name(folder)
        self._folder, self._model = folder, Encoder(folder).eval()
        # A model of another kind, or another's tokenizer, is told before a table is read.
        self(["a text"])

    def __call__(self, texts: Sequence[str]) -> Floats:
        """Vectors (N, I) of length 1, in float32; of a text without tokens 0."""
        from hitrate_lab.datasets.encoders import using

        with using(self._folder):
            return _vectors(texts, self._folder, self._model)


def _features(texts: Texts, folder: Path, model: Encoder) -> Floats:
    first = _vectors(texts.first, folder, model)
    if texts.second is None:
        return first
    second = _vectors(texts.second, folder, model)
    return np.concatenate([first, second, np.abs(first - second), first * second], 1)


def _vectors(texts: Sequence[str], folder: Path, model: Encoder) -> Floats:
    """Means of length 1 (N, I), shortest texts first, so that little is filled.

    Matrix products are in bfloat16, which takes a seventh of the time where there are such units.
    """
    import torch

    from hitrate_lab.datasets.encoders import tokens_of

    numbers = tokens_of(folder, texts, most=min(TOKENS, model.positions))
    tokens = [torch.tensor(row, dtype=torch.long) for row in numbers]
    order = sorted(range(len(tokens)), key=lambda k: len(tokens[k]))
    found = np.empty((len(tokens), model.width), np.float32)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        for start in range(0, len(order), AT_ONCE):
            places = order[start : start + AT_ONCE]
            rows = torch.nn.utils.rnn.pad_sequence(
                [tokens[k] for k in places], batch_first=True, padding_value=model.padding
            )
            found[places] = torch.nn.functional.normalize(model(rows), dim=1).numpy()
    return found
