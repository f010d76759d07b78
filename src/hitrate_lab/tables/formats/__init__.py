"""Files of tables: what they are, and how each kind is read."""
