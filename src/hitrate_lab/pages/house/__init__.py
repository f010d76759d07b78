"""What docs/architecture.md shows of the code: who imports whom, who calls whom, how much."""
