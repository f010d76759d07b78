"""Figures 8 and 9 of the EXACT paper: error of p and of its gradient against the sample size.

    python benchmarks/figures_8_9.py --out results

Every point is a root-mean-square error over repetitions with different random numbers (the paper
used 1000). For the gradient it is the root of the mean squared Euclidean norm of the error of
dp/dm, all ten margins together; the error per component is smaller by sqrt(10), in all curves.
The truth is a float64 quadrature where the paper took one run with a million samples. The
estimates are computed in float32.

The paper does not say in which order Genz's algorithm integrates over the rivals, and the order
decides the result here: the curve "given order" takes the margins as the paper lists them, the
curve "hardest first" sorts them, as Genz advises and as ``method="genz"`` does.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch
from scipy.integrate import quad
from scipy.special import log_ndtr
from torch import Tensor

from hitrate.probability.margins import ABSENT
from hitrate.probability.methods.genz import genz
from hitrate.probability.methods.monte_carlo import monte_carlo
from hitrate.probability.noises import NOISES
from hitrate_lab.pages.made import png_of
from hitrate_lab.pages.measured.bench_pictures import LABELS, sampling_error

# The ten margins of the paper's Appendix C, with sigma = 1.
MARGINS = (1.0, 2.0, 0.5, 10.0, 6.0, -3.0, -4.0, 5.0, 1.0, 0.0)
# The paper's range ends near 4096. Monte Carlo goes on until its gradient is as good as that of one
# sample of Genz in the given order.
SAMPLE_SIZES = tuple(2**k for k in range(15))
Estimate = Callable[..., tuple[Tensor, Tensor]]
METHODS: dict[str, tuple[Estimate, tuple[int, ...]]] = {
    "monte_carlo": (partial(monte_carlo, noise=NOISES["normal"]), SAMPLE_SIZES),
    "genz_given_order": (partial(genz, reorder=False), SAMPLE_SIZES[:-2]),
    "genz": (genz, SAMPLE_SIZES[:-2]),
}


def figures_8_9(out: Path, seeds: int = 1000) -> dict[str, Any]:
    """Measure, draw ``figure_8.png`` and ``figure_9.png``, write ``figures_8_9.json``.

    Parameters
    ----------
    out : Path
        Folder for the three files, created when missing.
    seeds : int
        Number of repetitions behind every point.

    Returns
    -------
    dict
        What the JSON file holds.
    """
    p, gradient = truth()
    curves = {
        method: [measure(estimate, samples, seeds, p, gradient) for samples in sizes]
        for method, (estimate, sizes) in METHODS.items()
    }
    value_error, gradient_error = quadrature_error(p, gradient)
    result: dict[str, Any] = {
        "margins": list(MARGINS),
        "seeds": seeds,
        "dtype": "float32",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "truth": {"p": p, "gradient": gradient.tolist(), "scipy": scipy.__version__},
        "definition": {
            "value_rmse": "sqrt(mean over seeds of (p_hat - p)^2)",
            "gradient_rmse": "sqrt(mean over seeds of the squared Euclidean norm of the error)",
            "interval": "95 %, bootstrap over seeds",
        },
        "curves": curves,
        "quadrature": {"value_rmse": value_error, "gradient_rmse": gradient_error},
        "one_sample_rmse": {
            method: {name: one_sample_rmse(points, name) for name in ("value", "gradient")}
            for method, points in curves.items()
        },
    }
    result["monte_carlo_samples_equal_to_one_genz_sample"] = equivalents(result)
    out.mkdir(parents=True, exist_ok=True)
    (out / "figures_8_9.json").write_text(json.dumps(result, indent=2) + "\n")
    for number, name in ((8, "value"), (9, "gradient")):
        (out / f"figure_{number}.png").write_bytes(png_of(sampling_error(result, name)))
    return result


def truth() -> tuple[float, np.ndarray]:
    """p and dp/dm by adaptive quadrature in float64."""
    margins = np.array(MARGINS)

    def log_integrand(t: float) -> float:
        return -0.5 * t * t - 0.5 * math.log(2 * math.pi) + float(log_ndtr(margins + t).sum())

    def tie(t: float, m: float) -> float:
        # The density of rival m where the target scores t, instead of its distribution function.
        log_density = -0.5 * (m + t) ** 2 - 0.5 * math.log(2 * math.pi)
        return math.exp(log_integrand(t) + log_density - float(log_ndtr(m + t)))

    # The peak lies near 2.5 and every width is at most 1: nothing is left outside.
    options = {"epsabs": 0.0, "epsrel": 1e-11, "limit": 500}
    p = quad(lambda t: math.exp(log_integrand(t)), -12.0, 18.0, **options)[0]
    return p, np.array([quad(tie, -12.0, 18.0, (m,), **options)[0] for m in MARGINS])


def measure(
    estimate: Estimate, samples: int, seeds: int, p: float, gradient: np.ndarray
) -> dict[str, Any]:
    """One point of both figures, with 95 % intervals."""
    generator = torch.Generator().manual_seed(samples)
    # Rows draw their own random numbers, so one row is one seed; chunks bound the memory.
    chunk = max(1, 2**21 // (samples * len(MARGINS)))
    values, gradients = [], []
    for start in range(0, seeds, chunk):
        rows = min(chunk, seeds - start)
        a = torch.tensor([[*MARGINS, ABSENT]]).repeat(rows, 1)
        log_p, slope = estimate(a, samples=samples, generator=generator)
        p_hat = log_p.exp()
        values.append(p_hat.double().numpy())
        gradients.append((p_hat[:, None] * slope[:, :-1]).double().numpy())
    p_hats = np.concatenate(values)
    value_squares = (p_hats - p) ** 2
    gradient_squares = ((np.concatenate(gradients) - gradient) ** 2).sum(axis=1)
    return {
        "samples": samples,
        "runs_with_a_hit": int((p_hats > 0).sum()),
        "value_rmse": math.sqrt(value_squares.mean()),
        "value_interval": bootstrap_interval(value_squares),
        "gradient_rmse": math.sqrt(gradient_squares.mean()),
        "gradient_interval": bootstrap_interval(gradient_squares),
    }


def bootstrap_interval(squares: np.ndarray, resamples: int = 1000) -> list[float]:
    """95 % percentile interval of the root of the mean of ``squares``."""
    rng = np.random.default_rng(0)
    means = [rng.choice(squares, len(squares)).mean() for _ in range(resamples)]
    return [float(x) for x in np.sqrt(np.quantile(means, [0.025, 0.975]))]


def quadrature_error(p: float, gradient: np.ndarray) -> tuple[float, float]:
    """Error of the deterministic method in float32, through the public function."""
    import hitrate

    # The target scores 0 and rival i scores -m_i, so dp/dm_i = -dp/dlogit_i.
    logits = torch.tensor([[0.0, *(-m for m in MARGINS)]], requires_grad=True)
    target = torch.tensor([0])
    p_hat = hitrate.log_expected_accuracy(logits, target, sigma=1.0, method="quadrature").exp()
    (logits_gradient,) = torch.autograd.grad(p_hat.sum(), logits)
    error = -logits_gradient[0, 1:].double().numpy() - gradient
    return abs(p_hat.item() - p), float(np.linalg.norm(error))


def one_sample_rmse(points: list[dict[str, Any]], name: str) -> float:
    """RMSE of one sample, from all sample sizes of a curve together.

    An average of S independent unbiased samples has RMSE(S) = RMSE(1) / sqrt(S), so S * MSE(S)
    estimates MSE(1). All runs of a curve together say more than the runs with one sample: these
    see a hit of Monte Carlo about once in 1700 draws. Weights are numbers of samples drawn.
    """
    total = sum(
        point["samples"] * point[f"{name}_rmse"] ** 2 * point["samples"] for point in points
    )
    return math.sqrt(total / sum(point["samples"] for point in points))


def equivalents(result: dict[str, Any]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Samples of Monte Carlo that give the error of one sample of Genz.

    ``interpolated`` reads the measured points, straight between sizes on logarithmic axes, and is
    None where Monte Carlo does not get there; ``extrapolated`` compares the 1 / sqrt(S) lines.
    """
    points = result["curves"]["monte_carlo"]
    log_size = np.log([point["samples"] for point in points])
    found: dict[str, dict[str, dict[str, float | None]]] = {}
    for method in ("genz_given_order", "genz"):
        found[method] = {}
        for name in ("value", "gradient"):
            log_error = np.log([point[f"{name}_rmse"] for point in points])
            level = math.log(result["curves"][method][0][f"{name}_rmse"])
            # The last crossing: without a hit, small sizes can err by no more than p itself.
            above = np.flatnonzero(log_error > level)
            interpolated = None
            if len(above) and above[-1] + 1 < len(points):
                pair = [above[-1] + 1, above[-1]]
                interpolated = math.exp(np.interp(level, log_error[pair], log_size[pair]))
            one_sample = result["one_sample_rmse"]
            ratio = one_sample["monte_carlo"][name] / one_sample[method][name]
            found[method][name] = {"interpolated": interpolated, "extrapolated": ratio**2}
    return found


def table(result: dict[str, Any]) -> str:
    """The numbers of both figures as text."""
    by_method = {
        method: {point["samples"]: point for point in points}
        for method, points in result["curves"].items()
    }
    lines = [
        f"p = {result['truth']['p']:.6e}, {result['seeds']} seeds, RMSE, float32",
        " " * 6 + "".join(f"{name:>38}" for name in ("value", "gradient")),
        f"{'S':>6}" + f"{'Monte Carlo':>14}{'Genz, given':>12}{'hardest':>12}" * 2,
    ]
    for samples in SAMPLE_SIZES:
        cells = "".join(
            (" " * 2 if method == "monte_carlo" else "")
            + (
                f"{by_method[method][samples][f'{name}_rmse']:12.2e}"
                if samples in by_method[method]
                else " " * 12
            )
            for name in ("value", "gradient")
            for method in METHODS
        )
        lines.append(f"{samples:6d}{cells}".rstrip())
    quadrature = result["quadrature"]
    lines.append(
        f"quadrature, no samples: value {quadrature['value_rmse']:.1e}, "
        f"gradient {quadrature['gradient_rmse']:.1e}"
    )
    for method, equal in result["monte_carlo_samples_equal_to_one_genz_sample"].items():
        for name, numbers in equal.items():
            interpolated = numbers["interpolated"]
            lines.append(
                f"Monte Carlo has the {name} error of one sample of {LABELS[method]} at S = "
                + ("(beyond the measured sizes)" if interpolated is None else f"{interpolated:.0f}")
                + f"; by the 1/sqrt(S) lines at S = {numbers['extrapolated']:.3g}"
                + ("; the paper says 256" if name == "gradient" else "")
            )
    return "\n".join(lines)


def main() -> None:
    """Command line: where to write, how many seeds."""
    parser = argparse.ArgumentParser(description="Figures 8 and 9 of the EXACT paper.")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder for the files")
    parser.add_argument("--seeds", type=int, default=1000, help="repetitions behind every point")
    arguments = parser.parse_args()
    print(table(figures_8_9(arguments.out, arguments.seeds)))


if __name__ == "__main__":
    main()
