"""The next word: a small recurrent network that cross entropy begins and every loss goes on with.

One run is a text set and a seed. The network is trained with cross entropy; then each method goes
on from there for as many steps. What is done outlives a kill, method by method.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.seeds import seed_of
from hitrate_lab.studies.protocol import Cell, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study, StudyMethod
    from hitrate_lab.studies.text.words import NextWord

COLLECTION = "texts/"
# Numbers of the report, and whether they are shares, shown in percent.
MEASURES = {
    "top_1_accuracy": ("top_1", True),
    "top_3_accuracy": ("top_3", True),
    "perplexity": ("perplexity", False),
    "calibration_error": ("calibration_error", True),
}
WEIGHTS, PIECES = 21, 22
# Steps that are timed in each way.
TIMED = 4
MOST_NORM = 1.0


class NextWords(Protocol):
    """Losses on next words, by top-1 and top-3 accuracy, perplexity and calibration."""

    name = "next words"
    version = 1

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        _settings(study)
        for measure in study.measures:
            if measure not in MEASURES:
                study.wrong("measures", f"{measure!r} is none of {', '.join(MEASURES)}")
        for name in study.data_sets:
            if not name.startswith(COLLECTION):
                study.wrong("data_sets", f"{name!r} is none of {COLLECTION}NAME")
        if len({method.seeds for method in study.methods}) > 1:
            study.wrong("methods", "all need the same seeds, of which they are trained together")
        for method in study.methods:
            _method(study, method)

    def plan(self, study: Study) -> list[Specification]:
        """Specifications, seed by seed.

        Parameters
        ----------
        study : Study
        """
        from hitrate.recipes import recipe

        methods = [_method(study, each) for each in study.methods]
        for each in methods:
            try:
                recipe(each["recipe"], normalize_gradient=False, **each["parameters"])
            except (TypeError, ValueError) as error:
                raise BadInput(f"{study.path}: methods[{each['name']}]: {error}") from error
        return [
            {
                "study": study.name,
                "protocol": self.signature,
                "data_set": data_set,
                "methods": methods,
                "seed": seed,
                **_settings(study),
            }
            for seed in study.methods[0].seeds
            for data_set in study.data_sets
        ]

    def run(self, specification: Specification, context: Context) -> Result:
        """Train with cross entropy, go on with every method, and look at each.

        Parameters
        ----------
        specification : dict
            One of `plan`.
        context : Context
        """
        import torch

        from hitrate_lab.studies.text.words import NextWord, batches_of, seen, stream_of
        from hitrate_lab.training import checkpoint

        spec, begun = specification, time.perf_counter()
        name = spec["data_set"].removeprefix(COLLECTION)
        train, test = stream_of(name, spec["vocabulary"], context.data_dir)
        pieces = batches_of(train, spec["streams"], spec["length"])
        held = batches_of(test[: spec["test_words"]], spec["streams"], spec["length"])
        first = torch.Generator().manual_seed(seed_of(spec["seed"], PIECES))
        start = int(torch.randint(len(pieces), (), generator=first))
        pieces = pieces.roll(-start, 0)
        torch.manual_seed(seed_of(spec["seed"], WEIGHTS))
        model = NextWord(spec["vocabulary"], spec["hidden"])
        known = None if context.scratch is None else checkpoint.load(context.scratch)
        if known is None:
            base = {"name": "", "recipe": "cross_entropy", "parameters": {}}
            _train(model, pieces, base, spec["base_steps"], spec["base_rate"])
            known = {"model": model.state_dict(), "found": {}, "base": seen(model, held)}
            _keep(context, known)
        for method in spec["methods"]:
            if method["name"] in known["found"]:
                continue
            model.load_state_dict(known["model"])
            later = pieces.roll(-spec["base_steps"], 0)
            seconds = _train(model, later, method, spec["steps"], spec["learning_rate"])
            known["found"][method["name"]] = {
                **seen(model, held),
                "processor_seconds_of_a_step": round(seconds, 5),
                **_timed(model, later[0], method),
            }
            _keep(context, known)
        return {
            "methods": known["found"],
            "base": known["base"],
            "train_words": len(train),
            "seconds": round(time.perf_counter() - begun, 3),
            "processor": processor(),
        }

    def cells(self, specification: Specification, result: Result) -> list[Cell]:
        """All measures, for the report."""
        return [
            (measure, specification["data_set"], name, (100 if is_share else 1) * each[key])
            for name, each in result["methods"].items()
            for measure, (key, is_share) in MEASURES.items()
        ]

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Everything side by side, and what a step takes."""
        from hitrate_lab.studies.text.next_words_tables import tables

        return tables(study, [run.result for run in runs])

    def score_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]] | None:
        """Nothing is ranked over one text."""
        return []


def _keep(context: Context, known: dict[str, Any]) -> None:
    from hitrate_lab.training import checkpoint

    if context.scratch is not None:
        checkpoint.save(context.scratch, len(known["found"]), known)


def _train(
    model: NextWord, pieces: Tensor, method: dict[str, Any], steps: int, rate: float
) -> float:
    """Adam with a rate that falls to nothing; the processor's seconds of a step."""
    import torch

    from hitrate import linear_loss
    from hitrate.recipes import recipe
    from hitrate_lab.studies.text.words import targets_of

    plan = recipe(
        method["recipe"], total_steps=steps, normalize_gradient=False, **method["parameters"]
    )
    optimizer = torch.optim.Adam(model.parameters(), rate)
    state, begun = None, time.process_time()
    for step in range(steps):
        piece = pieces[step % len(pieces)]
        optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
        hidden, state = model(piece[:, :-1], state)
        state = state.detach()
        loss = linear_loss(
            hidden, model.embedding.weight, targets_of(piece), bias=model.bias, loss=plan.loss
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), MOST_NORM)
        optimizer.step()
        plan.step()
    return (time.process_time() - begun) / max(steps, 1)


def _timed(model: NextWord, piece: Tensor, method: dict[str, Any]) -> dict[str, float]:
    """The processor's seconds of the loss and its gradients, with `linear_loss` and without."""
    from hitrate import linear_loss
    from hitrate.recipes import recipe
    from hitrate_lab.studies.text.words import targets_of

    loss = recipe(method["recipe"], normalize_gradient=False, **method["parameters"]).loss
    hidden, target = model(piece[:, :-1])[0].detach().requires_grad_(), targets_of(piece)
    weight, bias = model.embedding.weight, model.bias

    def plain() -> Tensor:
        found: Tensor = loss(model.logits(hidden).flatten(0, 1), target.flatten())
        return found

    def linear() -> Tensor:
        return linear_loss(hidden, weight, target, bias=bias, loss=loss)

    found = {}
    for name, call in (("plain", plain), ("linear_loss", linear)):
        call().backward()  # type: ignore[no-untyped-call]
        begun = time.process_time()
        for _ in range(TIMED):
            call().backward()  # type: ignore[no-untyped-call]
        found[f"seconds_{name}"] = round((time.process_time() - begun) / TIMED, 5)
    return found


def _settings(study: Study) -> dict[str, Any]:
    """The table [settings], checked."""
    fields = study.fields()
    whole = ("vocabulary", "hidden", "streams", "length", "base_steps", "steps", "test_words")
    found: dict[str, Any] = {key: fields.whole(key, 1) for key in whole}
    for key in ("base_rate", "learning_rate"):
        found[key] = fields.number(key, above=True)
    fields.end()
    return found


def _method(study: Study, method: StudyMethod) -> dict[str, Any]:
    fields = study.fields(method)
    found = {
        "name": method.name,
        "recipe": fields.text("recipe"),
        "parameters": fields.taken("parameters", dict, "a table", default={}),
    }
    fields.end()
    return found
