"""Tables and the picture of EXACT's Figure 7, from the runs of `cost`."""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.studies.exact.cost import shapes_of

if TYPE_CHECKING:
    from hitrate_lab.studies.study_file import Study

Runs = Iterable[tuple[dict[str, Any], dict[str, Any]]]
Units = tuple[tuple[float, str], ...]
# O(S C^2) in operations and memory, section 6.3: powers of C and of S.
PAPER = {"C": 2, "S": 1}
QUANTITIES = {"time": "ms", "memory": "bytes"}
TIMES: Units = ((1e3, "s"), (1.0, "ms"), (1e-3, "µs"), (1e-6, "ns"))
SIZES: Units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


class Costs:
    """Results by method, C and S, and the two ways through them that the figure shows.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """

    def __init__(self, study: Study, runs: Runs) -> None:
        self.runs = list(runs)
        self.names = [method.name for method in study.methods]
        shapes = [shape[1:] for shape in shapes_of(study)]
        # The S that most numbers of classes have, and the C that most sample sizes have.
        ((self.samples, _),) = Counter(s for _, s in shapes).most_common(1)
        ((self.classes, _),) = Counter(c for c, _ in shapes).most_common(1)
        self.along = {
            "C": sorted(c for c, s in shapes if s == self.samples),
            "S": sorted(s for c, s in shapes if c == self.classes),
        }
        self.losses = {spec["method"]: spec["loss"] for spec, _ in self.runs}
        self.sampled = {spec["method"] for spec, _ in self.runs if spec["samples"]}
        self._results: dict[tuple[str, int, int | None], list[dict[str, Any]]] = {}
        for spec, result in self.runs:
            key = (spec["method"], spec["classes"], spec["samples"])
            self._results.setdefault(key, []).append(result)

    def at(self, name: str, classes: int, samples: int) -> list[dict[str, Any]]:
        """Results of all seeds; those of a method without samples are the same for any S."""
        return self._results.get((name, classes, samples if name in self.sampled else None), [])

    def points(self, name: str, key: str, over: str) -> list[tuple[float, float]]:
        """Medians over seeds for each C, or each S; without what was too large for the memory."""
        found = []
        for x in self.along[over]:
            results = self.at(name, *((x, self.samples) if over == "C" else (self.classes, x)))
            if results and not any(result.get("out_of_memory") for result in results):
                found.append((float(x), statistics.median(result[key] for result in results)))
        return found

    def cell(self, name: str, classes: int, samples: int, key: str, units: Units) -> str:
        """A median over seeds, and in brackets between what rounds lay; or why there is none."""
        results = self.at(name, classes, samples)
        if not results:
            return "-"
        needs = [result["needs_bytes"] for result in results if result.get("out_of_memory")]
        if needs:
            return f"out of memory: needs {_quantity(max(needs), SIZES)}"
        middle = statistics.median(result[key] for result in results)
        size, unit = _unit(middle, units)
        shown = f"{_three(middle / size)}{unit}"
        if f"{key}_quartiles" not in results[0]:
            return shown
        low = min(result[f"{key}_quartiles"][0] for result in results)
        high = max(result[f"{key}_quartiles"][1] for result in results)
        return f"{shown} ({_three(low / size)} to {_three(high / size)})"

    def machine(self) -> str:
        """Where it was measured."""
        spec, result = self.runs[0]
        if spec["device"] == "cuda":
            return f"{result['processor']}, float32"
        count = result["threads"]
        return f"{result['processor']}, {count} thread{'s' * (count > 1)}, float32"


def tables(study: Study, runs: Runs) -> list[dict[str, Any]]:
    """Growth, time, its ratio to cross entropy's, and memory, for the report.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    costs = Costs(study, runs)
    if not costs.runs:
        return []
    time = f"Forward and backward, {costs.machine()}. {_batches(costs)} {_rounds(costs)}"
    ratio = (
        "Per element, round by round in one process. Cross entropy against itself shows how much "
        "of a ratio is noise."
    )
    is_gpu = costs.runs[0][0]["device"] == "cuda"
    counted = "torch's allocator counts it" if is_gpu else "torch's profiler records it"
    memory = (
        "Peak beyond logits and targets, with the gradient, divided by the rows, as "
        f"{counted}. It is the same in all rounds."
    )
    return [
        _growth(costs),
        _table(costs, "Time per element", "ms", TIMES, time),
        _table(costs, "Time as a multiple of cross entropy's", "time_ratio", (), ratio),
        _table(costs, "Memory per element", "bytes", SIZES, memory),
    ]


def growth_of(points: Sequence[tuple[float, float]]) -> float | None:
    """The power with which y grows with x: the slope of its logarithm over the upper half.

    Examples
    --------
    >>> round(growth_of([(x, 3 * x**2 + 5) for x in (1, 2, 4, 64, 128, 256)]), 3)
    2.0
    """
    upper = _upper(sorted(points))
    if len(upper) < 2:
        return None
    x, y = np.log(np.array(upper)).T
    return float(np.polyfit(x, y, 1)[0])


def figure(study: Study, runs: Runs) -> str:
    """Figure 7 as the text of an SVG file: time and memory, over classes and over samples.

    Methods without samples are level lines over these, with marks at their ends only.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    from hitrate_lab.pictures.growth import STYLE, Panel, growth
    from hitrate_lab.pictures.standalone import standalone

    costs = Costs(study, runs)
    axes = {"C": "number of classes C", "S": "sample size S"}
    fixed = {"C": f"S = {costs.samples}", "S": f"C = {costs.classes}"}
    panels = [
        Panel(
            f"{what} per element, {fixed[over]}",
            axis,
            {name: _drawn(costs, name, key, over) for name in costs.names},
            functools.partial(_quantity, units=units),
        )
        for what, key, units in (("Time", "ms", TIMES), ("Memory", "bytes", SIZES))
        for over, axis in axes.items()
    ]
    title = f"Time and memory of losses, {costs.machine()}" if costs.runs else study.title
    return standalone(growth(panels, study.name, title, _words(costs)), STYLE)


def _drawn(costs: Costs, name: str, key: str, over: str) -> list[tuple[float, float]]:
    points = costs.points(name, key, over)
    return points if over == "C" or name in costs.sampled else [*points[:1], *points[-1:]]


def _words(costs: Costs) -> str:
    """The picture in words: where its lines over C end."""
    ends = []
    for name in costs.names:
        times, sizes = (costs.points(name, key, "C") for key in ("ms", "bytes"))
        if times:
            (c, time), (_, size) = times[-1], sizes[-1]
            cost = f"{_quantity(time, TIMES)} and {_quantity(size, SIZES)}"
            ends.append(f"{name} takes {cost} per element at C = {c:g}")
    return "; ".join(ends) + "." if ends else "There are no runs yet."


def _growth(costs: Costs) -> dict[str, Any]:
    """How time and memory grow, beside what the paper says of its algorithm."""
    columns = [(what, key, over) for over in PAPER for what, key in QUANTITIES.items()]
    head = ["method"]
    for what, _, over in columns:
        head += [f"{what}, power of {over}", "paper"]
    rows = []
    for name in costs.names:
        row = [name]
        for _, key, over in columns:
            depends = over == "C" or name in costs.sampled
            power = growth_of(costs.points(name, key, over)) if depends else None
            is_paper = costs.losses.get(name, {}).get("method") == "genz" and power is not None
            # A sum with 0 takes the sign of a 0 away.
            row.append("-" if power is None else f"{round(power, 2) + 0.0:.2f}")
            row.append(str(PAPER[over]) if is_paper else "-")
        rows.append(row)
    ranges = [f"{over} = {_upper(along)[0]} to {along[-1]}" for over, along in costs.along.items()]
    text = (
        f"Slopes of logarithms over the upper half of each range, {' and '.join(ranges)}. The "
        "paper's algorithm is O(S C²) in operations and memory, section 6.3."
    )
    return {"title": "Growth", "head": head, "rows": rows, "text": text}


def _table(costs: Costs, title: str, key: str, units: Units, text: str) -> dict[str, Any]:
    """All C, then all S; what does not depend on S stands once."""
    rows = [
        [f"C = {c}", *(costs.cell(name, c, costs.samples, key, units) for name in costs.names)]
        for c in costs.along["C"]
    ]
    for s in costs.along["S"]:
        if s != costs.samples and costs.sampled:
            cells = (
                costs.cell(name, costs.classes, s, key, units) if name in costs.sampled else ""
                for name in costs.names
            )
            rows.append([f"C = {costs.classes}, S = {s}", *cells])
    head = [f"S = {costs.samples}, or as said", *costs.names]
    return {"title": title, "head": head, "rows": rows, "text": text}


def _batches(costs: Costs) -> str:
    """How many rows were measured at once."""
    rows: dict[str, set[int]] = {}
    for spec, _ in costs.runs:
        rows.setdefault(spec["method"], set()).add(spec["rows"])
    most = max(spec["unit_rows"] for spec, _ in costs.runs)
    fewer = [f"{name} {min(each)} or more" for name, each in rows.items() if min(each) < most]
    shorter = f", fewer where a call would be too long: {', '.join(fewer)}" if fewer else ""
    return f"Batches of {most} rows{shorter}."


def _rounds(costs: Costs) -> str:
    """What a number is the median of."""
    seeds = {name: set[int]() for name in costs.names}
    for spec, _ in costs.runs:
        seeds[spec["method"]].add(spec["seed"])
    least, most = (pick(map(len, seeds.values())) for pick in (min, max))
    rounds = [result["rounds"] for _, result in costs.runs if "rounds" in result]
    of = f"{min(rounds, default=0)} to {max(rounds, default=0)} rounds"
    if most == 1:
        return f"Medians of {of}, in brackets quartiles."
    several = f"{least} or {most}" if least < most else f"{most}"
    return (
        f"Medians of {several} runs of {of} each; in brackets the lowest first and the highest "
        "third quartile of a run."
    )


def _upper(values: Sequence[Any]) -> Sequence[Any]:
    return values[len(values) // 2 :]


def _quantity(value: float, units: Units) -> str:
    """Three digits and a unit.

    >>> _quantity(0.00546, TIMES), _quantity(8.4e6, SIZES), _quantity(3.0, ())
    ('5.46 µs', '8.4 MB', '3')
    """
    size, unit = _unit(value, units)
    return f"{_three(value / size)}{unit}"


def _unit(value: float, units: Units) -> tuple[float, str]:
    """The largest unit of which there is one or more."""
    for size, unit in units:
        # What three digits round up to one is one.
        if value >= size * (1 - 5e-4):
            return size, f" {unit}"
    return (units[-1][0], f" {units[-1][1]}") if units else (1.0, "")


def _three(value: float) -> str:
    """Three digits, and no exponent.

    >>> _three(0.0012345), _three(905.59), _three(655123.0), _three(2.0)
    ('0.00123', '906', '655,000', '2')
    """
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    shown = f"{round(value, digits):,.{max(digits, 0)}f}"
    return shown.rstrip("0").rstrip(".") if digits > 0 else shown
