"""Protocols of "EXACT: How to Train Your Accuracy" (2022)."""
