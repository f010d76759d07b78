"""Tables: read from files or built in, checked, and made into numbers."""

from hitrate_lab.bad_input import BadInput
from hitrate_lab.tables.columns import Columns
from hitrate_lab.tables.reading import read_table
from hitrate_lab.tables.table import Table

__all__ = ["BadInput", "Columns", "Table", "read_table"]
