"""Figure 7 of "EXACT: How to Train Your Accuracy": what the loss costs in time and memory.

One run is a number of classes C, a sample size S, a method and a seed: forward and backward of a
loss on random logits, in turns with cross entropy in the same process. Numbers are per element,
that is per row of the batch. What would not fit into memory is a result that says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.studies.protocol import Cell, Protocol

if TYPE_CHECKING:
    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study, StudyMethod

SHAPE = re.compile(r"C=([1-9]\d*), S=([1-9]\d*)")
MEASURES = ("time_ratio", "memory_ratio")
DEVICES = ("cpu", "cuda")
METHODS = ("auto", "quadrature", "gridded", "genz", "monte_carlo")
SAMPLED = ("genz", "monte_carlo")
UNIT = "cross_entropy"
# Rows of the calls from which the need of a larger batch is told.
FEW = (2, 4)
# No method has as many buffers of S C^2 numbers: what fits so often need not be tried.
BUFFERS = 8


class ExactCost(Protocol):
    """Time and memory of losses, in turns with cross entropy."""

    name = "exact cost"
    version = 1

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        settings = _settings(study)
        for name in study.data_sets:
            if not (shape := SHAPE.fullmatch(name)) or int(shape[1]) < 2:
                study.wrong(
                    "data_sets", f"{name!r} is none of 'C=classes, S=samples', as 'C=32, S=16'"
                )
        for measure in study.measures:
            if measure not in MEASURES:
                study.wrong("measures", f"{measure!r} is none of {', '.join(MEASURES)}")
        for method in study.methods:
            _loss(study, method, settings["device"])

    def plan(self, study: Study) -> list[Specification]:
        """Specifications, seed by seed, one method after the other.

        A method without samples runs once for each number of classes, where that comes first.

        Parameters
        ----------
        study : Study
        """
        settings = _settings(study)
        work = settings.pop("work")
        shapes = shapes_of(study)
        first = {classes: name for name, classes, _ in reversed(shapes)}
        found = []
        for seed in sorted({seed for method in study.methods for seed in method.seeds}):
            for method in study.methods:
                loss = _loss(study, method, settings["device"])
                for name, classes, samples in shapes:
                    is_sampled = loss.get("method") in SAMPLED
                    if seed not in method.seeds or not (is_sampled or first[classes] == name):
                        continue
                    rows = settings["rows"]
                    if is_sampled:
                        rows = max(1, min(rows, int(work / (classes**2 * samples))))
                    found.append(
                        {
                            "study": study.name,
                            "protocol": self.signature,
                            "data_set": name,
                            "method": method.name,
                            "loss": loss,
                            "classes": classes,
                            "samples": samples if is_sampled else None,
                            **settings,
                            "rows": rows,
                            "unit_rows": settings["rows"],
                            "seed": seed,
                        }
                    )
        return found

    def check_machine(self, study: Study) -> None:
        """Complain of a machine that has not the study's device."""
        _check_device(_settings(study)["device"])

    def run(self, specification: Specification, context: Context) -> Result:
        """Measure a loss and cross entropy in turns: per element, and as ratios of one round.

        Parameters
        ----------
        specification : dict
            One of `plan`.
        context : Context
        """
        import torch

        _check_device(specification["device"])
        begun = time.perf_counter()
        need = _too_much(specification)
        found: dict[str, Any] = {}
        if need is None:
            try:
                found = _measured(specification)
            except torch.OutOfMemoryError:
                need = _need(specification)
        if need is not None:
            found = {"out_of_memory": True, "needs_bytes": need}
        is_gpu = specification["device"] == "cuda"
        return {
            **found,
            "threads": torch.get_num_threads(),
            "seconds": round(time.perf_counter() - begun, 3),
            "processor": torch.cuda.get_device_name() if is_gpu else processor(),
        }

    def cells(self, specification: Specification, result: Result) -> list[Cell]:
        """Ratios to cross entropy, for the report; it is the unit and has none."""
        if result.get("out_of_memory") or specification["loss"]["name"] == UNIT:
            return []
        place = (specification["data_set"], specification["method"])
        return [(measure, *place, result[measure]) for measure in MEASURES]

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Time, memory and how they grow, for the report."""
        from hitrate_lab.studies.exact.cost_tables import tables

        return tables(study, [(run.specification, run.result) for run in runs])

    def pictures(self, study: Study, runs: Sequence[Run]) -> dict[str, str]:
        """Figure 7 as SVG, by the name of its file.

        Parameters
        ----------
        study : Study
        runs : sequence of Run
            Those that are done.
        """
        from hitrate_lab.studies.exact.cost_tables import figure

        return {study.name: figure(study, [(run.specification, run.result) for run in runs])}


def shapes_of(study: Study) -> list[tuple[str, int, int]]:
    """Name, classes C and samples S of what other studies call data sets.

    Parameters
    ----------
    study : Study
    """
    matches = (SHAPE.fullmatch(name) for name in study.data_sets)
    return [(match[0], int(match[1]), int(match[2])) for match in matches if match]


def _measured(spec: dict[str, Any]) -> dict[str, Any]:
    from hitrate_lab.studies.exact.timing import median_and_quartiles, memory_of, take_turns

    device, rows = spec["device"], {"own": spec["rows"], "unit": spec["unit_rows"]}
    losses = {"own": spec["loss"], "unit": {"name": UNIT}}
    calls = {name: step_of(spec, losses[name], rows[name]) for name in losses}
    # Later calls find kernels compiled and tables made; a sampled method has no tables, and a
    # call of it may be long.
    (step_of(spec, spec["loss"], 1) if spec["samples"] else calls["own"])()
    calls["unit"]()
    peaks = {name: memory_of(call, device) / rows[name] for name, call in calls.items()}
    times = take_turns(
        calls, device, seconds=spec["seconds"], rounds=(spec["rounds"][0], spec["rounds"][1])
    )
    ms = {name: [1e3 * each / rows[name] for each in times[name]] for name in times}
    found: dict[str, Any] = {"rounds": len(ms["own"])}
    ratios = [own / unit for own, unit in zip(ms["own"], ms["unit"], strict=True)]
    for name, values in (("ms", ms["own"]), ("unit_ms", ms["unit"]), ("time_ratio", ratios)):
        found[name], found[f"{name}_quartiles"] = median_and_quartiles(values)
    found.update(bytes=peaks["own"], unit_bytes=peaks["unit"])
    found["memory_ratio"] = peaks["own"] / peaks["unit"]
    return found


def step_of(spec: dict[str, Any], loss: dict[str, str], rows: int) -> Callable[[], None]:
    """Forward and backward on random logits, as a training loop calls them.

    Parameters
    ----------
    spec : dict
        One of `plan`.
    loss : dict
        Which loss, as in `spec`.
    rows : int
        Of the batch.
    """
    import torch

    import hitrate

    # Made on the CPU: the same on all devices.
    source = torch.Generator().manual_seed(spec["seed"])
    classes, device = spec["classes"], spec["device"]
    logits = torch.randn(rows, classes, generator=source).to(device).requires_grad_()
    target = torch.randint(classes, (rows,), generator=source).to(device)

    def step() -> None:
        if loss["name"] == UNIT:
            value = torch.nn.functional.cross_entropy(logits, target)
        else:
            value = hitrate.exact_loss(
                logits,
                target,
                method=loss["method"],
                backend=loss["backend"],
                samples=spec["samples"] or 1,
            )
        value.backward()  # type: ignore[no-untyped-call]
        # So that its memory is part of each call's, and of none before it.
        logits.grad = None

    return step


def _too_much(spec: dict[str, Any]) -> int | None:
    """Bytes that a batch needs, if that is more than it may have; else None."""
    may = 1e9 * spec["memory_gb"]
    if BUFFERS * 4 * spec["rows"] * spec["classes"] ** 2 * (spec["samples"] or 1) <= may:
        return None
    need = _need(spec)
    return need if need > may else None


def _need(spec: dict[str, Any]) -> int:
    """Bytes that a batch needs: what few rows take, and for each further row the same again."""
    from hitrate_lab.studies.exact.timing import memory_of

    few, more = [memory_of(step_of(spec, spec["loss"], rows), spec["device"]) for rows in FEW]
    further: int = spec["rows"] - FEW[0]
    return few + further * (more - few) // (FEW[1] - FEW[0])


def _check_device(device: str) -> None:
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("device = 'cuda': this machine has no GPU that torch can use")


def _settings(study: Study) -> dict[str, Any]:
    """The table [settings], checked."""
    fields = study.fields()
    found: dict[str, Any] = {
        "device": fields.choice("device", DEVICES),
        "rows": fields.whole("rows", 1),
        "work": fields.number("work", above=True),
        "seconds": fields.number("seconds"),
        "rounds": fields.taken("rounds", list, "a list of fewest and most"),
        "memory_gb": fields.number("memory_gb", above=True),
    }
    rounds = found["rounds"]
    if (
        len(rounds) != 2
        or not all(type(n) is int for n in rounds)
        or not 2 <= rounds[0] <= rounds[1]
    ):
        fields.wrong("rounds", f"needs fewest and most, 2 or more, not {rounds}")
    fields.end()
    return found


def _loss(study: Study, method: StudyMethod, device: str) -> dict[str, str]:
    """What a method measures, checked."""
    fields = study.fields(method)
    found = {"name": fields.choice("loss", (UNIT, "exact"))}
    if found["name"] == "exact":
        found["method"] = fields.choice("method", METHODS)
        found["backend"] = fields.choice("backend", ("torch", "triton"))
        if found["backend"] == "triton" and (device != "cuda" or found["method"] != "auto"):
            fields.wrong("backend", "the kernels need device = 'cuda' and method = 'auto'")
    fields.end()
    return found
