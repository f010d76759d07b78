"""Boosted trees of other packages, under their own losses and hitrate's."""
