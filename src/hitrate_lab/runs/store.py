"""Runs in one SQLite file: what was asked for, and what came of it.

A row is written once, in one transaction, and never changed; what was committed outlives the
process and a loss of power. Any number of processes may read and write: each write holds the file's
lock for milliseconds, others wait. The journal is SQLite's default one, deleted after each
transaction: the faster write-ahead log needs memory that processes share, which a network folder
does not give.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.environment import now, versions

# Says to SQLite's tools, and to `Store`, whose file it is: "hitr".
APPLICATION = 0x68697472
VERSION = 1
# Seconds to wait for other writers.
PATIENCE = 60.0

TABLES = """
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    specification TEXT NOT NULL,
    result TEXT NOT NULL,
    finished TEXT NOT NULL,
    versions TEXT NOT NULL
);
CREATE TABLE failures (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    specification TEXT NOT NULL,
    error TEXT NOT NULL,
    traceback TEXT NOT NULL,
    finished TEXT NOT NULL,
    versions TEXT NOT NULL
);
CREATE INDEX failures_of_key ON failures (key);
"""


@dataclass(frozen=True)
class Run:
    """A run that ended well."""

    key: str
    specification: dict[str, Any]
    result: dict[str, Any]
    finished: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Failure:
    """A run that ended in an exception."""

    key: str
    specification: dict[str, Any]
    error: str
    traceback: str
    finished: str
    versions: dict[str, str]


def canonical(value: object) -> str:
    """JSON in which equal values have equal text; NaN and infinities are refused.

    Examples
    --------
    >>> canonical({"b": 1, "a": [0.5, None]})
    '{"a":[0.5,null],"b":1}'
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def key_of(specification: Mapping[str, Any]) -> str:
    """SHA-256 of a specification's canonical JSON."""
    return hashlib.sha256(canonical(specification).encode()).hexdigest()


class Store:
    """A file of runs; made if it is not there.

    Parameters
    ----------
    path : Path or str
        Its folder is made too.
    packages : iterable of str
        Whose versions are kept with every run, beside those that always are.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/runs.sqlite") as store:
    ...     print(store.add({"seed": 0}, {"accuracy": 0.9}), store.add({"seed": 0}, {}))
    ...     print(store.missing([{"seed": 0}, {"seed": 1}]))
    True False
    [{'seed': 1}]
    """

    def __init__(self, path: Path | str, packages: Iterable[str] = ()) -> None:
        self.path = Path(path)
        self._versions = canonical(versions(packages))
        with self._one_line():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Transactions are begun and ended by hand.
            self._file = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self._file.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def add(
        self,
        specification: Mapping[str, Any],
        result: Mapping[str, Any],
        versions: Mapping[str, str] | None = None,
    ) -> bool:
        """Keep a result for good; False, and nothing changes, if there is one already.

        Parameters
        ----------
        specification : mapping
            Plain JSON; all that the result depends on.
        result : mapping
            Plain JSON.
        versions : mapping, optional
            What it was made with, if not with what is installed here.
        """
        made_with = self._versions if versions is None else canonical(versions)
        row = (key_of(specification), canonical(specification), canonical(result), now(), made_with)
        with self._transaction():
            return self._insert(row)

    def add_all(self, runs: Iterable[Mapping[str, Any]]) -> int:
        """Keep the results of another file, all or none; how many are new.

        One transaction waits for the disk once, where thousands take a minute.

        Parameters
        ----------
        runs : iterable of mappings
            Each with "specification", "result" and "versions".
        """
        rows = [
            (
                key_of(run["specification"]),
                *map(canonical, (run["specification"], run["result"])),
                now(),
                canonical(run["versions"]),
            )
            for run in runs
        ]
        with self._transaction():
            return sum(map(self._insert, rows))

    def _insert(self, row: tuple[str, ...]) -> bool:
        """Whether the run was not there."""
        done = self._file.execute(
            "INSERT INTO runs VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING", row
        )
        return done.rowcount == 1

    def add_failure(self, specification: Mapping[str, Any], error: str, traceback: str) -> None:
        """Keep a failure, beside earlier ones of the same run.

        Parameters
        ----------
        specification : mapping
            Plain JSON.
        error : str
            One line.
        traceback : str
        """
        row = (key_of(specification), canonical(specification), error, traceback, now())
        with self._transaction():
            self._file.execute(
                "INSERT INTO failures (key, specification, error, traceback, finished, versions)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (*row, self._versions),
            )

    def missing(
        self, plan: Iterable[Mapping[str, Any]], *, retry: bool = False
    ) -> list[dict[str, Any]]:
        """Those specifications of a plan that have no result, in the plan's order.

        Parameters
        ----------
        plan : iterable of mappings
        retry : bool
            Whether those that failed are missing too.
        """
        known = {key for (key,) in self._rows("SELECT key FROM runs")}
        if not retry:
            known |= {key for (key,) in self._rows("SELECT DISTINCT key FROM failures")}
        return [dict(each) for each in plan if key_of(each) not in known]

    def runs(self, plan: Iterable[Mapping[str, Any]] | None = None) -> list[Run]:
        """Finished runs in the order of the plan, or all of them in the order they were written.

        Parameters
        ----------
        plan : iterable of mappings, optional
        """
        columns = "SELECT key, specification, result, finished, versions FROM runs"
        if plan is None:
            return [_run(row) for row in self._rows(f"{columns} ORDER BY rowid")]
        found = (self._rows(f"{columns} WHERE key = ?", key_of(each)) for each in plan)
        return [_run(row) for rows in found for row in rows]

    def failures(self, plan: Iterable[Mapping[str, Any]]) -> list[Failure]:
        """The latest failure of each run of a plan that has one and no result.

        Parameters
        ----------
        plan : iterable of mappings
        """
        latest = (
            "SELECT key, specification, error, traceback, finished, versions FROM failures"
            " WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.key = ?1)"
            " ORDER BY number DESC LIMIT 1"
        )
        found = (self._rows(latest, key_of(each)) for each in plan)
        return [_failure(row) for rows in found for row in rows]

    def _rows(self, query: str, *arguments: Any) -> list[Any]:
        with self._one_line():
            return self._file.execute(query, arguments).fetchall()

    def _prepare(self) -> None:
        """Refuse a file that is another program's or another version's; make the tables."""
        with self._transaction():
            (owner,) = self._file.execute("PRAGMA application_id").fetchone()
            (version,) = self._file.execute("PRAGMA user_version").fetchone()
            (tables,) = self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not tables and not owner:
                for statement in TABLES.split(";")[:-1]:
                    self._file.execute(statement)
                self._file.execute(f"PRAGMA application_id = {APPLICATION}")
                self._file.execute(f"PRAGMA user_version = {VERSION}")
            elif owner != APPLICATION:
                raise BadInput(f"{self.path} is another program's database; name another file")
            elif version != VERSION:
                raise BadInput(
                    f"{self.path} has format {version}, this hitrate knows {VERSION}; "
                    "name another file, or use the hitrate that wrote it"
                )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of it or nothing, while no one else writes."""
        with self._one_line():
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _one_line(self) -> Iterator[None]:
        """What SQLite or the disk complains of, in a line that names the file."""
        try:
            yield
        except OSError as error:
            raise BadInput(f"{self.path}: cannot be used: {error.strerror or error}") from error
        except sqlite3.OperationalError as error:
            raise BadInput(f"{self.path}: cannot be used: {error}") from error
        except sqlite3.DatabaseError as error:
            raise BadInput(
                f"{self.path} is damaged or no file of runs ({error}); "
                "move it away to start anew, or name another file"
            ) from error


def _run(row: Any) -> Run:
    key, specification, result, finished, made_with = row
    return Run(key, json.loads(specification), json.loads(result), finished, json.loads(made_with))


def _failure(row: Any) -> Failure:
    key, specification, error, traceback, finished, made_with = row
    return Failure(
        key, json.loads(specification), error, traceback, finished, json.loads(made_with)
    )
