"""How a loss gets its numbers: step by step, in few operations, by kernels, or in pieces."""
