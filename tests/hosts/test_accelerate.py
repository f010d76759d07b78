"""A loop with accelerate: resuming, accumulation, processes."""

import pytest
import torch
from host_cases import model as make_model
from host_cases import problem, weights
from two_processes import run_in_processes

import hitrate

pytest.importorskip("accelerate")
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState

from hitrate.integrations.accelerate import prepare

RECIPES = ["annealed", "mixed_gradual", "exact_networks"]
EPOCHS = 3


@pytest.fixture(autouse=True)
def fresh():
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def train(recipe, *, parts=1, batch=16, folder=None, save_after=None, resume=False, recorder=None):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=parts)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = torch.utils.data.TensorDataset(*problem())
    size = batch // parts // accelerator.num_processes
    loader = torch.utils.data.DataLoader(data, batch_size=size)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = EPOCHS * 64 // batch
    plan = hitrate.recipe(recipe, total_steps=steps, optimizer=optimizer)
    plan = prepare(plan, accelerator)
    epochs = range(EPOCHS)
    if resume:
        accelerator.load_state(folder)
        epochs = range(save_after, EPOCHS)
    for epoch in epochs:
        for x, target in loader:
            with accelerator.accumulate(model):
                accelerator.backward(plan.loss(model(x), target))
                optimizer.step()
                optimizer.zero_grad()
                plan.step()
        if save_after == epoch + 1 and not resume:
            accelerator.save_state(folder)
    if recorder is not None:
        recorder.append(plan)
    return weights(model)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_resumed_training_ends_bit_equal(recipe, tmp_path):
    folder, plans = str(tmp_path / "state"), []
    whole = train(recipe, folder=folder, save_after=1)
    fresh_start = [state._reset_state() for state in (AcceleratorState, GradientState)]
    assert fresh_start
    assert torch.equal(
        train(recipe, folder=folder, save_after=1, resume=True, recorder=plans), whole
    )
    assert all(schedule.steps_done == schedule.total_steps for schedule in plans[0].schedules)


@pytest.mark.parametrize("recipe", RECIPES[:-1])
def test_parts_of_a_batch_equal_the_batch(recipe):
    plans = []
    whole = train(recipe)
    AcceleratorState._reset_state()
    GradientState._reset_state()
    parts = train(recipe, parts=4, recorder=plans)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-5)
    assert all(schedule.steps_done == 12 for schedule in plans[0].schedules)


def of_one_process(rank, recipe):
    return train(recipe)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_two_processes_equal_one(recipe):
    # Processes take turns with batches: of two, the first has the even ones.
    (one,) = run_in_processes(1, of_one_process, recipe)
    for two in run_in_processes(2, of_one_process, recipe):
        torch.testing.assert_close(two, one, rtol=0, atol=1e-6)


def test_a_step_that_was_skipped_does_not_count():
    accelerator = Accelerator(cpu=True)
    model = make_model()
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    plan = prepare(hitrate.recipe("annealed", total_steps=5), accelerator)
    optimizer._is_overflow = True
    optimizer.scaler = object()
    assert optimizer.step_was_skipped
    plan.step()
    assert plan.schedules[0].steps_done == 0
    optimizer._is_overflow = False
    plan.step()
    assert plan.schedules[0].steps_done == 1
