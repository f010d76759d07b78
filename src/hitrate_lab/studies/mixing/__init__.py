"""Protocols of "Mixing between the Cross Entropy and the Expectation Loss Terms" (2021)."""
