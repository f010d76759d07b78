"""What the README and the documentation show of measured results: their tables and pictures."""
