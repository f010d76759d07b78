"""`hitrate predict`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hitrate_lab.cli.ending import ends_well
from hitrate_lab.cli.options import DataDir, Encoder, Json, Overwrite, encoder_in


@ends_well
def predict(
    model: Annotated[Path, typer.Argument(help="A folder that `hitrate fit` made.")],
    data: Annotated[str, typer.Argument(help="A CSV, TSV or Parquet file, or a built-in name.")],
    out: Annotated[Path, typer.Option(help="A .csv, .tsv or .parquet file for the predictions.")],
    verify_key: Annotated[
        Path | None,
        typer.Option(
            help="A public key in PEM; a model that it has not signed is refused.",
            show_default=False,
        ),
    ] = None,
    encoder: Encoder = None,
    data_dir: DataDir = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Predict the rows of a file: a label and a probability of each class, row by row."""
    from hitrate_lab.bad_input import printable
    from hitrate_lab.compare.fit import predict_file

    found = predict_file(
        model,
        data,
        out,
        data_dir=data_dir,
        overwrite=overwrite,
        verify_key=verify_key,
        encoder=encoder_in(encoder),
    )
    counts = {str(label): count for label, count in found.counts.items()}
    if as_json:
        shown = {"rows": found.rows, "counts": counts, "out": str(out)}
        shown |= {"accuracy": found.accuracy, "unknown_labels": found.unknown}
        print(json.dumps(shown))
        return
    most = sorted(counts.items(), key=lambda each: -each[1])
    listing = ", ".join(f"{printable(label)} {count:,}" for label, count in most[:8])
    print(f"{found.rows:,} rows: {listing}{', ...' if len(most) > 8 else ''}")
    if found.accuracy is not None:
        print(f"Of the rows with a known label {100 * found.accuracy:.2f} % are right.")
    if found.unknown:
        print(f"{found.unknown:,} rows have a label that the model does not know.")
    print(f"Predictions: {out}")
