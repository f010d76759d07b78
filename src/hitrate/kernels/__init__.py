"""Triton kernels; imported only when a call asks for them."""
