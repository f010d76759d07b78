"""Compiles the kernels for a GPU that need not be there; run by test_compilation.py.

    python tests/kernels/compile_for_gpu.py

The interpreter, in which tests run elsewhere, takes some code that the compiler refuses.
"""

import math
import sys

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from hitrate import links
from hitrate.kernels import launch
from hitrate.kernels.launch import all_classes as all_classes_launch
from hitrate.kernels.launch import standardize as standardize_launch
from hitrate.kernels.launch import top_k as top_k_launch
from hitrate.kernels.launch.start import Start

TARGET = GPUTarget("cuda", 90, 32)
TYPES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int64: "*i64",
    torch.int32: "*i32",
}


def compile_only(self, grid, stream, tensors, numbers):
    """In the place of a launch."""
    values = [*tensors, *numbers, *self._constants]
    names = self._kernel.arg_names
    signature = {
        name: TYPES[value.dtype]
        if isinstance(value, torch.Tensor)
        else ("fp32" if isinstance(value, float) else "i32")
        for name, value in zip(names, values[: -len(self._constants)], strict=False)
    }
    constants = dict(zip(names[len(signature) :], self._constants, strict=True))
    source = ASTSource(
        self._kernel, {**signature, **dict.fromkeys(constants, "constexpr")}, constants
    )
    made = triton.compile(source, target=TARGET, options={"num_warps": self._warps})
    assert "ptx" in made.asm
    print(f"{self._kernel.__name__} compiled", flush=True)


def main():
    """Each kind of kernel with every link, or with every option on."""
    Start.__call__ = compile_only
    made = [make() for make in links.LINKS.values()]
    formulas = [link.formula for link in made if link.formula is not None]
    for formula in formulas:
        compile_loss("normal", 10, formula)
    compile_loss("normal", 100, formulas[0], everything=True)
    compile_loss("normal", 5000, formulas[1], everything=True)
    for classes in (10, 100):
        compile_loss("logistic", classes, formulas[2], everything=True)
    for formula in formulas:
        compile_loss("gumbel", 10, formula, smoothing=0.1)
    compile_loss("gumbel", 5000, formulas[1], everything=True)
    compile_loss("gumbel", 5000, formulas[1], smoothing=0.1)
    compile_loss("gumbel", 20, formulas[1], inner=(64,), everything=True)
    for classes in (10, 5000):
        compile_standardization(classes)
    for noise in top_k_launch.NOISES:
        for classes, k in ((10, 2), (100, 5), (10_000, 10)):
            compile_top_k(noise, classes, k)
    launch.times(torch.ones(9), torch.ones(()))
    for noise in all_classes_launch.NOISES:
        for classes in (10, 1000):
            compile_loss(noise, classes, formulas[0], smoothing=0.1, everything=classes > 10)
            all_classes_launch.log_probabilities(torch.zeros(2, classes), 1.0, noise)
            p = all_classes_launch.probabilities(torch.zeros(2, classes), 1.0, noise)
            all_classes_launch.product(p, 1.0, p, noise, p)


def compile_loss(noise, classes, formula, *, inner=(), smoothing=0.0, everything=False):
    """The kernels of a loss and of its gradient; with everything a loss may have, or little."""
    dtype = torch.bfloat16 if everything else torch.float32
    logits = torch.zeros(2, classes, *inner, dtype=dtype)
    target = torch.zeros(2, *inner, dtype=torch.long)
    sigma = torch.ones(target.numel()) if everything else 1.0
    weight = torch.ones(classes) if everything else None
    of_all = noise in all_classes_launch.NOISES
    margin = 1.0 if everything and not of_all else None
    link = launch.compiled(formula)
    rule = launch.Rule(noise, link, 0.3, -math.inf, "mean", -100, margin, smoothing)
    learned = everything and noise != "gumbel" and not of_all
    call = launch.call_of(logits, target, sigma, weight, rule, wanted=True, learned=learned)
    _, found = call.value(logits, target, call.numbers.now())
    call.gradient(logits, target, found, torch.ones(()))


def compile_top_k(noise, classes, k):
    """log p to be among the k highest, with a margin for many classes."""
    dtype = torch.bfloat16 if classes > 100 else torch.float32
    logits, target = torch.zeros(2, classes, dtype=dtype), torch.zeros(2).long()
    rule = launch.Rule(noise, margin=1.0 if classes > 10 else None)
    top_k_launch.log_p_of_top(logits, target, torch.ones(2), rule, k)


def compile_standardization(classes):
    """Statistics of logits, and the gradient through them."""
    logits, target = torch.zeros(2, classes, dtype=torch.bfloat16), torch.zeros(2).long()
    facts = standardize_launch.statistics(logits, target, -100, torch.ones(()), 1.0, 1e-5)
    standardize_launch.pull(logits, logits, facts)
    standardize_launch.pull(logits, logits, facts, (torch.ones(2), facts))
    standardize_launch.correct(logits, logits, target, -100, facts)


if __name__ == "__main__":
    sys.exit(main())
