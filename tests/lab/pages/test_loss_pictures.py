"""The pictures of losses: all are drawn, nothing is cut off, the dots are where they should be."""

import re

import numpy as np
import pytest
import torch

import hitrate
from hitrate.links import LINKS, Mixed
from hitrate.losses import LOSSES

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg

from hitrate_lab.pages import loss_pictures


def drawn(figure):
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas


def legend_labels(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


NAMES = (*LOSSES, "figure_1", "links", "schedules")
# One of a loss, one with a single panel, one with many curves.
OFTEN = ("exact", "figure_1", "links")


@pytest.fixture(scope="module")
def pictures():
    return dict(loss_pictures.figures())


def test_there_is_a_picture_for_every_loss(pictures):
    assert tuple(pictures) == NAMES


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.slow]) for name in NAMES],
)
def test_a_picture_shows_something_and_cuts_nothing_off(pictures, name):
    figure = pictures[name]
    canvas = drawn(figure)
    pixels = np.asarray(canvas.buffer_rgba())
    assert len(np.unique(pixels.reshape(-1, 4), axis=0)) > 50
    for axes in figure.axes:
        assert axes.get_xlabel() and axes.get_ylabel()
        assert axes.lines
        box = axes.get_tightbbox(canvas.get_renderer())
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1
    for legend in figure.legends:
        box = legend.get_window_extent(canvas.get_renderer())
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
        for axes in figure.axes:
            assert not box.overlaps(axes.get_tightbbox(canvas.get_renderer()))


@pytest.mark.parametrize("name", LOSSES)
def test_cross_entropy_is_the_grey_curve_of_every_loss(pictures, name):
    grey = [line for line in pictures[name].axes[0].lines if line.get_color() == "0.6"]
    assert grey and all("cross entropy" in line.get_label() for line in grey)
    if name != "max_mahalanobis_center":
        np.testing.assert_allclose(grey[0].get_ydata(), -np.log(grey[0].get_xdata()), rtol=1e-6)


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"complement_objective"}))
def test_the_right_panel_is_the_slope_of_the_left_one(pictures, name):
    left, right = pictures[name].axes
    for loss, slope in zip(left.lines, right.lines, strict=True):
        x, y = np.asarray(loss.get_xdata()), np.asarray(loss.get_ydata())
        if len(x) < 3:
            continue
        # The logit f moves with p; a feature moves by itself.
        f = x if name == "max_mahalanobis_center" else np.log(x) - np.log1p(-x)
        inside = slice(200, -200)
        found = np.abs(np.gradient(y, f)[inside])
        told = np.asarray(slope.get_ydata())[inside]
        # Kinks of the loss are between two points.
        assert np.mean(np.abs(found - told) < 2e-3) > 0.99, loss.get_label()


def test_dots_of_figure_1_are_at_the_focus_points_of_the_mixtures(pictures):
    (axes,) = pictures["figure_1"].axes
    curves = [line for line in axes.lines if len(line.get_xdata()) > 1]
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert len(curves) == len(dots) == 7
    seen = set()
    for curve, dot in zip(curves, dots, strict=True):
        alpha, beta = map(float, re.findall(r"= ([\d.]+)", curve.get_label()))
        seen.add((alpha, beta))
        ((x,), (y,)) = dot.get_data()
        assert dot.get_color() == curve.get_color()
        assert x == pytest.approx(Mixed(alpha, beta).focus_point, abs=1e-3)
        assert y == pytest.approx((alpha + beta * x) * (1 - x), abs=1e-6)  # equation (13)
        assert y == max(curve.get_ydata())
    assert seen == {(1, 0), (1, 0.5), (1, 1), (1, 2), (1, 5), (0.5, 1), (0, 1)}


def test_every_link_is_in_the_picture_of_links(pictures):
    names = ", ".join(legend_labels(pictures["links"])).split(", ")
    assert sorted(names) == sorted(LINKS)


def test_a_row_of_a_batch_has_the_gradient_of_the_error_over_the_accuracy():
    logits = torch.tensor([[0.3, 0.0]], dtype=torch.float64, requires_grad=True)
    loss = loss_pictures.of_row_in_batch(logits, torch.tensor([0]), reduction="none", rows=4)
    (slope,) = torch.autograd.grad(loss.sum(), logits)
    p = float(logits.detach().softmax(1)[0, 0])
    assert float(slope[0, 0]) == pytest.approx(-p * (1 - p) / ((p + 1.5) / 4))


def test_named_schedules_are_drawn_from_start_to_end(pictures):
    lines = {line.get_label(): line for axes in pictures["schedules"].axes for line in axes.lines}
    assert set(lines) == set(hitrate.schedules.NAMED)
    for name, line in lines.items():
        schedule = hitrate.schedules.named(name)
        assert line.get_ydata()[0] == schedule(0.0)
        assert line.get_ydata()[-1] == schedule(1.0)
