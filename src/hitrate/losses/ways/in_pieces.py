"""Losses of rows some rows at a time: memory stays within a few times the logits'.

Step by step, a loss holds a dozen tensors of the logits' size, or of that times the classes or the
nodes of an integral. Rows are independent, so a piece of them has its value and its gradient at
once, and only the gradient is kept. Derivatives of the gradient go all rows together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hitrate.probability.dispatch import is_transformed
from hitrate.probability.execution import GPU_BLOCK, block_size, full_precision, has_values, within

# Logits up to which a dozen tensors of their size are no matter.
FEW = 2**15
# Elements of a piece of integrals, which hold more, and bytes of a buffer of theirs, at the least.
LEAST, LEAST_BYTES = 2**12, 2**16


class Piece(NamedTuple):
    """Rows, and of them the classes that are targets in turn; None for all at once."""

    rows: slice
    classes: slice | Tensor | None = None


# Losses (n,) of a piece, from the piece's rows of each tensor.
OfPiece = Callable[..., Tensor]


def pieces_of(logits: Tensor, *, each_class: bool, is_heavy: bool) -> list[Piece] | None:
    """How to take logits (R, C) apart; None to take them whole.

    Heavy is what holds several dozen tensors of a piece's size.
    """
    if not has_values(logits) or torch.compiler.is_compiling() or is_transformed(logits):
        return None
    rows, classes = logits.shape
    copies = classes if each_class else 1
    if not rows or logits.numel() * copies <= FEW:
        return None
    if logits.is_cpu:
        least, shares = (LEAST, 8) if is_heavy else (FEW // 2, 4)
        most = min(4 * block_size(), max(least, logits.numel() // shares))
    else:
        most = GPU_BLOCK
        if logits.numel() * copies <= most:
            return None
    size = most // (classes * copies)
    if size or not each_class:
        step = max(size, 1)
        starts = range(0, rows, step)
        return [Piece(slice(start, min(start + step, rows))) for start in starts]
    step = max(most // classes, 1)
    return [
        Piece(slice(row, row + 1), slice(first, min(first + step, classes)))
        for row in range(rows)
        for first in range(0, classes, step)
    ]


def by_pieces(of_piece: OfPiece, pieces: list[Piece], tensors: Sequence[Tensor]) -> Tensor:
    """Losses (R,) of tensors with a row each, by their pieces, whose losses add up.

    Nothing else that `of_piece` uses may want a gradient.
    """
    found: Tensor = ByPieces.apply(of_piece, pieces, *tensors)  # type: ignore[no-untyped-call]
    return found


class ByPieces(torch.autograd.Function):
    """See `by_pieces`."""

    @staticmethod
    def forward(ctx: Any, of_piece: OfPiece, pieces: list[Piece], *tensors: Tensor) -> Tensor:
        """The losses, with their gradients for later."""
        wanted = ctx.needs_input_grad[2:]
        losses, gradients = _value_and_gradients(of_piece, pieces, tensors, wanted)
        ctx.save_for_backward(*tensors)
        ctx.job, ctx.kept = (of_piece, pieces), [gradients]
        return losses

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients, of all rows together if they will be differentiated themselves."""
        (of_piece, pieces), tensors = ctx.job, ctx.saved_tensors
        wanted = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            whole = Piece(slice(None))
            return None, None, *_differentiable(of_piece, whole, tensors, wanted, upstream)
        # The first to ask is given the memory itself; on a graph that was retained, the gradient
        # is found anew.
        if ctx.kept:
            gradients = ctx.kept.pop()
        else:
            _, gradients = _value_and_gradients(of_piece, pieces, tensors, wanted)
        above = upstream[:, None]
        if is_transformed(upstream) or torch._C._functorch.is_legacy_batchedtensor(upstream):
            # Several upstreams at once share the gradients.
            return None, None, *(None if g is None else g * above for g in gradients)
        for gradient in gradients:
            if gradient is not None:
                gradient.mul_(above)
        return None, None, *gradients


def _value_and_gradients(
    of_piece: OfPiece, pieces: list[Piece], tensors: Sequence[Tensor], wanted: Sequence[bool]
) -> tuple[Tensor, list[Tensor | None]]:
    """Losses (R,), and their gradients in those tensors for which they are wanted."""
    logits = tensors[0]
    losses, gradients = logits.new_zeros(len(logits)), _room(tensors, wanted)
    with _limited(logits), torch.set_grad_enabled(any(wanted)):
        for piece in pieces:
            leaves = _leaves(piece, tensors, wanted)
            found = of_piece(piece, *leaves)
            losses[piece.rows] += found.detach()
            _add(gradients, piece, found, leaves, torch.ones_like(found))
    return losses, gradients


def _add(
    gradients: list[Tensor | None],
    piece: Piece,
    found: Tensor,
    leaves: list[Tensor],
    upstream: Tensor,
) -> None:
    """Add a piece's gradients to those of all."""
    asked = [leaf for leaf in leaves if leaf.requires_grad]
    if not asked or not found.requires_grad:
        return
    slopes = iter(torch.autograd.grad(found, asked, upstream, materialize_grads=True))
    for gradient in gradients:
        if gradient is not None:
            gradient[piece.rows] += next(slopes)


def terms_by_pieces(
    of_piece: OfPiece, pieces: list[Piece], tensors: Sequence[Tensor], shape: torch.Size
) -> Tensor:
    """What is made of tensors with a row each, (R,) or (R, C), by their pieces.

    A piece is computed once more for its gradient.
    """
    found: Tensor = TermsByPieces.apply(  # type: ignore[no-untyped-call]
        of_piece, pieces, shape, *tensors
    )
    return found


class TermsByPieces(torch.autograd.Function):
    """See `terms_by_pieces`."""

    @staticmethod
    def forward(
        ctx: Any, of_piece: OfPiece, pieces: list[Piece], shape: torch.Size, *tensors: Tensor
    ) -> Tensor:
        """The terms alone."""
        terms = tensors[0].new_empty(shape)
        with _limited(tensors[0]):
            for piece in pieces:
                terms[_place(piece)] = of_piece(piece, *(tensor[piece.rows] for tensor in tensors))
        ctx.save_for_backward(*tensors)
        ctx.job = of_piece, pieces
        return terms

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients, of all rows together if they will be differentiated themselves."""
        (of_piece, pieces), tensors = ctx.job, ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled() or is_transformed(upstream):
            whole = Piece(slice(None))
            return None, None, None, *_differentiable(of_piece, whole, tensors, wanted, upstream)
        gradients = _room(tensors, wanted)
        with _limited(tensors[0]), torch.enable_grad():
            for piece in pieces:
                leaves = _leaves(piece, tensors, wanted)
                found = of_piece(piece, *leaves)
                _add(gradients, piece, found, leaves, upstream[_place(piece)])
        return None, None, None, *gradients


def _place(piece: Piece) -> Any:
    """Where the terms of a piece stand."""
    return piece.rows if piece.classes is None else (piece.rows, piece.classes)


def _room(tensors: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor | None]:
    """Zeros for the gradients that are wanted."""
    return [
        torch.zeros(t.shape, dtype=t.dtype, device=t.device) if is_wanted else None
        for t, is_wanted in zip(tensors, wanted, strict=True)
    ]


def _leaves(piece: Piece, tensors: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor]:
    """A piece's rows, of which those that are wanted get a gradient."""
    return [
        tensor[piece.rows].detach().requires_grad_(is_wanted)
        for tensor, is_wanted in zip(tensors, wanted, strict=True)
    ]


@contextmanager
def _limited(logits: Tensor) -> Iterator[None]:
    """A block in which integrals' buffers are small beside the logits, and sums are precise."""
    share = max(LEAST_BYTES, logits.numel() * logits.element_size() // 4)
    with within(share if logits.is_cpu else None), full_precision(logits):
        yield


def _differentiable(
    of_piece: OfPiece,
    piece: Piece,
    tensors: Sequence[Tensor],
    wanted: Sequence[bool],
    upstream: Tensor,
) -> Iterator[Tensor | None]:
    """Gradients of a piece, which can be differentiated themselves."""
    asked = [t for t, is_wanted in zip(tensors, wanted, strict=True) if is_wanted]
    with torch.enable_grad(), full_precision(tensors[0]):
        terms = of_piece(piece, *tensors)
        found = iter(torch.autograd.grad(terms, asked, upstream, create_graph=True))
    return (next(found) if is_wanted else None for is_wanted in wanted)
