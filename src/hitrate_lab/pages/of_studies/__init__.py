"""Pages about studies: their committed runs, and what those would take that nobody has run yet."""
