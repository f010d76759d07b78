"""A study's file: what to run, how, and the numbers of the paper to print beside ours."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hitrate_lab.bad_input import BadInput, listed, quoted
from hitrate_lab.studies.fields import Fields
from hitrate_lab.studies.registry import PROTOCOLS, protocol_named

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
FOLDER = "studies"


@dataclass(frozen=True)
class StudyMethod:
    """One column of the report.

    A `variant` stands beside the others, and is not counted when the best is sought. `settings` are
    the protocol's own. `paper` has the mean and, where it is printed, the standard deviation, by
    measure and data set.
    """

    name: str
    seeds: tuple[int, ...]
    settings: dict[str, Any]
    paper: dict[str, dict[str, tuple[float, float | None]]]
    variant: bool = False


@dataclass(frozen=True)
class Study:
    """What a study's file says.

    `measures` are the tables of the report, by the name that the protocol gives their numbers, with
    their titles. `differences` say where the protocol is not the paper's. `settings` are the
    protocol's own.
    """

    path: Path
    name: str
    title: str
    reproduces: str
    protocol: str
    differences: tuple[str, ...]
    measures: dict[str, str]
    data_sets: tuple[str, ...]
    methods: tuple[StudyMethod, ...]
    settings: dict[str, Any]

    def wrong(self, key: str, what: str) -> NoReturn:
        """Complain of a field of the file."""
        Fields(self.path, {}).wrong(key, what)

    def fields(self, of: StudyMethod | None = None) -> Fields:
        """The protocol's own settings, or those of a method, to be checked."""
        if of is None:
            return Fields(self.path, self.settings, "settings")
        return Fields(self.path, of.settings, f"methods[{of.name}]")


def read_study(path: Path | str) -> Study:
    """Read and check a study's file.

    Parameters
    ----------
    path : Path or str
        A TOML file.

    Raises
    ------
    BadInput
        With the file, the key, and what is wrong there.
    """
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: is not TOML: {error}") from error
    fields = Fields(path, content)
    name = fields.text("name")
    if not NAME.fullmatch(name) or name != path.stem:
        fields.wrong("name", f"needs to be that of the file, {path.stem!r}, not {quoted(name)}")
    measures = fields.table("measures")
    if not measures.keys():
        fields.wrong("measures", "needs one or more")
    data_sets = tuple(fields.texts("data_sets"))
    seeds = tuple(fields.seeds("seeds"))
    study = Study(
        path=path,
        name=name,
        title=fields.text("title"),
        reproduces=fields.text("reproduces"),
        protocol=fields.choice("protocol", PROTOCOLS),
        differences=tuple(fields.texts("differences", default=[])),
        measures={key: measures.text(key) for key in measures.keys()},
        data_sets=data_sets,
        methods=tuple(
            _method(table, seeds, data_sets, measures.keys()) for table in fields.tables("methods")
        ),
        settings=fields.taken("settings", dict, "a table", default={}),
    )
    fields.end()
    fields.unique("methods", [method.name for method in study.methods])
    protocol_named(study.protocol).check(study)
    return study


def _method(
    fields: Fields, seeds: tuple[int, ...], data_sets: Sequence[str], measures: Sequence[str]
) -> StudyMethod:
    """One of the tables [[methods]]; what is not known here is the protocol's."""
    name = fields.text("name")
    fields = fields.named(f"methods[{name}]")
    paper: dict[str, dict[str, tuple[float, float | None]]] = {}
    printed = fields.table("paper", default={})
    for measure in printed.keys():
        if measure not in measures:
            printed.wrong(measure, f"is no measure of this study: {listed(measures)}")
        column = printed.table(measure)
        paper[measure] = {}
        for data_set in column.keys():
            if data_set not in data_sets:
                column.wrong(data_set, "is no data set of this study")
            paper[measure][data_set] = column.mean_and_deviation(data_set)
    seeds = tuple(fields.seeds("seeds", default=list(seeds)))
    variant = fields.flag("variant", default=False)
    return StudyMethod(name, seeds, fields.rest(), paper, variant)


def folders() -> list[Path]:
    """Where studies are looked for: in this folder, and in the repository's own."""
    here = Path(FOLDER)
    own = Path(__file__).resolve().parents[3] / FOLDER
    every = [here] if here.resolve() == own else [here, own]
    return [folder for folder in every if folder.is_dir()]


def found_studies() -> list[Path]:
    """Files of the studies that have a name; where two have the same, the nearer one."""
    files: dict[str, Path] = {}
    for folder in reversed(folders()):
        files.update({path.stem: path for path in sorted(folder.glob("*.toml"))})
    return [files[name] for name in sorted(files)]


def find_study(name: str) -> Study:
    """A study by its name, or by the path of its file.

    Parameters
    ----------
    name : str
        What ends in .toml is a path.
    """
    if name.endswith(".toml"):
        return read_study(name)
    files = {path.stem: path for path in found_studies()}
    if name not in files:
        known = f"there are {listed(files)}" if files else "there is no folder studies here"
        raise BadInput(f"no study {quoted(name)}: {known}; or give the path of a .toml file")
    return read_study(files[name])
