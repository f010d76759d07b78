"""The data sets of the scikit-learn study: EXACT's ten tables, and sets of the 121 of UCI.

Read from the folder that HITRATE_DATA names, by default ../shared/data beside the repository.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

ROOT = Path(__file__).resolve().parents[1]
EXACT = (
    "adult",
    "annealing",
    "audit-risk",
    "balance-scale",
    "breast-cancer-wisconsin",
    "car",
    "cylinder-bands",
    "dry-bean",
    "mice-protein",
    "wine",
)

# Named before any of their results was seen: in alphabetical order the first 30 of the 121 with 200
# to 5000 rows, at most 100 features and 10 classes, that are none of the ten above by another name
# and whose published test rows are on the scale of their training rows.
UCI = (
    "abalone",
    "bank",
    "blood",
    "breast-cancer",
    "breast-cancer-wisc",
    "cardiotocography-10clases",
    "cardiotocography-3clases",
    "chess-krvkp",
    "congressional-voting",
    "conn-bench-sonar-mines-rocks",
    "contrac",
    "credit-approval",
    "dermatology",
    "ecoli",
    "energy-y1",
    "energy-y2",
    "glass",
    "haberman-survival",
    "heart-cleveland",
    "heart-hungarian",
    "heart-va",
    "ilpd-indian-liver",
    "ionosphere",
    "led-display",
    "low-res-spect",
    "mammographic",
    "molec-biol-splice",
    "oocytes_merluccius_nucleus_4d",
    "oocytes_merluccius_states_2f",
    "oocytes_trisopterus_nucleus_2f",
)


def folder() -> Path:
    """Where the tables are."""
    data = Path(os.environ.get("HITRATE_DATA", ROOT.parent / "shared" / "data")) / "tabular"
    if not data.is_dir():
        raise FileNotFoundError(f"no data sets: {data} is not a folder (set HITRATE_DATA)")
    return data


def uci(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All rows of one of the 121 sets, standardised; a constant feature becomes 0."""
    where = folder() / "uci121" / name
    x = np.loadtxt(where / f"{name}_py.dat.gz", delimiter=",", ndmin=2)
    y = np.loadtxt(where / "labels_py.dat.gz", dtype=np.int64)
    spread = x.std(0)
    return (x - x.mean(0)) / np.where(spread > 1e-12, spread, 1.0), y


def exact(name: str) -> tuple[pd.DataFrame, pd.Series, int | None]:
    """Raw features and classes of one of the ten, and the length of its training part if fixed."""
    where = folder() / "exact" / name
    if name == "adult":
        parts = [
            pd.read_csv(
                where / f"adult.{part}.gz",
                header=None,
                skiprows=skip,
                sep=r",\s*",
                engine="python",
                na_values="?",
            )
            for part, skip in (("data", 0), ("test", 1))
        ]
        table = pd.concat(parts, ignore_index=True)
        return table.iloc[:, :-1], table.iloc[:, -1].str.rstrip("."), len(parts[0])
    if name == "annealing":
        # "?" is a value here: the attribute does not apply.
        parts = [
            pd.read_csv(where / f"anneal.{part}", header=None, keep_default_na=False)
            for part in ("data", "test")
        ]
        table = pd.concat(parts, ignore_index=True)
        return table.iloc[:, :-1], table.iloc[:, -1].astype(str), len(parts[0])
    if name == "audit-risk":
        table = pd.read_csv(where / "audit_risk.csv")
        return table.drop(columns="Risk"), table["Risk"], None
    if name == "balance-scale":
        table = pd.read_csv(where / "balance-scale.data", header=None)
        return table.iloc[:, 1:], table[0], None
    if name == "breast-cancer-wisconsin":
        table = pd.read_csv(where / "wdbc.data", header=None)
        return table.iloc[:, 2:], table[1], None
    if name == "car":
        table = pd.read_csv(where / "car.data", header=None, dtype=str)
        return table.iloc[:, :-1], table.iloc[:, -1], None
    if name == "cylinder-bands":
        table = pd.read_csv(where / "bands.data", header=None, na_values="?", skipinitialspace=True)
        table = table.map(lambda cell: cell.strip().lower() if isinstance(cell, str) else cell)
        # Date, cylinder, customer and job say which row it is; press, unit and tank are names.
        names = [15, 16, 19]
        table[names] = table[names].astype("string")
        return table.iloc[:, 4:-1], table.iloc[:, -1], None
    if name == "dry-bean":
        text = pd.read_csv(where / "Dry_Bean_Dataset.arff.gz", header=None, sep="\0")[0]
        rows = text[text[text.str.strip().str.upper() == "@DATA"].index[0] + 1 :]
        table = pd.read_csv(io.StringIO("\n".join(rows)), header=None)
        return table.iloc[:, :-1], table.iloc[:, -1], None
    if name == "mice-protein":
        table = pd.read_csv(where / "Data_Cortex_Nuclear.csv.gz")
        # Genotype, treatment and behaviour spell the class.
        proteins = table.columns[table.columns.str.endswith("_N")]
        return table[proteins], table["class"], None
    if name == "wine":
        table = pd.read_csv(where / "wine.data", header=None)
        return table.iloc[:, 1:], table[0], None
    raise ValueError(f"exact({name!r}): not one of {', '.join(EXACT)}")


def prepared(x: pd.DataFrame, train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Section 5.2: fill with mean or most frequent, one-hot, standardise; statistics of `train`."""
    columns = []
    for _, column in x.items():
        seen = column.iloc[train].dropna()
        if pd.api.types.is_numeric_dtype(column):
            columns.append(
                column.fillna(seen.mean() if len(seen) else 0.0).to_numpy(float)[:, None]
            )
        else:
            filled = column.fillna(seen.mode()[0]).astype(str).to_numpy()
            kinds = np.unique(filled[train])
            columns.append((filled[:, None] == kinds).astype(float))
    table = np.hstack(columns)
    mean, spread = table[train].mean(0), table[train].std(0)
    table = (table - mean) / np.where(spread > 1e-12, spread, 1.0)
    table = table[:, spread > 1e-12]
    return table[train], table[test]


def split(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test part as in the paper: the published one, or 20% at random for testing."""
    x, y, fixed = exact(name)
    rows = np.arange(len(x))
    if fixed is not None:
        train, test = rows[:fixed], rows[fixed:]
    else:
        train, test = train_test_split(rows, test_size=0.2, random_state=seed)
    labels = y.to_numpy().astype(str)
    return *prepared(x, train, test), labels[train], labels[test]
