"""Losses under any input: nothing raised but complaints, no NaN, and float64's numbers.

A case is one call of a loss (or a noise and a link of one's choice) with options, a layout, a dtype
and logits, ordinary ones or extreme ones; its inputs are the rows, each with a target. Cross
entropy on the same logits and target says where NaN has a place. Of usual logits some are computed
in float64 too.
"""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz.limits import Limits
from fuzz.loss_options import NAMES, add_options, costs
from fuzz.target import Target, Wrong

DTYPES = ("float64", "float32", "float32", "bfloat16", "float16")
EXTREMES = (0.0, -0.0, 1e-8, -1e-8, 1e4, -1e4, 1e15, -1e15, 1e19, 1e30, -1e30, 1e36, 3e38, -3e38)
SCALES = (1e-3, 1.0, 1.0, 5.0, 30.0, 1e3)
SIGMAS = (1.0, 1.0, 0.3, 3.0, 1e-4, 1e4, 1e-30, 1e30)
# In float64 some of these are right.
WRONG_SIGMAS = (0.0, -1.0, math.nan, math.inf, 1e300, 1e-300, 1e-37, 3e38, True, "1", None, 1j)
# Spread of the logits in sigmas up to which results have the digits that are promised.
USUAL = 30.0
# A share of the usual cases is held against float64.
CHECKED = 0.25


class Losses(Target):
    """Any loss, any options, any logits."""

    chunk = 5000
    limits = Limits(cpu_seconds=20, mebibytes=1024, wall_seconds=600)
    watches_memory = False
    with_every_change = 3000
    # A million rows.
    long_form = 75_000

    def load(self, folder: Path) -> None:
        """Import what a case needs."""
        import torch

        import hitrate
        from hitrate import links
        from hitrate.losses import LOSSES

        torch.set_num_threads(1)
        self.torch, self.hitrate, self.links, self.names = torch, hitrate, links, tuple(LOSSES)

    def describe(self) -> dict[str, Any]:
        """Versions."""
        return {"torch": self.torch.__version__}

    def case(self, seed: int, folder: Path) -> str:
        """One call, and its gradient."""
        torch, draw = self.torch, random.Random(seed)
        generator = torch.Generator().manual_seed(seed)
        rows, classes, shape, axis = self._layout(draw)
        self.inputs = rows
        dtype = getattr(torch, draw.choice(DTYPES))
        logits, is_usual = self._logits(draw, generator, shape, dtype)
        logits = self._laid_out(draw, logits)
        target, options, is_moving = self._options(draw, generator, logits, axis, rows, classes)
        loss, arguments, may_complain = self._loss(draw, generator, rows, classes, options)
        may_complain |= add_options(draw, generator, loss, classes, target, options)

        def told() -> str:
            # Only where it is needed: writing tensors takes a third of a case's time.
            return f"{loss} {arguments} {options} target {target} logits {logits}"

        leaf = logits.detach().requires_grad_()
        try:
            value = self._value(loss, leaf, target, {**arguments, **options})
        except (ValueError, TypeError) as error:
            if not may_complain:
                raise Wrong(f"complained of {told()}: {error}") from error
            return "complaint"
        gradient = torch.autograd.grad(value.sum(), leaf)[0] if value.requires_grad else None
        if any(bool(each.isnan().any()) for each in (value, gradient) if each is not None):
            allowed = self._cross_entropy(logits, target, options, is_moving)
            try:
                self._no_nan(value, gradient, allowed, told)
            except Wrong:
                if self._is_beyond(loss, logits, target, arguments, options):
                    return "beyond the dtype's range"
                raise
        if self._is_checked(draw, logits, arguments, options, is_usual) and gradient is not None:
            self._check(loss, logits, target, arguments, options, value, gradient, told)
            return "as in float64"
        return "no NaN"

    def _layout(self, draw: random.Random) -> tuple[int, int, tuple[int, ...], int]:
        classes = draw.choice((2, 3, 3, 5, 5, 12))
        inner = draw.choice(((), (1,), (4,), (16,), (32,), (64,), (2, 2), (2, 1, 2), (0,)))
        axis = min(1, len(inner))
        return math.prod(inner), classes, (*inner[:axis], classes, *inner[axis:]), axis

    def _logits(self, draw: random.Random, generator: Any, shape: Any, dtype: Any) -> Any:
        """Logits, and whether they are of usual size."""
        torch = self.torch
        limit = torch.finfo(dtype).max
        scale = draw.choice(SCALES)
        logits = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
        kind = draw.choice(("usual", "usual", "extreme", "some", "ties", "masked"))
        if kind == "extreme":
            table = torch.tensor((*EXTREMES, limit, -limit), dtype=torch.float64)
            logits = table[torch.randint(len(table), shape, generator=generator)]
        elif kind == "some":
            chosen = torch.rand(shape, generator=generator) < 0.3
            logits = logits.masked_fill(chosen, draw.choice(EXTREMES))
        elif kind == "ties":
            logits = logits.mul(2 / scale).round().mul(scale)
        logits = logits.clamp(-limit, limit).to(dtype)
        if kind == "masked":
            logits = logits.masked_fill(torch.rand(shape, generator=generator) < 0.2, -math.inf)
        return logits, kind in ("usual", "ties")

    def _laid_out(self, draw: random.Random, logits: Any) -> Any:
        """The same numbers in another order of memory."""
        kind = draw.choice(("plain", "plain", "transposed", "strided"))
        if kind == "transposed":
            return logits.transpose(0, -1).contiguous().transpose(0, -1)
        if kind == "strided":
            return self.torch.stack([logits, -logits], -1)[..., 0]
        return logits

    def _options(
        self, draw: random.Random, generator: Any, logits: Any, axis: int, rows: int, classes: int
    ) -> tuple[Any, dict[str, Any], bool]:
        """Target and options of cross entropy, and whether smoothing is a tensor."""
        torch = self.torch
        layout = logits.shape[:axis] + logits.shape[axis + 1 :]
        options: dict[str, Any] = {"reduction": draw.choice(("mean", "sum", "none"))}
        if draw.random() < 0.3:
            parts = torch.rand(logits.shape, generator=generator, dtype=torch.float64)
            if draw.random() < 0.5:
                parts = parts.round()
            target = (parts / parts.sum(axis, keepdim=True).clamp(min=1e-3)).to(logits.dtype)
        else:
            target = torch.randint(classes, layout, generator=generator)
            target = target.to(draw.choice((torch.int64, torch.int64, torch.int32, torch.uint8)))
            if draw.random() < 0.2:
                options["ignore_index"] = draw.randrange(classes)
        if draw.random() < 0.25:
            weight = torch.rand(classes, generator=generator)
            options["weight"] = weight * (weight > 0.2)
        is_moving = False
        if draw.random() < 0.3:
            smoothing: Any = draw.choice((0.1, 0.1, 0.5, 1.0))
            is_moving = draw.random() < 0.2
            options["label_smoothing"] = torch.tensor(smoothing) if is_moving else smoothing
        return target, options, is_moving

    def _loss(
        self,
        draw: random.Random,
        generator: Any,
        rows: int,
        classes: int,
        options: dict[str, Any],
    ) -> tuple[str, dict[str, Any], bool]:
        """Name and arguments of a loss, and whether complaints may be right."""
        name = draw.choice(self.names) if draw.random() < 0.5 else "exact"
        if draw.random() < 0.02:
            options["weight"] = draw.choice(([1.0] * classes, "balanced", 3))
            return name, {}, True
        numbers = {
            "mixed": ("focus", (0.0, 0.25, 0.5, 0.4999999)),
            "focal": ("gamma", (0.0, 0.5, 2.0, 50.0)),
            "generalized_cross_entropy": ("q", (0.0, 1e-9, 0.7, 1.0, 30.0)),
            "tamed_cross_entropy": ("alpha", (0.0, 0.5, 1.0, 0.999999, 1.0000001, 5.0)),
            "hinge": ("margin", (0.0, 1.0, 1e30)),
            "complement_objective": ("balance", (0.0, 1.0, 5.0)),
        }
        if name != "exact":
            arguments: dict[str, Any] = {}
            if name in numbers and draw.random() < 0.7:
                key, values = numbers[name]
                arguments[key] = self._number(draw, draw.choice(values))
            if name == "hinge":
                arguments["rivals"] = draw.choice(("max", "sum", "mean"))
            if name == "generalized_cross_entropy" and draw.random() < 0.3:
                arguments["threshold"] = draw.choice((0.1, 0.5, 0.9))
            if name == "expected_cost":
                return name, *costs(draw, generator, classes)
            return name, arguments, False
        return name, *self._exact(draw, generator, rows, classes, options)

    def _exact(
        self, draw: random.Random, generator: Any, rows: int, classes: int, options: dict[str, Any]
    ) -> tuple[dict[str, Any], bool]:
        torch, links = self.torch, self.links
        link = draw.choice(
            (
                *("error", "log", "batch_log", "focal"),
                links.Mixed(draw.choice((0.0, 1.0)), draw.choice((1e-6, 1.0, 5.0))),
                links.Focused(draw.choice((0.0, 0.3, 0.5))),
                links.GCE(draw.choice((0.0, 1e-9, 0.7, 1.0, 5.0)), draw.choice((None, None, 0.2))),
                links.Focal(draw.choice((0.0, 0.5, 2.0, 10.0))),
                links.Tamed(draw.choice((0.0, 0.5, 1.0, 0.999999, 2.0))),
            )
        )
        if link == "batch_log":
            options["reduction"] = "mean"
        arguments: dict[str, Any] = {
            "noise": draw.choice(("normal", "logistic", "gumbel")),
            "link": link,
        }
        may_complain = False
        kind = draw.choice(
            (*5 * ("number",), *2 * ("row",), *2 * ("tensor",), "class", "wrong", "")
        )
        sigma = draw.choice(SIGMAS)
        if kind == "number":
            arguments["sigma"] = sigma
        elif kind == "tensor":
            arguments["sigma"] = torch.tensor(sigma, requires_grad=draw.random() < 0.5)
        elif kind in ("row", "class") and 0 < rows <= (16 if kind == "class" else 64):
            shape = (rows,) if kind == "row" else (draw.choice((1, rows)), classes)
            spread = torch.rand(shape, generator=generator).sub(0.5).mul(draw.choice((0, 2, 8)))
            each = draw.choice((1.0, 1.0, 0.3, 1e-4, 1e4, 1e-30, 1e30)) * spread.exp()
            if draw.random() < 0.1:
                each.flatten()[0] = draw.choice((math.nan, math.inf, 0.0, -1.0))
                may_complain = True
            arguments["sigma"] = each.requires_grad_(draw.random() < 0.5)
            # Several axes of rows have no sigma of classes.
            may_complain = True
        elif kind == "wrong":
            arguments["sigma"], may_complain = draw.choice(WRONG_SIGMAS), True
        if draw.random() < 0.25:
            margin = draw.choice((0.0, 1.0, 10.0, 1e30))
            arguments["margin"] = self._number(draw, margin)
        if draw.random() < 0.2:
            arguments["normalize"] = True
        if draw.random() < 0.2:
            arguments["method"] = draw.choice(("quadrature", "gridded"))
            may_complain = may_complain or arguments["method"] == "gridded"
        return arguments, may_complain

    def _number(self, draw: random.Random, value: float) -> Any:
        """As it is, or as a schedule has it."""
        return self.torch.tensor(value, dtype=self.torch.float64) if draw.random() < 0.2 else value

    def _value(self, loss: str, logits: Any, target: Any, arguments: dict[str, Any]) -> Any:
        return getattr(self.hitrate, f"{loss}_loss")(logits, target, **arguments)

    def _cross_entropy(
        self, logits: Any, target: Any, options: dict[str, Any], is_moving: bool
    ) -> tuple[Any, Any]:
        """Which values and gradients of cross entropy's are NaN."""
        torch = self.torch
        leaf = logits.detach().clone()
        leaf = (leaf if leaf.dtype == torch.float64 else leaf.float()).requires_grad_()
        given = {name: value for name, value in options.items() if name not in NAMES}
        if is_moving:
            given["label_smoothing"] = float(given["label_smoothing"])
        if given.get("weight") is not None:
            given["weight"] = given["weight"].to(leaf.dtype)
        labels = target.to(leaf.dtype) if target.is_floating_point() else target.long()
        value = torch.nn.functional.cross_entropy(leaf, labels, **given)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach().isnan(), gradient.isnan()

    def _is_beyond(
        self, loss: str, logits: Any, target: Any, arguments: dict[str, Any], options: Any
    ) -> bool:
        """Whether float64 says that a row's value or gradient has no place in the logits' dtype.

        Class weights and costs times logits of 1e38, and sigmas of 1e-30, lead there; in float64,
        sums of rows whose losses have both signs, as those of the maximum Mahalanobis centre may.
        """
        torch = self.torch
        given = {**arguments, **options}
        if given.get("link") != "batch_log":
            given["reduction"] = "none"
        if logits.dtype == torch.float64:
            largest = logits.detach().masked_fill(logits.isinf(), 0.0).abs().amax()
            if float(largest) > 1e300 and not options.keys().isdisjoint(NAMES):
                return True
            rows = self._value(loss, logits.detach(), target, given)
            return bool(rows.isfinite().all() and rows.abs().sum().isinf())
        leaf = logits.detach().double().requires_grad_()
        labels = target.double() if target.is_floating_point() else target
        truth = self._value(loss, leaf, labels, given)
        found = [truth.detach(), torch.autograd.grad(truth.sum(), leaf)[0]]
        # Infinities are those of masked classes.
        finite = [each.masked_fill(~each.isfinite(), 0.0).abs().amax() for each in found]
        return max(map(float, finite)) > 0.01 * torch.finfo(logits.dtype).max

    def _no_nan(
        self, value: Any, gradient: Any, allowed: tuple[Any, Any], told: Callable[[], str]
    ) -> None:
        in_value, in_gradient = allowed
        if bool((value.detach().isnan() & ~in_value).any()):
            raise Wrong(f"NaN value of {told()}")
        if gradient is None or bool(in_value.any()):
            return
        if bool((gradient.isnan() & ~in_gradient).any()):
            raise Wrong(f"NaN gradient of {told()}")

    def _is_checked(
        self,
        draw: random.Random,
        logits: Any,
        arguments: dict[str, Any],
        options: dict[str, Any],
        is_usual: bool,
    ) -> bool:
        torch = self.torch
        if draw.random() > CHECKED or not is_usual or not logits.numel():
            return False
        if logits.dtype == torch.float64:
            return False
        if float(arguments.get("focus", 0.0)) > 0.49 or arguments.get("q") == 1e-9:
            # Terms a million times their sum, in which float32 has no digits.
            return False
        sigma = arguments.get("sigma", 1.0)
        least = float(sigma.detach().min()) if isinstance(sigma, torch.Tensor) else sigma
        if isinstance(sigma, torch.Tensor) and sigma.numel() > 1 and sigma.max() > 30 * least:
            return False
        spread = float(logits.detach().double().abs().max())
        return 1e-3 <= least <= 1e3 and spread <= USUAL * min(least, 1.0)

    def _check(
        self,
        loss: str,
        logits: Any,
        target: Any,
        arguments: dict[str, Any],
        options: dict[str, Any],
        value: Any,
        gradient: Any,
        told: Callable[[], str],
    ) -> None:
        """Against float64, as far as the rounding of logits in float32 lets the result be known."""
        torch = self.torch
        found = []
        labels = target.double() if target.is_floating_point() else target
        for shift in (0.0, 2**-23, -(2**-23)):
            leaf = logits.detach().double()
            sign = torch.ones_like(leaf)
            sign.flatten()[::2] = -1.0
            leaf = (leaf * (1 + shift * sign)).requires_grad_()
            truth = self._value(loss, leaf, labels, {**arguments, **options})
            found.append((truth.detach(), torch.autograd.grad(truth.sum(), leaf)[0]))
        (truth, slope), *others = found
        least = {torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}[logits.dtype]
        slack = 5e-5 * truth.abs().clamp(min=1.0)
        slack = slack + 10 * sum((other - truth).abs() for other, _ in others)
        if bool(((value.detach().double() - truth).abs() > slack).any()):
            raise Wrong(f"value {value.tolist()} for {truth.tolist()} of {told()}")
        largest = slope.abs().amax().clamp(min=1e-30)
        slack = (least + 2e-4) * largest
        # Twelve terms of size one may cancel.
        slack = slack + 10 * sum((other - slope).abs() for _, other in others) + 1e-6
        # Numbers that the logits' dtype does not have; subnormal ones of float16 are 6e-8 apart.
        slack = slack + (3e-7 if logits.dtype == torch.float16 else 0.0)
        slack = slack.masked_fill(slope.abs() > torch.finfo(logits.dtype).max, math.inf)
        if bool(((gradient.double() - slope).abs() > slack).any()):
            raise Wrong(f"gradient {gradient.tolist()} for {slope.tolist()} of {told()}")
