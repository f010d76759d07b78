"""Schedules take the values that the papers state, at exactly the steps they state them for."""

import copy
import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from matplotlib import pyplot

import hitrate
from hitrate import schedules
from hitrate.schedules import Schedule

# Truth: numpy's own spacings over 11 equally spaced points of progress.
PROGRESS = np.linspace(0, 1, 11)
SHAPES = {
    "constant": (schedules.constant(0.3), np.full(11, 0.3)),
    "linear": (schedules.linear(10.0, 0.01), np.linspace(10, 0.01, 11)),
    "geometric": (schedules.geometric(10.0, 0.01), np.geomspace(10, 0.01, 11)),
    "cosine": (schedules.cosine(1.0, 3.0), 2 - np.cos(np.pi * PROGRESS)),
    "phases": (schedules.phases([1, 2, 4]), np.repeat([1, 2, 4], [4, 3, 4])),
    "phases_at": (schedules.phases([1, 2], at=[0.75]), np.repeat([1, 2], [8, 3])),
}
every = pytest.mark.parametrize(("curve", "expected"), SHAPES.values(), ids=SHAPES)


class Loss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sigma = 1.0
        self.margin = None
        self.reduction = "mean"
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        return (self.scale * x).sum()


@every
def test_a_schedule_takes_the_values_of_its_formula(curve, expected):
    np.testing.assert_allclose([curve(t) for t in PROGRESS], expected, rtol=1e-14)


@every
def test_progress_outside_0_and_1_is_clipped(curve, expected):
    assert (curve(-0.5), curve(1.5)) == (expected[0], expected[-1])


@every
def test_a_schedule_shows_the_call_that_made_it_and_survives_pickling(curve, expected):
    made_again = eval(repr(curve), vars(schedules).copy())
    assert made_again == curve == pickle.loads(pickle.dumps(curve)) == copy.deepcopy(curve)


WRONG = {
    "constant_nan": (lambda: schedules.constant(math.nan), r"constant\(nan\): value.*got nan"),
    "linear_text": (lambda: schedules.linear("1", 2), r"linear\('1', 2\): start.*got '1'"),
    "geometric_zero": (lambda: schedules.geometric(1.0, 0.0), r"geometric\(1.0, 0.0\): .*positive"),
    "geometric_negative": (lambda: schedules.geometric(-1, 1), "must be positive"),
    "cosine_infinite": (lambda: schedules.cosine(1, math.inf), "end must be a finite .* got inf"),
    "phases_empty": (lambda: schedules.phases([]), "at least one value"),
    "phases_text": (lambda: schedules.phases([0, "1"]), "every value must be .* got '1'"),
    "phases_too_few": (lambda: schedules.phases([0, 1, 2], at=[0.5]), "3 values need 2 switch"),
    "phases_order": (lambda: schedules.phases([0, 1, 2], at=[0.5, 0.5]), "must increase"),
    "phases_outside": (lambda: schedules.phases([0, 1], at=[1.0]), r"at=\[1.0\].*between 0 and 1"),
    "name": (lambda: schedules.named("focus"), r"named\('focus'\): not one of 'sigma_10_to_0.01',"),
    "steps": (
        lambda: Schedule(Loss(), "sigma", "sigma_10_to_0.01", 0),
        "total_steps=0.*whole number",
    ),
    "not_a_schedule": (lambda: Schedule(Loss(), "sigma", 0.5, 3), "function of progress.*not 0.5"),
    "no_such_number": (
        lambda: Schedule(Loss(), "focus", "focus_0", 3),
        r"Schedule\(Loss, 'focus', 'focus_0', total_steps=3\): the loss has no number 'focus'; "
        r"those it has: sigma, margin, scale$",
    ),
    "not_a_number": (lambda: Schedule(Loss(), "reduction", "focus_0", 3), "no number 'reduction'"),
    "a_flag": (lambda: Schedule(Loss(), "training", "focus_0", 3), "no number 'training'"),
    "nothing_there": (lambda: Schedule(object(), "sigma", "focus_0", 3), "those it has: none"),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_shown_with_the_call_and_the_value(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("name", "start", "end"), [("sigma_10_to_0.01", 10, 0.01), ("sigma_10_to_1", 10, 1)]
)
def test_sigma_of_the_exact_paper_falls_from_its_first_to_its_last_value(name, start, end):
    values = Schedule(Loss(), "sigma", name, total_steps=90).simulate()
    assert (values[0], values[-1], len(values)) == (start, end, 90)
    np.testing.assert_allclose(values, np.geomspace(start, end, 90), rtol=1e-13)


@pytest.mark.parametrize("epochs", [20, 40, 60, 100, 120, 200, 1000])
def test_focus_switches_after_exactly_95_percent_of_the_epochs(epochs):
    values = Schedule(Loss(), "sigma", "focus_0_then_0.5", total_steps=epochs).simulate()
    first = epochs * 95 // 100
    assert values == [0.0] * first + [0.5] * (epochs - first)


@pytest.mark.parametrize("epochs", [6, 60, 90, 120, 300, 6000])
def test_each_of_the_six_phases_of_focus_lasts_exactly_a_sixth(epochs):
    values = Schedule(Loss(), "sigma", "focus_0_to_0.5", total_steps=epochs).simulate()
    assert values == [f for f in (0, 0.1, 0.2, 0.3, 0.4, 0.5) for _ in range(epochs // 6)]


def test_focus_of_the_first_mixing_schedule_stays_at_zero():
    assert set(Schedule(Loss(), "sigma", "focus_0", total_steps=30).simulate()) == {0.0}


@pytest.mark.filterwarnings("ignore:.*is beyond the last")
def test_the_first_step_has_the_start_the_last_the_end_and_so_has_what_follows():
    loss = Loss()
    schedule = Schedule(loss, "sigma", schedules.geometric(10.0, 0.1), total_steps=3)
    seen = []
    for _ in range(5):
        seen.append(loss.sigma)
        assert loss.sigma == schedule.value
        schedule.step()
    assert seen == pytest.approx([10.0, 1.0, 0.1, 0.1, 0.1], rel=1e-15)
    assert seen[2] == 0.1
    assert schedule.steps_done == 5


def test_a_step_beyond_the_last_warns_once_and_names_accumulation():
    schedule = Schedule(Loss(), "sigma", schedules.linear(2.0, 1.0), total_steps=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            schedule.step()
    with pytest.warns(UserWarning, match="step 4 is beyond the last.*gradient accumulation"):
        schedule.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule.step()
    assert schedule.loss.sigma == 1.0


def test_goto_sets_what_so_many_steps_would_have_set():
    loss, other = Loss(), Loss()
    schedule, jumping = (
        Schedule(each, "sigma", "sigma_10_to_1", total_steps=9) for each in (loss, other)
    )
    for _ in range(5):
        schedule.step()
    jumping.goto(5)
    assert (other.sigma, jumping.steps_done, jumping.value) == (loss.sigma, 5, schedule.value)
    jumping.goto(0)
    assert other.sigma == 10.0
    for wrong in (-1, 1.5, True):
        with pytest.raises(ValueError, match=r"goto\(.*needs a whole number >= 0"):
            jumping.goto(wrong)


@pytest.mark.parametrize(("former", "now"), schedules.FORMER.items())
def test_a_former_name_warns_and_works(former, now):
    with pytest.warns(DeprecationWarning, match=f"'{former}' is now '{now}'"):
        assert schedules.named(former) == schedules.NAMED[now]


def test_a_single_step_has_the_end_value():
    loss = Loss()
    Schedule(loss, "sigma", schedules.linear(2.0, 1.0), total_steps=1)
    assert loss.sigma == 1.0


def test_a_number_that_is_switched_off_can_be_driven():
    loss = Loss()
    Schedule(loss, "margin", schedules.linear(2.0, 1.0), total_steps=9)
    assert loss.margin == 2.0


def test_a_tensor_is_filled_in_place():
    loss = Loss()
    scale = loss.scale
    schedule = Schedule(loss, "scale", schedules.linear(4.0, 2.0), total_steps=2)
    assert loss.scale is scale
    assert scale.item() == 4.0
    schedule.step()
    assert scale.item() == 2.0


def test_a_compiled_loss_sees_a_driven_tensor_without_being_compiled_again():
    loss = Loss()
    compilations = []

    def backend(graph, inputs):
        compilations.append(graph)
        return graph.forward

    compiled = torch.compile(loss, backend=backend, fullgraph=True)
    schedule = Schedule(compiled, "scale", schedules.linear(4.0, 2.0), total_steps=3)
    seen = []
    for _ in range(3):
        seen.append(compiled(torch.ones(2)).item())
        schedule.step()
    assert seen == [8.0, 6.0, 4.0]
    assert len(compilations) == 1


@pytest.mark.filterwarnings("ignore:.*is beyond the last")
def test_a_resumed_schedule_goes_on_like_an_uninterrupted_one():
    loss, resumed = Loss(), Loss()
    arguments = ("sigma", "sigma_10_to_1", 10)
    schedule = Schedule(loss, *arguments)
    for _ in range(4):
        schedule.step()
    state = pickle.loads(pickle.dumps(schedule.state_dict()))
    second = Schedule(resumed, *arguments)
    second.load_state_dict(state)
    for _ in range(8):
        assert resumed.sigma == loss.sigma
        schedule.step()
        second.step()


@pytest.mark.parametrize(
    ("name", "total_steps", "message"),
    [
        ("sigma", 11, "total_steps=11.*the state is of total_steps=10"),
        ("scale", 10, "name='sigma'"),
    ],
)
def test_the_state_of_another_schedule_is_refused(name, total_steps, message):
    state = Schedule(Loss(), "sigma", "sigma_10_to_1", 10).state_dict()
    with pytest.raises(ValueError, match=message):
        Schedule(Loss(), name, "sigma_10_to_1", total_steps).load_state_dict(state)


def test_simulating_leaves_the_loss_alone():
    loss = Loss()
    schedule = Schedule(loss, "sigma", "sigma_10_to_1", 10)
    schedule.step()
    value = loss.sigma
    schedule.simulate()
    assert (loss.sigma, schedule.steps_done) == (value, 1)


@pytest.mark.parametrize(
    ("curve", "scale"),
    [
        ("sigma_10_to_0.01", "log"),
        ("sigma_10_to_1", "linear"),
        ("focus_0_to_0.5", "linear"),
        (schedules.linear(-1.0, 100.0), "linear"),
    ],
    ids=str,
)
def test_a_plot_shows_all_values_with_a_log_axis_for_a_wide_range(curve, scale):
    schedule = Schedule(Loss(), "sigma", curve, total_steps=30)
    axes = schedule.plot()
    assert schedule.plot(axes) is axes
    assert list(axes.lines[0].get_ydata()) == schedule.simulate()
    assert (axes.get_yscale(), axes.get_ylabel()) == (scale, "sigma")
    axes.figure.canvas.draw()
    pyplot.close(axes.figure)


def test_a_schedule_moves_the_loss_that_it_is_given():
    one, other = hitrate.ExactLoss(), hitrate.ExactLoss()
    schedule = Schedule(one, "sigma", schedules.linear(10.0, 1.0), 10)
    schedule.loss = other
    schedule.step()
    assert float(one.sigma) == 10.0 and float(other.sigma) == 9.0
