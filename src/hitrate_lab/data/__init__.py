"""Tables: read from files or built in, checked, and made into numbers."""

from hitrate_lab.data.bad_input import BadInput
from hitrate_lab.data.columns import Columns
from hitrate_lab.data.reading import read_table
from hitrate_lab.data.table import Table

__all__ = ["BadInput", "Columns", "Table", "read_table"]
