"""The noises: what is added to the logits before the highest score is read off.

A noise *is* a density, a distribution and a sampler; that is enough for everything here, by general
quadrature. What else it has, such as a closed form or a kernel, it declares, and only what a class
itself declares counts: a subclass with another density does not inherit the kernel of its parent.
"""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from hitrate.probability import normal
from hitrate.probability.methods import class_nodes, closed_forms, top_k_near
from hitrate.probability.methods.genz import genz
from hitrate.probability.methods.gridded import gridded
from hitrate.probability.methods.quadrature import quadrature


class Shape(NamedTuple):
    """Where the density is highest, and how far from there its logarithm has fallen by a half."""

    peak: float
    width: float


class Noise:
    """One noise variable: subclass it, give it a name, a density, a distribution and a sampler.

    The density should have one peak; kinks of it are named in `kinks`. See CONTRIBUTING.md.

    Attributes
    ----------
    name : str
        What ``noise=`` calls it.
    kinks : tuple of float
        Where the density is not smooth; integrals are split there.
    closed_form : callable, optional
        (logits, target, sigma, margin, learned) -> log p, for any number of classes, by functions
        that torch differentiates. With it comes `closed_form_of_classes`, scaled logits -> all
        log p_c.
    two_classes : callable, optional
        A closed form for two classes: margins (N, 2) -> log p and slope.
    quadrature, gridded, genz : callable, optional
        What ``method=`` of that name runs, with one sigma per row. Without `quadrature` the
        general one serves; the others are then refused.
    top_k : callable, optional
        Value and slopes of log p to be among the k highest, on a CPU in float32.
    class_nodes : callable, optional
        Nodes that serve all classes at once, see `hitrate.probability.methods.class_nodes`.
    kernel : str, optional
        The noise's name in `hitrate.kernels`, for log p and for losses of one class per row.
    top_k_kernel : str, optional
        The same for log p to be among the k highest.
    classes_kernel : str, optional
        The same for all classes of a row at once, and losses of them.
    loss_kernel : str, optional
        The same for losses alone, whatever their targets are.
    has_linear_tails : bool, optional
        Whether log f falls evenly on the right, and log F as steeply on the left or more: far from
        zero log p is then as many times larger as margins are, however large.

    Examples
    --------
    >>> import math, torch, hitrate
    >>> from hitrate.probability import Noise
    >>> class Laplace(Noise):
    ...     name = "laplace"
    ...     kinks = (0.0,)
    ...
    ...     def log_density(self, t):
    ...         return -t.abs() - math.log(2)
    ...
    ...     def log_cdf(self, x):
    ...         half = 0.5 * torch.exp(-x.abs())
    ...         return torch.where(x < 0, x - math.log(2), torch.log1p(-half))
    ...
    ...     def sample(self, shape, dtype, device, generator):
    ...         e = torch.empty(2, *shape, dtype=dtype, device=device)
    ...         return e.exponential_(generator=generator).diff(dim=0)[0]
    >>> logits = torch.tensor([[2.0, 1.0, 0.0]])
    >>> hitrate.expected_accuracy(logits, torch.tensor([0]), noise=Laplace())
    tensor([0.6713])
    """

    name: ClassVar[str]
    kinks: ClassVar[tuple[float, ...]] = ()
    closed_form: ClassVar[Any] = None
    closed_form_of_classes: ClassVar[Any] = None
    two_classes: ClassVar[Any] = None
    quadrature: ClassVar[Any] = None
    gridded: ClassVar[Any] = None
    genz: ClassVar[Any] = None
    top_k: ClassVar[Any] = None
    class_nodes: ClassVar[Any] = None
    kernel: ClassVar[str | None] = None
    top_k_kernel: ClassVar[str | None] = None
    classes_kernel: ClassVar[str | None] = None
    loss_kernel: ClassVar[str | None] = None
    has_linear_tails: ClassVar[bool | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # What is true of a parent's distribution need not be true of this one.
        for ability in ABILITIES:
            if ability not in vars(cls):
                setattr(cls, ability, None)
        if not isinstance(getattr(cls, "name", None), str):
            raise TypeError(f"class {cls.__name__}(Noise): needs a name, as in name = 'laplace'")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._parameters().items())
        return f"{type(self).__name__}({shown})"

    def _parameters(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in FOUND}

    # Two of a kind with the same parameters are the same noise.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Noise) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return type(self), tuple(self._parameters().items())

    def log_density(self, t: Tensor) -> Tensor:
        """log f(t)."""
        raise NotImplementedError

    def log_cdf(self, x: Tensor) -> Tensor:
        """log F(x), with full relative accuracy in both tails."""
        raise NotImplementedError

    def sample(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Independent draws."""
        raise NotImplementedError

    def log_cdf_and_log_hazard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log F(x) and log h(x), h = f / F; differentiable by torch."""
        log_cdf = self.log_cdf(x)
        return log_cdf, self.log_density(x) - log_cdf

    def log_cdf_and_hazard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log F(x) and h(x), the slope of log F."""
        log_cdf, log_hazard = self.log_cdf_and_log_hazard(x)
        return log_cdf, log_hazard.exp()

    def score(self, t: Tensor) -> Tensor:
        """-(log f)'(t)."""
        pull = torch.func.vjp(self.log_density, t)[1]
        slope: Tensor = pull(torch.ones_like(t))[0]
        return -slope

    def hazard_slope(self, x: Tensor) -> Tensor:
        """h'(x) = -h (score + h)."""
        hazard = self.log_cdf_and_hazard(x)[1]
        # Where nothing is left of h its slope is nothing too, however steep the density.
        return torch.where(hazard > 0, -hazard * (self.score(x) + hazard), 0.0)

    def weight_of_draws(self, e: Tensor) -> Tensor:
        """What a draw of all classes (..., C) weighs in the log-derivative gradient."""
        return self.score(e)

    def reach(self, drop: float) -> tuple[float, float]:
        """Left and right distance from the peak at which log f has fallen by `drop`."""
        known = self.__dict__.setdefault("reaches", {})
        if drop not in known:
            known[drop] = _reach_from(self, self.shape.peak, drop)
        found: tuple[float, float] = known[drop]
        return found

    @functools.cached_property
    def shape(self) -> Shape:
        """Where the density is, and how wide."""
        return _shape(self)


# What is found out about a noise, and kept with it.
FOUND = ("reaches", "shape")
ABILITIES = (
    "closed_form",
    "closed_form_of_classes",
    "two_classes",
    "quadrature",
    "gridded",
    "genz",
    "top_k",
    "class_nodes",
    "kernel",
    "top_k_kernel",
    "classes_kernel",
    "loss_kernel",
    "has_linear_tails",
)


class Normal(Noise):
    """Standard normal noise: EXACT and the multinomial probit."""

    name = "normal"
    kernel = "normal"
    top_k_kernel = "normal"
    classes_kernel = "all_normal"
    two_classes = staticmethod(closed_forms.two_classes)
    quadrature = staticmethod(quadrature)
    gridded = staticmethod(gridded)
    genz = staticmethod(genz)
    top_k = staticmethod(top_k_near.normal)
    class_nodes = staticmethod(class_nodes.normal)

    log_density = staticmethod(normal.log_density)
    log_cdf_and_hazard = staticmethod(normal.log_cdf_and_hazard)
    log_cdf_and_log_hazard = staticmethod(normal.log_cdf_and_log_hazard)
    hazard_slope = staticmethod(normal.hazard_slope)
    shape = Shape(0.0, 1.0)

    def log_cdf(self, x: Tensor) -> Tensor:
        """log Phi(x)."""
        return normal.log_cdf_and_hazard(x)[0]

    def score(self, t: Tensor) -> Tensor:
        """The draw itself."""
        return t

    def weight_of_draws(self, e: Tensor) -> Tensor:
        """e - mean(e): p depends on differences of scores alone, whose density weighs so."""
        return e - e.mean(dim=-1, keepdim=True)

    def reach(self, drop: float) -> tuple[float, float]:
        """The same on both sides: sqrt(2 drop)."""
        return math.sqrt(2.0 * drop), math.sqrt(2.0 * drop)

    def sample(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Draws from N(0, 1)."""
        return torch.randn(shape, dtype=dtype, device=device, generator=generator)


class Logistic(Noise):
    """Standard logistic noise: heavier tails than normal, F is the sigmoid."""

    name = "logistic"
    kernel = "logistic"
    top_k_kernel = "logistic"
    classes_kernel = "all_logistic"
    has_linear_tails = True
    top_k = staticmethod(top_k_near.logistic)
    class_nodes = staticmethod(class_nodes.logistic)
    shape = Shape(0.0, 1.0)

    def log_density(self, t: Tensor) -> Tensor:
        """log sigmoid(t) + log sigmoid(-t)."""
        return -t.abs() - 2.0 * torch.log1p(torch.exp(-t.abs()))

    def score(self, t: Tensor) -> Tensor:
        """tanh(t / 2)."""
        return torch.tanh(0.5 * t)

    def log_cdf(self, x: Tensor) -> Tensor:
        """log sigmoid(x)."""
        return torch.nn.functional.logsigmoid(x)

    def log_cdf_and_log_hazard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log sigmoid(x) and log sigmoid(-x)."""
        log_cdf = torch.nn.functional.logsigmoid(x)
        return log_cdf, log_cdf - x

    def log_cdf_and_hazard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log sigmoid(x) and sigmoid(-x)."""
        return torch.nn.functional.logsigmoid(x), torch.sigmoid(-x)

    def hazard_slope(self, x: Tensor) -> Tensor:
        """-sigmoid(x) sigmoid(-x)."""
        return -torch.sigmoid(x) * torch.sigmoid(-x)

    def reach(self, drop: float) -> tuple[float, float]:
        """The same on both sides: both tails fall like exp(-|t|)."""
        return drop + 2.0, drop + 2.0

    def sample(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Draws by inversion: logit of a uniform."""
        uniform = torch.rand(shape, dtype=dtype, device=device, generator=generator)
        return torch.logit(uniform, eps=torch.finfo(dtype).tiny)


class Gumbel(Noise):
    """Standard Gumbel noise: p is the softmax, so -log p is cross entropy."""

    name = "gumbel"
    top_k_kernel = "gumbel"
    loss_kernel = "gumbel"
    has_linear_tails = True
    closed_form = staticmethod(closed_forms.log_softmax_of_target)
    closed_form_of_classes = staticmethod(closed_forms.log_softmax_of_classes)
    top_k = staticmethod(top_k_near.gumbel)
    shape = Shape(0.0, 1.0)

    def log_density(self, t: Tensor) -> Tensor:
        """-t - exp(-t)."""
        return -t - torch.exp(-t)

    def score(self, t: Tensor) -> Tensor:
        """1 - exp(-t)."""
        return -torch.expm1(-t)

    def log_cdf(self, x: Tensor) -> Tensor:
        """-exp(-x)."""
        return -torch.exp(-x)

    def log_cdf_and_log_hazard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """-exp(-x) and -x."""
        return -torch.exp(-x), -x

    def log_cdf_and_hazard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """-exp(-x) and exp(-x)."""
        hazard = torch.exp(-x)
        return -hazard, hazard

    def hazard_slope(self, x: Tensor) -> Tensor:
        """-exp(-x)."""
        return -torch.exp(-x)

    def reach(self, drop: float) -> tuple[float, float]:
        """Doubly exponential on the left, exp(-t) on the right."""
        return math.log(drop + math.log(drop + 2.0) + 2.0) + 0.5, drop + 2.0

    def sample(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Draws by inversion: -log of an exponential."""
        draws = torch.empty(shape, dtype=dtype, device=device)
        return -draws.exponential_(generator=generator).clamp_min(torch.finfo(dtype).tiny).log()


NORMAL, LOGISTIC, GUMBEL = Normal(), Logistic(), Gumbel()
NOISES: dict[str, Noise] = {noise.name: noise for noise in (NORMAL, LOGISTIC, GUMBEL)}


def register_noise(noise: Noise) -> Noise:
    """Make a noise known by its name, after a look at whether its parts fit together.

    Parameters
    ----------
    noise : Noise

    Returns
    -------
    Noise
        The same, so that ``LAPLACE = register_noise(Laplace())`` reads well.
    """
    if not isinstance(noise, Noise):
        raise TypeError(f"register_noise({noise!r}): not a Noise")
    known = NOISES.get(noise.name)
    if known is not None and type(known) is not type(noise):
        raise ValueError(f"register_noise({noise!r}): {noise.name!r} is the name of {known!r}")
    check_noise(noise)
    NOISES[noise.name] = noise
    return noise


def check_noise(noise: Noise) -> None:
    """Complain about a noise whose density, distribution and sampler do not fit together."""
    call = f"register_noise({noise!r})"
    peak, width = noise.shape
    x = peak + width * torch.linspace(-6.0, 6.0, 97, dtype=torch.float64)
    # Differences say nothing where the slope jumps.
    for kink in noise.kinks:
        x = x[(x - kink).abs() > 1e-3 * width]
    step = 1e-5 * width
    log_f, log_cdf = noise.log_density(x), noise.log_cdf_and_log_hazard(x)[0]
    slope = (noise.log_cdf(x + step) - noise.log_cdf(x - step)) / (2 * step)
    hazard = (log_f - log_cdf).exp()
    if not bool(torch.isclose(slope, hazard, rtol=1e-4, atol=1e-7 / width).all()):
        raise ValueError(f"{call}: log_cdf is not the integral of exp(log_density)")
    generator = torch.Generator().manual_seed(0)
    draws = noise.sample((4000,), torch.float64, torch.device("cpu"), generator)
    levels = noise.log_cdf(draws.sort()[0]).exp()
    even = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    # Kolmogorov's distance of a true sample of 4000 is above 0.04 once in 200,000.
    if not float((levels - even).abs().max()) < 0.04:
        raise ValueError(f"{call}: sample does not draw from the distribution log_cdf")


def _shape(noise: Noise) -> Shape:
    """The highest point of a density, found on ever finer grids, and the width of its top."""
    middle, radius = 0.0, 1e6
    for round_ in range(12):
        grid = torch.linspace(-1.0, 1.0, 4001, dtype=torch.float64)
        # The first grid has all sizes, from 1e-6 to 1e6.
        grid = torch.sinh(14.5 * grid) / math.sinh(14.5) if round_ == 0 else grid
        t = middle + radius * grid
        best = int(noise.log_density(t).nan_to_num(-math.inf).argmax())
        middle = float(t[best])
        around = t[max(best - 1, 0)], t[min(best + 1, 4000)]
        radius = max(float(around[1] - middle), float(middle - around[0]))
    left, right = _reach_from(noise, middle, 0.5)
    return Shape(middle, 0.5 * (left + right))


def _reach_from(noise: Noise, peak: float, drop: float) -> tuple[float, float]:
    """Distances, within 1 %, at which log f is `drop` below its value at the peak."""
    distance = torch.logspace(-8.0, 12.0, 4001, dtype=torch.float64)
    top = noise.log_density(torch.tensor([peak], dtype=torch.float64))
    found = []
    for sign in (-1.0, 1.0):
        fallen = noise.log_density(peak + sign * distance).nan_to_num(-math.inf) < top - drop
        found.append(float(distance[int(fallen.to(torch.int8).argmax())]) if fallen.any() else 1e12)
    return found[0], found[1]
