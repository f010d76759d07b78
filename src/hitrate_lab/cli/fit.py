"""`hitrate fit`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hitrate_lab.cli.ending import complain, ends_well
from hitrate_lab.cli.options import DataDir, Json, Overwrite, Seed, Target, Trials


@ends_well
def fit(
    data: Annotated[str, typer.Argument(help="A CSV, TSV or Parquet file, or a built-in name.")],
    out: Annotated[Path, typer.Option(help="The model's folder.")],
    target: Target = None,
    method: Annotated[
        str, typer.Option(help="<model>/<loss>, as `hitrate compare` names them.")
    ] = "linear/exact",
    trials: Trials = 4,
    seed: Seed = 0,
    data_dir: DataDir = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Train one method on all rows, and keep the model in a folder that is safe to load."""
    from rich.console import Console

    from hitrate_lab.data import read_table
    from hitrate_lab.models.folder import may_be_saved, save_model
    from hitrate_lab.protocols.fit import fit_table

    console = Console(stderr=True, highlight=False)
    may_be_saved(out, overwrite=overwrite)
    table = read_table(data, target, data_dir=data_dir)
    for note in table.notes:
        complain(f"note: {note}")
    with console.status("reading") as status:
        model = fit_table(table, method, seed=seed, trials=trials, progress=status.update)
    right = model.predict(table.features) == table.target.to_numpy()
    save_model(out, model, overwrite=overwrite)
    found = {**asdict(model.about), "training_accuracy": float(right.mean()), "out": str(out)}
    if as_json:
        print(json.dumps(found))
        return
    print(
        f"{method} on {len(table.target):,} rows of {table.name}: "
        f"{100 * right.mean():.2f} % of the training rows are right."
    )
    print(f"Model: {out}")
    print(f"Next:  hitrate predict {out} NEW.csv --out predictions.csv")
