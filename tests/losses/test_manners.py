"""Every loss treats layouts, targets and options as cross entropy does.

The truth is the definition, written out here: a row with target probabilities q costs
sum_c w_c q_c loss(row, c), where loss(row, c) is the loss's own value for one row and one class.
"""

import itertools
from dataclasses import replace

import pytest
import torch
from loss_cases import CASES
from torch.nn.functional import cross_entropy

CLASSES = 3
LAYOUTS = {"C": (), "NC": (5,), "NCd": (3, 2), "NCdd": (2, 2, 3)}
DTYPES = [torch.float64, torch.float32]
IGNORE = 1


def data_of(layout, dtype, soft):
    """Logits in the layout, targets (some of them IGNORE), class weights."""
    generator = torch.Generator().manual_seed(len(layout))
    rows = torch.Size(layout).numel()
    logits = (2 * torch.randn(rows, CLASSES, generator=generator)).to(dtype)
    if soft:
        target = torch.rand(rows, CLASSES, generator=generator)
        target = (target / target.sum(1, keepdim=True)).to(dtype)
    else:
        target = torch.arange(rows) % CLASSES
    weight = torch.tensor([0.5, 2.0, 1.25]).to(dtype)
    target = in_layout(target, layout) if soft else target.reshape(layout)
    return in_layout(logits, layout), target, weight


def in_layout(rows, layout):
    """Rows (R, C) with the class axis where cross entropy wants it."""
    return rows.reshape(*layout, -1).movedim(-1, min(1, len(layout)))


def in_rows(tensor, layout):
    return tensor.movedim(min(1, len(layout)), -1).reshape(-1, CLASSES)


def options_of(soft, weight):
    """All combinations of options."""
    for weighted, smoothing, ignoring, reduction in itertools.product(
        (False, True), (0.0, 0.2), (False,) if soft else (False, True), ("mean", "sum", "none")
    ):
        yield {
            "weight": weight if weighted else None,
            "label_smoothing": smoothing,
            "ignore_index": IGNORE if ignoring else -100,
            "reduction": reduction,
        }


def terms_of(case, logits, layout):
    """Losses (R, C) of all rows with all classes as index targets; log p for a batch's link."""
    rows = in_rows(logits, layout)
    if case.of_batch:
        case = replace(case, arguments=case.arguments | {"link": "log"})
    every = torch.arange(CLASSES).repeat(len(rows))
    terms = case(rows.repeat_interleave(CLASSES, 0), every, reduction="none")
    return terms.reshape(-1, CLASSES)


def by_definition(case, terms, target, layout, options):
    """The loss from the terms."""
    weight = options["weight"]
    weight = torch.ones(CLASSES, dtype=terms.dtype) if weight is None else weight.to(terms.dtype)
    if target.is_floating_point():
        q, kept = in_rows(target, layout).to(terms.dtype), torch.ones(len(terms), dtype=torch.bool)
        total = float(len(terms))
    else:
        flat = target.reshape(-1)
        q = torch.nn.functional.one_hot(flat, CLASSES).to(terms.dtype)
        kept = flat != options["ignore_index"]
        total = (q * weight).sum(1)[kept].sum()
    q = (1 - options["label_smoothing"]) * q + options["label_smoothing"] / CLASSES
    coefficient = (q * weight)[kept]
    if case.of_batch:
        return -torch.log(((-terms[kept]).exp() * coefficient).sum() / total)
    values = torch.zeros(len(terms), dtype=terms.dtype)
    values[kept] = (terms[kept] * coefficient).sum(1)
    if options["reduction"] == "none":
        return values.reshape(layout)
    return values.sum() if options["reduction"] == "sum" else values.sum() / total


def tolerance(dtype):
    return {"rtol": 1e-9, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 2e-5, "atol": 5e-6}


def value_and_gradient(value, logits):
    """Value, and gradient with a cotangent that differs from row to row."""
    cotangent = torch.linspace(1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    (gradient,) = torch.autograd.grad(value, logits, cotangent, retain_graph=True)
    return value.detach(), gradient


def combinations(case, layout, dtype):
    for soft in (False, True):
        logits, target, weight = data_of(layout, dtype, soft)
        for options in options_of(soft, weight):
            if not case.of_batch or options["reduction"] == "mean":
                yield logits, target, options


# The axis of classes and the dtype are asked for apart: every loss has each of them.
PAIRED = {("NC", torch.float64), ("NC", torch.float32), ("C", torch.float32)}
PAIRED |= {("NCd", torch.float64), ("NCdd", torch.float32)}


def every_case():
    """Each loss in every layout and dtype; a few, which go different ways, in all pairs of them."""
    few = ("exact", "cross_entropy", "hinge", "exact[normal,batch_log]")
    assert {case.name for case in CASES}.issuperset(few)
    for case, layout, dtype in itertools.product(CASES, LAYOUTS, DTYPES):
        if case.name not in few and (layout, dtype) not in PAIRED:
            continue
        usual = case.name in few or (layout == "NC" and dtype == torch.float64)
        name = "-".join([case.name, layout, str(dtype).removeprefix("torch.")])
        marks = () if usual else pytest.mark.slow
        yield pytest.param(case, LAYOUTS[layout], dtype, marks=marks, id=name)


@pytest.mark.parametrize(("case", "layout", "dtype"), [*every_case()])
def test_every_option_means_what_it_means_in_cross_entropy(case, layout, dtype):
    logits = data_of(layout, dtype, soft=False)[0].requires_grad_()
    terms = terms_of(case, logits, layout)
    slack = {"rtol": 1e-4, "atol": 2e-5}
    for _, target, options in combinations(case, layout, dtype):
        ours, gradient = value_and_gradient(case(logits, target, **options), logits)
        truth, slope = value_and_gradient(
            by_definition(case, terms, target, layout, options), logits
        )

        def told(message, options=options, target=target):
            return f"{options}, target {target.dtype}\n{message}"

        torch.testing.assert_close(ours, truth, **tolerance(dtype), msg=told)
        torch.testing.assert_close(gradient, slope, **slack, msg=told)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_module_calls_the_function(case):
    for logits, target, options in combinations(case, LAYOUTS["NC"], torch.float32):
        built = case.build(**options)(logits, target)
        assert torch.equal(built, case(logits, target, **options))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_gumbel_noise_and_the_log_link_are_cross_entropy(layout, dtype):
    case = next(c for c in CASES if c.name == "exact[gumbel,log]")
    for logits, target, options in combinations(case, layout, dtype):
        for scale in (1.0, 100.0):
            z = (scale * logits).requires_grad_()
            ours, gradient = value_and_gradient(case(z, target, **options), z)
            truth, slope = value_and_gradient(cross_entropy(z, target, **options), z)
            torch.testing.assert_close(ours, truth)
            torch.testing.assert_close(gradient, slope)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_all_rows_ignored_is_nan_with_zero_gradient_as_in_cross_entropy(case):
    logits = torch.randn(4, CLASSES, generator=torch.Generator().manual_seed(0))
    target = torch.full((4,), -100)
    for options in ({}, {"label_smoothing": 0.1}, {"weight": torch.ones(CLASSES)}):
        for function in (case, cross_entropy):
            z = logits.clone().requires_grad_()
            value = function(z, target, **options)
            assert value.isnan()
            if not case.of_batch:
                value.backward()
                assert (z.grad == 0).all()
    if not case.of_batch:
        assert case(logits, target, reduction="sum") == 0
        assert (case(logits, target, reduction="none") == 0).all()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_an_empty_batch_is_nan_or_zero_as_in_cross_entropy(case):
    for shape, layout in (
        ((0, CLASSES), (0,)),
        ((0, CLASSES, 2), (0, 2)),
        ((2, CLASSES, 0), (2, 0)),
    ):
        logits = torch.empty(shape, requires_grad=True)
        indices = torch.empty(layout, dtype=torch.long)
        for target in (indices, torch.empty(shape)):
            for options in ({}, {"label_smoothing": 0.1}, {"weight": torch.ones(CLASSES)}):
                assert case(logits, target, **options).isnan()
                assert cross_entropy(logits, target, **options).isnan()
        if case.of_batch:
            continue
        value = case(logits, indices, reduction="sum")
        value.backward()
        assert value == 0 and logits.grad.shape == shape
        assert case(logits, indices, reduction="none").shape == layout
