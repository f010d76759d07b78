"""Losses beside the family, to compare with: hinge, complement objective, MPCE, centres."""
