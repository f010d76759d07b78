"""The tables that are published: what is known of each before it is read, and where its files are.

A table in files of its own kind is an entry of `TABLE_SETS` here. One in the form of Klambauer et
al., numbers with four splits, is a line of `uci121.tsv`. All else asks these.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hitrate_lab.bad_input import BadInput, listed, quoted

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
# Klambauer et al.'s files, one by one, at a commit that cannot change.
PY_FILES = (
    "https://raw.githubusercontent.com/hadijomaa/dataset2vec/"
    "eb1d090627365d966c10c8fbd34817425e81e256/datasets"
)
# UCI has this set as an Excel file only; these are its cells as text.
MICE = (
    "https://raw.githubusercontent.com/haziqj/rec-jrss-reply/"
    "9e635528eafe95266df2a97fceae045f7124cb01/Data_Cortex_Nuclear.csv"
)


@dataclass(frozen=True)
class Source:
    """An address, and which file of the archive there is meant, if it is an archive."""

    url: str
    member: str | None = None


@dataclass(frozen=True, kw_only=True)
class TableSet:
    """What is known of a table.

    Parameters
    ----------
    rows, test_rows, features, classes : int
        `test_rows` is 0 where there is no official test part.
    files : mapping of Source
        By their names in a data folder, where those with .gz are packed. Of a table in files of its
        own kind the second, if there is one, is the official test part; in the other form the
        features come first.
    data, rest : str
        Digests of content, see `content_digest`: `data` of the features, or of all files of a table
        in files of its own kind; `rest` of the files beside the features. Empty: not known.
    notes : tuple of str
        What is unusual, one line each.
    target : int or str
        The column that has the class.
    left_out : tuple
        Columns that name the row, or tell the class.
    header : bool
        Whether a file begins with names of columns.
    """

    rows: int
    features: int
    classes: int
    files: Mapping[str, Source]
    data: str
    rest: str = ""
    test_rows: int = 0
    notes: tuple[str, ...] = ()
    target: int | str = -1
    left_out: tuple[int | str, ...] = ()
    header: bool = False


def _uci121() -> dict[str, TableSet]:
    """The sets of `uci121.tsv`."""
    found = {}
    with Path(__file__).with_name("uci121.tsv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            name = row["name"]
            parts = (name, "labels", "folds", "validation_folds")
            found[f"uci121/{name}"] = TableSet(
                rows=int(row["rows"]),
                test_rows=int(row["test_rows"]),
                features=int(row["features"]),
                classes=int(row["classes"]),
                files={
                    f"{part}_py.dat.gz": Source(f"{PY_FILES}/{name}/{part}_py.dat")
                    for part in parts
                },
                data=row["data"],
                rest=row["rest"],
                notes=(row["note"],) if row["note"] else (),
            )
    return found


# By collection and name.
TABLE_SETS: dict[str, TableSet] = {
    "exact/adult": TableSet(
        rows=48842,
        test_rows=16281,
        features=14,
        classes=2,
        data="cc3a5da226de765033b989dc09b0dfe8c58a6beeffa337e92682ad14cfc90472",
        files={
            "adult.data.gz": Source(f"{UCI}/adult/adult.data"),
            "adult.test.gz": Source(f"{UCI}/adult/adult.test"),
        },
    ),
    "exact/annealing": TableSet(
        rows=898,
        test_rows=100,
        features=38,
        classes=5,
        data="cf39ec49f5c55c3b3a6f070cc1d7767bf20d609cc4d3419d0716bcd1f3d2cfc5",
        files={
            "anneal.data": Source(f"{UCI}/annealing/anneal.data"),
            "anneal.test": Source(f"{UCI}/annealing/anneal.test"),
        },
        notes=("most cells are missing: as a level of its own, missing tells the class",),
    ),
    "exact/audit-risk": TableSet(
        rows=776,
        features=26,
        classes=2,
        data="11e483f0d70770d6026b1b62a6050f453f407a94718a14b745db2130f344292a",
        files={
            "audit_risk.csv": Source(f"{UCI}/00475/audit_data.zip", "audit_data/audit_risk.csv"),
        },
        target="Risk",
        header=True,
        notes=("LOCATION_ID is text in three rows, and so a category", "13 rows occur twice"),
    ),
    "exact/balance-scale": TableSet(
        rows=625,
        features=4,
        classes=3,
        data="0751cfec77c08240054343ab9b33e762f91a663774971802968834bd8ecf363e",
        files={
            "balance-scale.data": Source(f"{UCI}/balance-scale/balance-scale.data"),
        },
        target=0,
    ),
    "exact/breast-cancer-wisconsin": TableSet(
        rows=569,
        features=30,
        classes=2,
        data="611722a53919609979dc6335bac30e9434d9ce8aeb96245ac68282df9bb3e781",
        files={
            "wdbc.data": Source(f"{UCI}/breast-cancer-wisconsin/wdbc.data"),
        },
        target=1,
        left_out=(0,),
    ),
    "exact/car": TableSet(
        rows=1728,
        features=6,
        classes=4,
        data="85ab0ab49373d68d53041276376626a3248105967ff9e262751b9ffcc507e748",
        files={
            "car.data": Source(f"{UCI}/car/car.data"),
        },
    ),
    "exact/cylinder-bands": TableSet(
        rows=540,
        features=35,
        classes=2,
        data="92eddddd7dfc40d2e4c481c9dacfdca0a8690fdd57ddfff06c71b81f39289d4b",
        files={
            "bands.data": Source(f"{UCI}/cylinder-bands/bands.data"),
        },
        left_out=(0, 1, 2, 3),
        notes=(
            "date, cylinder, customer and job are left out: they name the row",
            "press, unit and tank are numbers in the file, and taken as such",
        ),
    ),
    "exact/dry-bean": TableSet(
        rows=13611,
        features=16,
        classes=7,
        data="b875ca02d7b2e95d730e815799c29d56ba522b1621388c446ef256b5727c949e",
        files={
            "Dry_Bean_Dataset.arff.gz": Source(
                f"{UCI}/00602/DryBeanDataset.zip", "DryBeanDataset/Dry_Bean_Dataset.arff"
            ),
        },
        notes=("68 rows occur twice",),
    ),
    "exact/mice-protein": TableSet(
        rows=1080,
        features=77,
        classes=8,
        data="20c3cca7417692b9cffd7c3f74a7bed968f0279be15bb349ef6a89844a4dbabf",
        files={
            "Data_Cortex_Nuclear.csv.gz": Source(MICE),
        },
        target="class",
        left_out=("MouseID", "Genotype", "Treatment", "Behavior"),
        header=True,
        notes=(
            "genotype, treatment and behaviour are left out: they spell the class",
            "15 rows of each mouse are on both sides of the split",
        ),
    ),
    "exact/wine": TableSet(
        rows=178,
        features=13,
        classes=3,
        data="90a5f42664ae2bcecb9b4063b064ebe6f6de01d5e69f81642c66e822f974c8a0",
        files={
            "wine.data": Source(f"{UCI}/wine/wine.data"),
        },
        target=0,
    ),
    **_uci121(),
}


def collections() -> tuple[str, ...]:
    """Names of all collections."""
    return tuple(dict.fromkeys(whole.split("/")[0] for whole in TABLE_SETS))


def is_published(whole: str) -> bool:
    """Whether a data set's name is one of a collection, rather than built in or a file."""
    return whole.partition("/")[0] in collections() and "/" in whole


def names_in(collection: str) -> list[str]:
    """Names of a collection's sets."""
    if collection not in collections():
        raise BadInput(f"no collection {collection!r}: there are {listed(collections())}")
    return [each.split("/")[1] for each in TABLE_SETS if each.startswith(f"{collection}/")]


def table_set(whole: str) -> TableSet:
    """A table by its whole name, such as "exact/car"; BadInput if there is none of that name."""
    if whole not in TABLE_SETS:
        collection, _, name = whole.partition("/")
        known = names_in(collection)
        raise BadInput(f"no set {quoted(name)} in {collection}: it has {listed(known)}")
    return TABLE_SETS[whole]
