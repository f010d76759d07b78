"""Which way a call is computed, and why: the one place that decides.

A `Request` holds the facts of a call, no values. Each `Way` says what keeps it from a request; the
first that nothing keeps is taken. A method or backend asked for by name runs or raises. New ways
stand in `WAYS`, before all that they are faster than.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from hitrate.probability.noises import Noise

METHODS = ("auto", "quadrature", "gridded", "genz", "monte_carlo")
BACKENDS = ("auto", "torch", "triton")
# Found without importing it, and here: a compiler cannot trace the search.
HAS_TRITON = find_spec("triton") is not None
# A way that serves whatever method or backend was asked for.
ANY = "any"
# How many of the highest the kernels count up to.
KERNEL_K = 10
KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Request(NamedTuple):
    """What a way may depend on."""

    noise: Noise
    classes: int
    dtype: torch.dtype
    device: str
    per_class: bool = False
    compiling: bool = False
    method: str = "auto"
    backend: str = "auto"
    has_nodes: bool = False
    # How many of the highest count as a hit.
    k: int = 1
    # Whether Triton's interpreter stands in for a GPU.
    interprets: bool = False
    has_margin: bool = False
    # All p_c are wanted, for soft targets.
    all_classes: bool = False
    # What keeps a whole loss from being one kernel, as far as the loss knows; None if it is no
    # loss, "" if nothing does.
    not_fused: str | None = None
    # The same for value and gradient at once, in few operations on a CPU.
    not_few: str | None = None

    @classmethod
    def of(
        cls,
        noise: Noise,
        logits: Tensor,
        sigma: float | Tensor,
        *,
        margin: float | Tensor | None = None,
        nodes: int | None = None,
        **facts: Any,
    ) -> Request:
        """The request of a call with these arguments; the other facts by their names."""
        return cls(
            noise,
            logits.shape[1],
            logits.dtype,
            logits.device.type,
            per_class=isinstance(sigma, Tensor) and sigma.dim() == 2 and sigma.shape[1] > 1,
            compiling=torch.compiler.is_compiling(),
            has_nodes=nodes is not None,
            interprets=os.environ.get("TRITON_INTERPRET") == "1",
            has_margin=margin is not None,
            **facts,
        )


class Way(NamedTuple):
    """A way to compute: its name, what asks for it, what it is, and what keeps it from a call."""

    name: str
    method: str
    backend: str
    says: str
    why_not: Callable[[Request], str | None]


class Choice(NamedTuple):
    """The way that is taken, and why those before it are not."""

    way: str
    backend: str
    says: str
    passed_over: tuple[tuple[str, str], ...]
    # Whether a loss has its value and gradient at once, in few operations on a CPU.
    at_once: bool = False

    def __str__(self) -> str:
        lines = [f"{self.way} ({self.backend}): {self.says}"]
        lines += [f"  not {name}: {why}" for name, why in self.passed_over]
        return "\n".join(lines)


def choose(request: Request, call: object) -> Choice:
    """The way to go; a ValueError, which begins with the call, if there is none."""
    # A compiler traces the search itself: its result is a constant of the graph.
    try:
        found = _choose(request) if request.compiling else _choose_once(request)
    except TypeError:
        # A noise of one's own need not have a hash.
        found = _choose(request)
    if isinstance(found, Choice):
        return found
    raise ValueError(f"{call}: {found}")


def _choose(request: Request) -> Choice | str:
    """The choice, or what to complain of."""
    if request.backend not in BACKENDS:
        return f"backend is not one of {', '.join(map(repr, BACKENDS))}"
    if request.method not in METHODS:
        return f"method is not one of {', '.join(map(repr, METHODS))}"
    passed: list[tuple[str, str]] = []
    for way in WAYS:
        why = _not_asked_for(way, request)
        if why is None:
            why = way.why_not(request)
        if why is None:
            at_once = way.name in AT_ONCE and _why_not_at_once(request) is None
            return Choice(way.name, way.backend, way.says, tuple(passed), at_once)
        if why:
            passed.append((way.name, why))
    what = f"method {request.method!r}" if request.backend == "auto" else "the triton backend"
    return f"{what} cannot run: {'; '.join(dict.fromkeys(why for _, why in passed))}"


_choose_once = functools.lru_cache(maxsize=4096)(_choose)


def _not_asked_for(way: Way, request: Request) -> str | None:
    """Empty if nobody asked for such a way; what was asked for instead, if that is worth a word."""
    if request.backend not in ("auto", way.backend) and way.backend != ANY:
        return ""
    if way.method == ANY:
        return None
    if request.method == "auto":
        # References run by name only.
        return "" if way.method in ("genz", "monte_carlo") else None
    if way.backend == "triton":
        return "the kernels choose method and nodes themselves"
    return None if way.method == request.method else ""


def _why_not_top_1(request: Request) -> str | None:
    """What keeps away all that knows the highest score only."""
    return None if request.k == 1 else f"it is for k = 1, and k is {request.k}"


def _why_no_kernel(request: Request) -> str | None:
    kernel = request.noise.kernel if request.k == 1 else request.noise.top_k_kernel
    if kernel is None:
        return f"there is no kernel for {request.noise.name} noise"
    if request.k > KERNEL_K:
        return f"the kernel is for k up to {KERNEL_K}, and k is {request.k}"
    if request.all_classes:
        return "the kernels have one target per row"
    return _why_no_triton(request)


def _why_no_triton(request: Request) -> str | None:
    """What keeps every kernel away."""
    if request.per_class:
        return "the kernels take one sigma per row, not one per class"
    if request.has_nodes:
        return "the kernels choose method and nodes themselves"
    if request.dtype not in KERNEL_DTYPES:
        return f"the kernels compute in float32, the logits are {request.dtype}"
    if request.device != "cuda" and request.backend == "auto":
        return f"the logits are on {request.device}"
    if not HAS_TRITON:
        return "triton is not installed"
    if request.device != "cuda" and not request.interprets:
        return f"the logits are on {request.device}, without TRITON_INTERPRET=1"
    return None


def _why_not_fused(request: Request) -> str | None:
    if request.not_fused is None:
        return ""
    if request.k > 1:
        return _why_not_top_1(request)
    if request.compiling:
        return "a compiler fuses the loss itself"
    of_all = request.noise.loss_kernel or (request.all_classes and request.noise.classes_kernel)
    if not of_all:
        return _why_no_kernel(request) or request.not_fused or None
    if request.all_classes and request.has_margin:
        return "with a margin each class has its own"
    return _why_no_triton(request) or request.not_fused or None


def _why_not_at_once(request: Request) -> str | None:
    if request.not_few is None or request.device != "cpu":
        return ""
    if request.compiling:
        return "a compiler fuses the loss itself"
    if request.all_classes:
        return "targets are of all classes"
    return request.not_few or None


def _why_no_softmax(request: Request) -> str | None:
    if request.noise.loss_kernel != "gumbel":
        return ""
    if request.has_margin:
        return "with a margin a loss goes step by step"
    return _why_not_at_once(request) if request.k == 1 else _why_not_top_1(request)


def _why_no_closed_form(request: Request) -> str | None:
    if request.noise.closed_form is None:
        return f"{request.noise.name} noise has none"
    if request.k > 1:
        return _why_not_top_1(request)
    if request.per_class:
        return "with one sigma per class there is none"
    if request.all_classes and request.has_margin:
        return "with a margin each class has its own"
    return None


def _why_not_two_classes(request: Request) -> str | None:
    if request.noise.two_classes is None:
        return ""
    if request.classes != 2 or request.k > 1:
        return ""
    if request.per_class:
        return "with one sigma per class there is none"
    return "" if request.all_classes else None


def _why_not_shared(request: Request) -> str | None:
    """Whether all classes can share their nodes."""
    if not request.all_classes:
        return ""
    if request.k > 1:
        return _why_not_top_1(request)
    if request.has_margin:
        return "with a margin each class has an integral of its own"
    if request.per_class:
        return "with one sigma per class each class has an integral of its own"
    if request.method != "auto" or request.has_nodes or request.backend == "triton":
        return "method, backend or nodes were asked for"
    return None


def _why_not_each(request: Request) -> str | None:
    return None if request.all_classes else ""


def _one_sigma(ability: str) -> Callable[[Request], str | None]:
    """For a method that the noise itself has, with one sigma per row."""

    def why_not(request: Request) -> str | None:
        if getattr(request.noise, ability) is None:
            owners = "normal noise" if ability in ("gridded", "genz") else "others"
            return f"{ability} is for {owners}"
        if request.per_class:
            return f"{ability} takes one sigma per row, not one per class"
        if request.k > 1:
            return f"{ability} is for k = 1, and k is {request.k}"
        return None

    return why_not


def _why_not_gridded(request: Request) -> str | None:
    why = _one_sigma("gridded")(request)
    if why is not None:
        return why
    if request.compiling:
        return "gridded looks at values and cannot be compiled"
    if request.method == "gridded":
        return None
    if request.dtype == torch.float64:
        return "float64 wants more digits than the grid's default has"
    return None if request.device == "cpu" else "looking at values would wait for the device"


def _why_no_monte_carlo(request: Request) -> str | None:
    return "monte_carlo takes one sigma per row, not one per class" if request.per_class else None


def _why_not_top_k(request: Request) -> str | None:
    if request.k == 1:
        return ""
    if request.noise.top_k is None:
        return f"{request.noise.name} noise has no nodes of its own for k > 1"
    if request.per_class:
        return "its own nodes are for one sigma per row, not one per class"
    if request.has_nodes:
        return "nodes were asked for"
    if request.compiling:
        return "its own nodes look at values and cannot be compiled"
    if request.dtype == torch.float64:
        return "its own nodes have the accuracy of float32"
    return None if request.device == "cpu" else "looking at values would wait for the device"


def _why_not_general_top_k(request: Request) -> str | None:
    return None if request.k > 1 else ""


def _never(request: Request) -> str | None:
    return None


WAYS = (
    Way("fused", "auto", "triton", "the whole loss in one kernel", _why_not_fused),
    Way("softmax", "auto", "torch", "the softmax and its link at once", _why_no_softmax),
    Way("closed_form", "auto", "torch", "p has a closed form", _why_no_closed_form),
    Way("all_classes", "auto", "torch", "all classes share their nodes", _why_not_shared),
    Way("each_class", ANY, ANY, "each class in turn as the target", _why_not_each),
    Way("kernel", "auto", "triton", "log p and its gradient in one kernel", _why_no_kernel),
    Way("two_classes", "auto", "torch", "two classes have a closed form", _why_not_two_classes),
    Way("gridded", "gridded", "torch", "rivals as moments", _why_not_gridded),
    Way("quadrature", "quadrature", "torch", "the noise's own rule", _one_sigma("quadrature")),
    Way("top_k", "quadrature", "torch", "rivals ahead are counted, few nodes", _why_not_top_k),
    Way(
        *("general_top_k", "quadrature", "torch"),
        *("rivals ahead are counted, panels that suit any noise", _why_not_general_top_k),
    ),
    Way("general_quadrature", "quadrature", "torch", "panels that suit any noise", _never),
    Way("genz", "genz", "torch", "the paper's sampler", _one_sigma("genz")),
    Way("monte_carlo", "monte_carlo", "torch", "draws of all scores", _why_no_monte_carlo),
)

# Ways by which a loss may have its value and gradient at once.
AT_ONCE = ("softmax", "two_classes", "gridded", "quadrature", "top_k")


def is_transformed(a: Tensor) -> bool:
    """Whether a tensor is inside a transform of torch.func, or has a tangent."""
    if torch._C._are_functorch_transforms_active():
        return True
    # Outside of forward mode no tensor has one: the quick answer, for every training step.
    if getattr(forward_ad, "_current_level", 0) < 0:
        return False
    return forward_ad.unpack_dual(a).tangent is not None  # type: ignore[no-untyped-call]
