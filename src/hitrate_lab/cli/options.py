"""Options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hitrate_lab.bad_input import BadInput

TRIALS = 4
METRIC = "accuracy"
# Cells times classes that take longer than a moment.
SLOW = 20_000_000

Target = Annotated[
    str | None,
    typer.Option(help="The column to predict; built-in sets know theirs.", show_default=False),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder of published data sets; else $HITRATE_DATA, else the user's cache.",
        show_default=False,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run on the workers of this Dask cluster, such as tcp://10.0.0.1:8786.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(help="Of all that is random.")]
Metric = Annotated[
    str,
    typer.Option(
        help="What parameters are chosen and methods ranked by: accuracy, balanced_accuracy, "
        "macro_f1, log_loss, cost, ...; a name that is none lists all."
    ),
]
CostFile = Annotated[
    Path | None,
    typer.Option(
        "--cost",
        metavar="FILE",
        help="For --metric cost: a CSV file with the classes that are decided for as header, the "
        "true classes as first column, and what each decision costs.",
        show_default=False,
    ),
]
Trials = Annotated[int, typer.Option(help="Parameters that each method may try, 1 to 12.")]
Text = Annotated[
    bool, typer.Option("--text/--no-text", help="Whether columns of free text are features.")
]
Encoder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Free text is read by this encoder: a folder with config.json, tokenizer.json and "
        "model.safetensors, such as that of all-MiniLM-L6-v2. By default it is words.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to stdout.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


def encoder_in(folder: Path | None, text: bool = True) -> Any:
    """What reads free text; None for words."""
    if folder is None:
        return None
    if not text:
        raise BadInput(
            f"--encoder {folder} reads free text, which --no-text leaves out; say one of them"
        )
    from hitrate_lab.datasets.sentence_vectors import TextVectors

    return TextVectors(folder)


def names(text: str, option: str) -> list[str]:
    """Names with commas between them."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise BadInput(f"{option} {text!r}: needs one or more names with commas between them")
    return found
