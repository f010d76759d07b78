"""Which way of training is the best on a table: repeated cross-validation with tuning."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.compare.document import Settings, document
from hitrate_lab.compare.folds import chosen_on, codes, fold_rows, possible_folds
from hitrate_lab.compare.one_run import encoded_fold, one_run
from hitrate_lab.metrics import DEFAULT, Metric, metric_named
from hitrate_lab.models.methods import Method
from hitrate_lab.runs.engine import Where, run_missing
from hitrate_lab.runs.environment import now, processor, versions
from hitrate_lab.runs.events import Event
from hitrate_lab.runs.lock import only_one
from hitrate_lab.runs.store import Store
from hitrate_lab.runs.work import Context, Result, Specification, Work
from hitrate_lab.seeds import seed_of
from hitrate_lab.tables import Table

# Changes when the same specification would give another result.
PROTOCOL = 2


class Comparison(Work):
    """The runs of a comparison: each is a method on a fold.

    Parameters
    ----------
    table : Table
    metric : Metric
        What candidates are chosen by.
    methods : sequence of Method
        All that runs name.
    """

    def __init__(self, table: Table, metric: Metric, methods: Sequence[Method]) -> None:
        self._features, self._target = table.features, codes(table)
        self._classes, self._metric = len(table.classes), metric
        # As they are, for processes that know of no others than hitrate's own.
        self._methods = {method.name: method for method in methods}
        # The last fold's numbers: free text takes seconds, and all methods are run on a fold.
        self._encoded: tuple[tuple[int, ...], tuple[Any, Any]] | None = None

    def ignores_time_budget(self, specification: Specification) -> bool:
        """Each method has its first fold in any case."""
        return bool(specification["repeat"] == specification["fold"] == 0)

    def seconds_of(self, result: Result) -> float | None:
        """Choosing and fitting: the rest takes no time."""
        return float(result["tune_seconds"] + result["fit_seconds"])

    def run_batch(
        self, specifications: Sequence[Specification], context: Context
    ) -> list[Result | Exception]:
        """What came of each method on its fold.

        Parameters
        ----------
        specifications : sequence of dict
            Some of `plan_of`.
        context : Context
        """
        return [self._run(each) for each in specifications]

    def _run(self, spec: Specification) -> Result:
        repeat, fold, seed = (spec[key] for key in ("repeat", "fold", "seed"))
        rows = fold_rows(self._target, spec["folds"], repeat, seed)[fold]
        which = (spec["folds"], repeat, fold, seed)
        if self._encoded is None or self._encoded[0] != which:
            # The old one goes before the new one comes.
            self._encoded = None
            self._encoded = which, encoded_fold(self._features, rows)
        return one_run(
            self._features,
            self._target,
            self._classes,
            rows,
            self._methods[spec["method"]],
            spec["candidates"],
            seed_of(seed, repeat, fold),
            self._metric,
            self._encoded[1],
            spec.get("chosen_on"),
        )


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: what is done is kept, and `document` shows it."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__("interrupted")
        self.document = document


def compare(
    table: Table,
    *,
    store: Path | str,
    models: Sequence[str] = ("linear", "mlp"),
    losses: Sequence[str] | None = None,
    folds: int = 5,
    repeats: int = 2,
    trials: int = 4,
    seed: int = 0,
    metric: str = DEFAULT,
    costs: Any = None,
    time_budget: float | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    retry: bool = False,
    observer: Callable[[Event], object] | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """Compare methods on a table by repeated stratified cross-validation.

    Every method is trained on the same folds, with the same number of candidate parameters, chosen
    on an inner split of the training rows. All methods finish a fold before the next begins. Each
    run is kept in the store as soon as it ends; the same call goes on where the last one stopped,
    and begins again what was lost with its process. "lost" counts such runs, if there are any.

    Parameters
    ----------
    table : Table
    store : Path
        File of runs; made if it is not there. One comparison at a time may use it.
    models : sequence of str
        Of `hitrate_lab.models.methods.MODELS`.
    losses : sequence of str, optional
        Of `hitrate.losses.LOSSES`, and for "mlp" of `hitrate.recipes.RECIPES`; by default cross
        entropy and EXACT, in the way that suits each model.
    folds : int
        Fewer if the smallest class has fewer rows.
    repeats : int
        How often the rows are dealt into folds.
    trials : int
        Candidates of each method; 1 is its default, untuned.
    seed : int
    metric : str
        Of `hitrate_lab.metrics.METRICS`: what candidates are chosen and methods ranked by.
    costs : array, shape (C, C), optional
        For ``metric="cost"``, in the order of the table's classes: of class y (rows) taken for k.
    time_budget : float, optional
        Seconds after which no run begins, but for each method's first.
    jobs : int, optional
        Processes; by default as many as there are cores.
    cluster : str, optional
        Address of a Dask scheduler, whose workers run instead.
    retry : bool
        Run again what failed in an earlier call.
    observer : callable, optional
        Called with every `Event`, from the thread that called this function.
    command : str, optional
        To be shown in the document.

    Returns
    -------
    dict
        The comparison document.

    Raises
    ------
    Interrupted
        At Ctrl-C, with the document of what is done.
    """
    begun, started = time.perf_counter(), now()
    settings = _settings(
        table, models, losses, folds, repeats, trials, seed, metric, costs, time_budget, jobs
    )
    plan, lost = plan_of(table, settings), 0
    packages = [each.family.package for each in settings.methods if each.family.package]

    def so_far(runs: Store) -> dict[str, Any]:
        environment = {
            **versions(packages),
            "processor": processor(),
            "cores": os.cpu_count() or 1,
            "started": started,
            "seconds": round(time.perf_counter() - begun, 1),
            "command": command or f"compare({table.name!r})",
        }
        found = document(table, settings, runs.runs(plan), runs.failures(plan), environment)
        return found | ({"lost": lost} if lost else {})

    path = Path(store)
    with only_one(path), Store(path, packages) as runs:
        try:
            lost = run_missing(
                Comparison(table, settings.metric, settings.methods),
                plan,
                runs,
                Where(settings.jobs, cluster),
                retry=retry,
                time_budget=time_budget,
                observer=observer,
            )
        except KeyboardInterrupt:
            raise Interrupted(so_far(runs)) from None
        return so_far(runs)


def plan_of(table: Table, settings: Settings) -> list[dict[str, Any]]:
    """Specifications of all runs, fold by fold: what is done is always paired.

    Parameters
    ----------
    table : Table
    settings : Settings
    """
    import hitrate

    every = settings.methods
    rows = round(len(table.target) * (1 - 1 / settings.folds))
    candidates = {method.name: method.candidates(settings.trials, rows) for method in every}
    # Where there are few rows runs are what they were before there was a limit.
    limit = {} if (most := chosen_on(rows)) is None else {"chosen_on": most}
    return [
        {
            "protocol": f"compare {PROTOCOL}",
            "hitrate": hitrate.__version__,
            "table": table.fingerprint,
            "method": method.name,
            "candidates": candidates[method.name],
            "folds": settings.folds,
            "repeat": repeat,
            "fold": fold,
            "seed": settings.seed,
            **settings.metric.specification,
            **limit,
        }
        for repeat in range(settings.repeats)
        for fold in range(settings.folds)
        for method in every
    ]


def _settings(
    table: Table,
    models: Sequence[str],
    losses: Sequence[str] | None,
    folds: int,
    repeats: int,
    trials: int,
    seed: int,
    metric: str,
    costs: Any,
    time_budget: float | None,
    jobs: int | None,
) -> Settings:
    """What was asked for, checked."""
    import joblib

    for name, value, least in (("repeats", repeats, 1), ("seed", seed, 0)):
        if value < least:
            raise BadInput(f"{name}={value}: needs {least} or more")
    if jobs is not None and jobs < 1:
        raise BadInput(f"jobs={jobs}: needs 1 or more")
    if time_budget is not None and not time_budget >= 0:
        raise BadInput(f"time_budget={time_budget}: needs a number of seconds")
    possible, note = possible_folds(codes(table), folds)
    notes = [] if note is None else [note]
    most = chosen_on(round(len(table.target) * (1 - 1 / possible)))
    if most is not None and trials > 1:
        notes.append(
            f"parameters are chosen on {most:,} of a fold's training rows, drawn at random; with "
            "what is chosen all are fitted"
        )
    settings = Settings(
        models=tuple(models),
        losses=None if losses is None else tuple(losses),
        folds=possible,
        repeats=repeats,
        trials=trials,
        seed=seed,
        metric=metric_named(metric, len(table.classes), costs),
        time_budget=time_budget,
        notes=tuple(notes),
    )
    if settings.metric.needs_probabilities:
        _refuse_without_probabilities(settings)
    most = len(settings.methods) * possible * repeats
    return replace(settings, jobs=min(jobs or joblib.cpu_count(), most))


def _refuse_without_probabilities(settings: Settings) -> None:
    for method in settings.methods:
        model = method.build(method.candidates(1, 1)[0], 0)
        if not hasattr(model, "predict_proba"):
            raise BadInput(
                f"metric {settings.metric.name!r} needs probabilities, and {method.name} has none"
            )
