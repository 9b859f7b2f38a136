"""Soak test: minutes to hours of ordinary work, and a check that no resource grows."""
