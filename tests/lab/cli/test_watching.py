"""What a comparison or a study shows while it runs."""

import io

import pytest
from rich.console import Console

from hitrate_lab.cli.watching import ComparisonWatcher, StudyWatcher
from hitrate_lab.runs.events import Event


def console(terminal=False):
    return Console(file=io.StringIO(), force_terminal=terminal, width=80, highlight=False)


def spec(fold):
    return {"method": "linear/exact", "repeat": 0, "fold": fold}


def events(runs):
    yield Event("planned", 0, 0, runs)
    for fold in range(runs):
        yield Event("started", fold, 0, runs, spec(fold))
        yield Event("finished", fold + 1, 0, runs, spec(fold), {"accuracy": 0.5})


def test_a_comparison_tells_of_each_tenth_where_there_is_no_terminal():
    where = console()
    with ComparisonWatcher("t\x1b", {"linear/exact": "EXACT"}, where) as watch:
        for event in events(40):
            watch(event)
    lines = where.file.getvalue().splitlines()
    assert lines == [rf"t\x1b: {done} of 40 runs" for done in range(4, 41, 4)]


def test_a_comparison_shows_what_runs_and_what_failed_on_a_terminal():
    where = console(terminal=True)
    watch = ComparisonWatcher("wine", {"linear/exact": "EXACT", "mlp/exact": "network"}, where)
    for event in [*events(2), Event("started", 2, 0, 4, spec(2))]:
        watch(event)
    watch(Event("failed", 2, 1, 4, {**spec(0), "method": "mlp/exact"}, error="no"))
    where.print(watch)
    shown = where.file.getvalue()
    assert "50.00 %" in shown and "running" in shown and "1 failed" in shown and "2/4" in shown


@pytest.mark.parametrize("terminal", [False, True])
def test_a_study_complains_of_failures_and_guesses_the_time_left(terminal, capsys):
    where = console(terminal)
    run = {"data_set": "iris", "method": "one", "seed": 3}
    with StudyWatcher("small", where) as watch:
        watch.EVERY = 0.0
        watch(Event("planned", 0, 0, 3))
        watch(Event("finished", 1, 0, 3, run, {"seconds": 0.25}, left=75.0))
        watch(Event("failed", 1, 1, 3, run, error="went wrong", left=75.0))
    complaint = "hitrate: failed: iris, one, seed 3: went wrong"
    shown = where.file.getvalue()
    if terminal:
        # Above the line that moves.
        assert complaint in shown
        return
    assert capsys.readouterr().err == f"{complaint}\n"
    assert shown.splitlines() == [
        "small: 0 of 3 runs",
        "small: 1 of 3 runs, 1 min 15 s left (last: iris, one, seed 3, 0.2 s)",
        "small: 1 of 3 runs, 1 failed, 1 min 15 s left",
    ]
