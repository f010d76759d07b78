"""Models that can be compared, and where a fitted one is kept."""
