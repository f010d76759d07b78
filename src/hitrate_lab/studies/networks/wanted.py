"""What was trained for beside accuracy: tables of balanced accuracy, and of top-k accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.studies.networks.counted import balanced
from hitrate_lab.studies.networks.differences import in_points, place_of, welch
from hitrate_lab.studies.networks.settings import BALANCED_MEASURE, settings_of

if TYPE_CHECKING:
    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study

Floats = NDArray[np.float64]
# Results of a method, in the order of its seeds.
Results = Sequence[Mapping[str, Any]]
# Classes by their rows in training, as in Liu et al., Large-Scale Long-Tailed Recognition in an
# Open World. 2019: more than 100, 20 to 100, fewer than 20.
RARE, FREQUENT = 20, 100
PARTS = ("frequent", "between", "rare")
ADJUSTED = "{}, adjusted afterwards"


def tables(study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Those that the study's settings ask for.

    Parameters
    ----------
    study : Study
    runs : sequence of Run
    """
    settings = settings_of(study)
    if not runs:
        return []
    found = []
    if settings.imbalance > 1:
        found.append(_of_balance(study, runs, settings.beside))
    if settings.k > 1:
        found.append(_of_top_k(study, runs, settings.beside, settings.k))
    return found


def _of_balance(study: Study, runs: Sequence[Run], beside: Sequence[str]) -> dict[str, Any]:
    rows = []
    for (data_set, name), methods in _results(study, runs).items():
        lines = {method: (results, "right") for method, results in methods.items()}
        plain = {
            each.name for each in study.methods if each.settings.get("balance", "none") == "none"
        }
        for method, results in methods.items():
            # A loss that is told of the classes has adjusted its logits itself.
            if method in plain:
                lines[ADJUSTED.format(method)] = results, "right_adjusted"
        paper = {
            each.name: each.paper.get(BALANCED_MEASURE, {}).get(data_set) for each in study.methods
        }
        shares = {
            method: np.array([balanced(each["by_class"], key) for each in results])
            for method, (results, key) in lines.items()
        }
        for method, (results, key) in lines.items():
            parts = [of_parts(each["by_class"], key) for each in results]
            trained = np.mean([each["train_accuracy"] for each in results])
            rows.append(
                [
                    *(name, method, str(len(results)), mean_of(shares[method])),
                    *(_over(shares, method, base) for base in beside),
                    *(_percent(np.mean([each[part] for each in parts])) for part in PARTS),
                    _percent(trained) if key == "right" else "",
                    _printed(paper.get(method)),
                ]
            )
    return {
        "title": "Balanced accuracy, %",
        "head": [
            *("", "method", "n", "of all classes"),
            *(f"over {base}" for base in beside),
            *PARTS,
            *("training accuracy", "published"),
        ],
        "rows": rows,
        "text": (
            "Means over n seeds ± standard deviation on the same test rows; differences in points "
            "with Welch's interval of 95 % over seeds, not corrected for the number of "
            f"comparisons. Frequent classes have more than {FREQUENT} training rows, rare ones "
            f"fewer than {RARE}. Adjusted afterwards: the same networks, the logarithm of each "
            "class's share taken off their logits."
        ),
    }


def of_parts(counted: Mapping[str, Sequence[int]], key: str = "right") -> dict[str, float]:
    """Balanced accuracy of frequent and rare classes and those between.

    Parameters
    ----------
    counted : mapping
        As from `by_class`.
    key : str

    Examples
    --------
    >>> counted = {"learnt": [101, 100, 20, 1], "rows": [2, 2, 2, 2], "right": [2, 1, 2, 0]}
    >>> of_parts(counted)
    {'frequent': 1.0, 'between': 0.75, 'rare': 0.0}
    """
    learnt = np.array(counted["learnt"])
    parts = learnt > FREQUENT, (learnt >= RARE) & (learnt <= FREQUENT), learnt < RARE
    found = {}
    for part, places in zip(PARTS, parts, strict=True):
        some = {each: np.array(counted[each])[places].tolist() for each in ("rows", key)}
        found[part] = balanced(some, key)
    return found


def _of_top_k(study: Study, runs: Sequence[Run], beside: Sequence[str], k: int) -> dict[str, Any]:
    kinds = {"top-1": "test_accuracy", f"top-{k}": "top_k_accuracy"}
    rows = []
    for (_, name), methods in _results(study, runs).items():
        of_kinds = [
            {
                method: np.array([each[key] for each in results])
                for method, results in methods.items()
            }
            for key in kinds.values()
        ]
        for method, results in methods.items():
            row = [name, method, str(len(results))]
            for accuracy in of_kinds:
                row.append(mean_of(accuracy[method]))
                row += [_over(accuracy, method, base) for base in beside]
            trained = np.mean([each["train_accuracy"] for each in results])
            rows.append([*row, _percent(trained)])
    over = [f"over {base}" for base in beside]
    columns = [column for kind in kinds for column in (f"{kind}, %", *over)]
    return {
        "title": f"Top-1 and top-{k} accuracy",
        "head": ["", "method", "n", *columns, "top-1 in training, %"],
        "rows": rows,
        "text": (
            "Means over n seeds ± standard deviation on the same rows; differences in points with "
            "Welch's interval of 95 % over seeds, not corrected for the number of comparisons."
        ),
    }


def _results(study: Study, runs: Sequence[Run]) -> dict[tuple[str, str], dict[str, Results]]:
    """Results of each method, by data set and what a cell is called."""
    found: dict[tuple[str, str], dict[str, dict[int, Mapping[str, Any]]]] = {}
    for run in runs:
        spec = run.specification
        place = spec["data_set"], place_of(spec["data_set"], spec["model"], spec["noise"])
        by_seed = found.setdefault(place, {}).setdefault(spec["method"], {})
        by_seed[spec["seed"]] = run.result
    order = [method.name for method in study.methods]
    return {
        place: {
            name: [methods[name][seed] for seed in sorted(methods[name])]
            for name in order
            if name in methods
        }
        for place, methods in found.items()
    }


def mean_of(shares: Floats) -> str:
    """In percent, with the standard deviation where there is one.

    >>> mean_of(np.array([0.5, 0.52])), mean_of(np.array([0.5]))
    ('51.00 ± 1.41', '50.00')
    """
    spread = f" ± {100 * shares.std(ddof=1):.2f}" if len(shares) > 1 else ""
    return f"{100 * shares.mean():.2f}{spread}"


def _over(shares: Mapping[str, Floats], method: str, base: str) -> str:
    if method == base or base not in shares:
        return ""
    found = welch(shares[method], shares[base])
    return "" if found is None else in_points(found)


def _percent(share: Any) -> str:
    return "" if np.isnan(share) else f"{100 * share:.1f}"


def _printed(paper: tuple[float, float | None] | None) -> str:
    return "" if paper is None else f"{paper[0]:.1f}"
