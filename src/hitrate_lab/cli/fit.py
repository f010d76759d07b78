"""`hitrate fit`."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hitrate_lab.cli.ending import complain, ends_well
from hitrate_lab.cli.options import (
    METRIC,
    SLOW,
    TRIALS,
    CostFile,
    DataDir,
    Encoder,
    Json,
    Metric,
    Overwrite,
    Seed,
    Target,
    Text,
    Trials,
    encoder_in,
)


@ends_well
def fit(
    data: Annotated[str, typer.Argument(help="A CSV, TSV or Parquet file, or a built-in name.")],
    out: Annotated[Path, typer.Option(help="The model's folder.")],
    target: Target = None,
    method: Annotated[
        str, typer.Option(help="<model>/<loss>, as `hitrate compare` names them.")
    ] = "linear/exact",
    trials: Trials = TRIALS,
    seed: Seed = 0,
    metric: Metric = METRIC,
    sign_key: Annotated[
        Path | None,
        typer.Option(help="A private key in PEM, to sign the model with.", show_default=False),
    ] = None,
    cost: CostFile = None,
    text: Text = True,
    encoder: Encoder = None,
    data_dir: DataDir = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Train one method on all rows, and keep the model in a folder that is safe to load."""
    from rich.console import Console
    from rich.text import Text as Shown

    from hitrate_lab.bad_input import printable
    from hitrate_lab.compare.costs import read_costs
    from hitrate_lab.compare.fit import fit_table
    from hitrate_lab.compare.folds import chosen_on
    from hitrate_lab.metrics import metric_named
    from hitrate_lab.models.folder import may_be_saved, save_model
    from hitrate_lab.models.signatures import private_key
    from hitrate_lab.tables import read_table
    from hitrate_lab.tables.vectors import read_by

    # Whether the two go together is told before a file is read; any costs will do for that.
    metric_named(metric, costs=None if cost is None else ((0, 1), (1, 0)))
    console = Console(stderr=True, highlight=False)
    warned: list[str] = []
    may_be_saved(out, overwrite=overwrite)
    if sign_key is not None:
        # Before a long fit.
        private_key(sign_key)
    reads = encoder_in(encoder, text)
    table = read_table(data, target, data_dir=data_dir, text=text, encoder=reads, progress=complain)
    for note in table.notes:
        complain(f"note: {note}")
    if trials > 1 and (most := chosen_on(len(table.target))):
        complain(
            f"note: parameters are chosen on {most:,} rows, drawn at random; with what is chosen "
            "all are fitted"
        )
    costs = None if cost is None else read_costs(cost, table.classes)
    # Where no status moves, a line says what takes long.
    slow = table.features.size * len(table.classes) > SLOW
    with console.status("reading") as status:

        def say(what: str) -> None:
            status.update(Shown(what))
            if "Warning: " in what:
                warned.append(what)
            elif slow and not console.is_terminal:
                complain(what)

        model = fit_table(
            table,
            method,
            seed=seed,
            trials=trials,
            metric=metric,
            costs=costs,
            progress=say,
        )
    for each in warned:
        complain(f"note: {each}")
    right = model.predict(table.features) == table.target.to_numpy()
    save_model(out, model, overwrite=overwrite, sign_key=sign_key)
    found = {**asdict(model.about), "training_accuracy": float(right.mean()), "out": str(out)}
    if as_json:
        print(json.dumps(found))
        return
    print(
        f"{method} on {len(table.target):,} rows of {printable(table.name)}: "
        f"{100 * right.mean():.2f} % of the training rows are right."
    )
    print(f"Model: {out}")
    words = ["hitrate", "predict", str(out), "NEW.csv", "--out", "predictions.csv"]
    _, read = read_by(model.columns.used)
    words += ["--encoder", str(encoder)] if read else []
    print(f"Next:  {shlex.join(words)}")
