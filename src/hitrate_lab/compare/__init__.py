"""Which way of training is the most accurate on a table; and the fit and use of one way."""

from hitrate_lab.compare.comparison import Interrupted, compare
from hitrate_lab.compare.fit import fit_table, predict_file

__all__ = ["Interrupted", "compare", "fit_table", "predict_file"]
