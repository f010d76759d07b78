"""Starting a compiled kernel again at little cost."""

from __future__ import annotations

from typing import Any

import triton
from torch import Tensor

# Since 3.3 a compiled kernel takes its constants with its arguments.
_MAY_RUN = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 3)


class Start:
    """A kernel with its constants; from the second time on without Triton's own launcher.

    That one looks at every argument to find out which compiled kernel serves; here one serves all
    calls. So make one for each combination of types, of a divisibility by 16 of the first
    tensor's address and of the numbers that the kernel does not take as any. Other tensors may
    be anywhere, or are aligned, being new. Hooks of launches are not called.
    """

    __slots__ = ("_constants", "_function", "_kernel", "_metadata", "_run", "_warps")

    def __init__(self, kernel: Any, constants: tuple[Any, ...], warps: int) -> None:
        self._kernel = kernel
        self._constants = constants
        self._warps = warps
        self._run: Any = None
        self._function: Any = None
        self._metadata: Any = None

    def __call__(
        self,
        grid: tuple[int, int],
        stream: int,
        tensors: tuple[Tensor, ...],
        numbers: tuple[float, ...],
    ) -> None:
        """Start programs (grid) on the current device and stream."""
        if self._run is not None:
            self._run(
                grid[0],
                grid[1],
                1,
                stream,
                self._function,
                self._metadata,
                None,
                None,
                None,
                *[tensor.data_ptr() for tensor in tensors],
                *numbers,
                *self._constants,
            )
            return
        started = self._kernel[*grid, 1](
            *tensors, *numbers, *self._constants, num_warps=self._warps
        )
        # In the interpreter there is nothing to keep.
        if started is not None and _MAY_RUN:
            self._function = started.function
            self._metadata = started.packed_metadata
            self._run = started.run
