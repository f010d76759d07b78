"""Runs of a study as one file: JSON lines, which reports read again, CSV or Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.store import Run, Store, canonical
from hitrate_lab.studies.report import stored_runs
from hitrate_lab.studies.study_file import Study
from hitrate_lab.whole_file import write_whole


def load(results: Path, store: Path) -> int:
    """Put runs from a file into a store; those that it has stay as they are.

    Parameters
    ----------
    results : Path
        One run to a line, as JSON with "specification", "result" and "versions"; .jsonl or
        .jsonl.gz.
    store : Path

    Returns
    -------
    int
        How many are new.
    """
    try:
        opened = gzip.open if results.suffix == ".gz" else open
        with opened(results, "rt", encoding="utf-8") as lines, Store(store) as runs:
            return runs.add_all(map(json.loads, lines))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{results}: is no file of runs ({error})") from None


def export(study: Study, store: Path | str, path: Path) -> int:
    """Write all finished runs of a study to one file; how many they are.

    The same runs give the same bytes, as long as the libraries that pack them are the same.

    Parameters
    ----------
    study : Study
    store : Path
    path : Path
        Its ending says what is written. ``.jsonl`` and ``.jsonl.gz``: what `load` reads, the form
        of committed results. ``.csv`` and ``.parquet``: a table, with a column for each field.
    """
    pack = _form_of(path)
    if not Path(store).is_file():
        raise BadInput(f"{store}: is not there; `hitrate study run {study.name}` makes it")
    runs = stored_runs(study, store)
    if not runs:
        raise BadInput(f"{path}: not written, as study {study.name} has no finished run")
    write_whole(path, pack(runs))
    return len(runs)


def _form_of(path: Path) -> Callable[[Sequence[Run]], bytes]:
    """How a file of that name is written."""
    for ending, pack in FORMS.items():
        if path.name.endswith(ending):
            return pack
    raise BadInput(f"{path}: runs are written to files whose names end in {', '.join(FORMS)}")


def _lines(runs: Sequence[Run]) -> bytes:
    """One run to a line; when it finished, which says nothing of it, stays in the store."""
    parts = ("specification", "result", "versions")
    return b"".join(
        f"{canonical({part: getattr(run, part) for part in parts})}\n".encode() for run in runs
    )


def _packed_lines(runs: Sequence[Run]) -> bytes:
    packed = io.BytesIO()
    # Neither name nor time in the head. gzip.compress leaves a byte of it to the Python version.
    with gzip.GzipFile("", "wb", 9, packed, mtime=0) as file:
        file.write(_lines(runs))
    return packed.getvalue()


def _csv(runs: Sequence[Run]) -> bytes:
    rows = rows_of(runs)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, _columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _parquet(runs: Sequence[Run]) -> bytes:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise BadInput("Parquet needs pyarrow: pip install 'hitrate[parquet]'") from error
    rows = rows_of(runs)
    # A column that has numbers here and texts there is text.
    table = {name: _of_one_kind([row.get(name) for row in rows]) for name in _columns(rows)}
    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(table), content)
    return content.getvalue()


FORMS: dict[str, Callable[[Sequence[Run]], bytes]] = {
    ".jsonl.gz": _packed_lines,
    ".jsonl": _lines,
    ".csv": _csv,
    ".parquet": _parquet,
}


def rows_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Runs as flat rows: what was asked for, what came of it, and with which versions.

    Parameters
    ----------
    runs : sequence of Run
    """
    rows = []
    for run in runs:
        row: dict[str, Any] = {"key": run.key, "finished": run.finished}
        for part in (run.specification, run.result, {"versions": run.versions}):
            row.update(_flat(part))
        rows.append(row)
    return rows


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _flat(content: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Tables inside of tables become columns with dots; lists stay one cell, as JSON."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{before}{key}."))
        else:
            flat[before + key] = json.dumps(value) if isinstance(value, list) else value
    return flat


def _of_one_kind(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1:
        return values
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]
