"""Runs: planned, spread over processes or a cluster, and kept one by one in a file."""
