"""Minutes to hours of ordinary work, and whether anything grows by it."""
