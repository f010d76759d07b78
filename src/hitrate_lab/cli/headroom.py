"""`hitrate headroom`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from hitrate_lab.bad_input import BadInput
from hitrate_lab.cli.ending import ends_well
from hitrate_lab.cli.options import Json, Overwrite, Seed


@ends_well
def headroom(
    file: Annotated[
        Path,
        typer.Argument(
            help="A .npz or .safetensors file with arrays features (N, F) and target (N,), and "
            "perhaps the last layer, weight and bias, and test_features and test_target."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="A .safetensors or .npz file for the refitted head.", show_default=False),
    ] = None,
    rows: Annotated[int, typer.Option(help="Of more rows so many are drawn.")] = 100_000,
    device: Annotated[str, typer.Option(help="Of torch, such as cuda.")] = "cpu",
    seed: Seed = 0,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Say in seconds whether training for accuracy would help a network: refit its last layer."""
    from rich.console import Console
    from rich.text import Text

    import hitrate
    from hitrate_lab.bad_input import printable
    from hitrate_lab.tables.formats.features import read_features

    if out is not None:
        _may_be_written(out, overwrite)
    given = read_features(file)
    with Console(stderr=True, highlight=False).status("reading") as status:
        try:
            found = hitrate.headroom(
                given.features,
                given.target,
                given.head,
                test=given.test,
                rows=rows,
                device=_device(device),
                seed=seed,
                progress=lambda what: status.update(Text(what)),
            )
        except ValueError as error:
            # What the library complains of is in the file.
            raise BadInput(f"{file}: {error}") from error
    if out is not None:
        _write(out, found)
    if as_json:
        names = ("now", "reachable", "noise", "headroom", "gain", "low", "high", "level", "rows")
        shown: dict[str, Any] = {name: getattr(found, name) for name in names}
        shown |= {name: getattr(found, name) for name in ("held_out", "has_test", "l2", "q")}
        shown |= {"sentence": found.sentence, "out": None if out is None else str(out)}
        assert all(math.isfinite(shown[name]) for name in names)
        print(json.dumps(shown))
        return
    kind = "test rows" if found.has_test else "held-out rows"
    print(
        f"{printable(str(file))}: {found.rows:,} rows, {found.weight.shape[1]:,} features, "
        f"{found.weight.shape[0]:,} classes"
    )
    print(f"Training accuracy now   {100 * found.now:6.2f} %")
    print(f"              reachable {100 * found.reachable:6.2f} %")
    print(f"Headroom beyond noise   {100 * found.headroom:+6.2f} points")
    print(
        f"Gain on {found.held_out:,} {kind}: {100 * found.gain:+.2f} points "
        f"(95 % interval {100 * found.low:+.2f} to {100 * found.high:+.2f})"
    )
    print()
    print(found.sentence)
    if out is not None:
        print(f"Head: {printable(str(out))}")


def _device(name: str) -> str:
    """The device, if torch can use it here."""
    import torch

    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        what = str(error).splitlines()[0]
        raise BadInput(f"--device {name!r}: cannot be used here: {what}") from error
    return name


def _may_be_written(out: Path, overwrite: bool) -> None:
    if out.suffix not in (".safetensors", ".npz"):
        raise BadInput(f"--out {out}: needs to be a .safetensors or .npz file")
    if out.exists() and not overwrite:
        raise BadInput(f"{out} is there already; say that it may be overwritten (--overwrite)")


def _write(out: Path, found: Any) -> None:
    """Weight and bias, whole or not at all."""
    import io

    import numpy as np
    import safetensors.torch

    from hitrate_lab.whole_file import write_whole

    head = {"weight": found.weight, "bias": found.bias}
    if out.suffix == ".safetensors":
        write_whole(out, safetensors.torch.save(head))
        return
    content = io.BytesIO()
    np.savez(content, **{name: each.numpy() for name, each in head.items()})
    write_whole(out, content.getvalue())
