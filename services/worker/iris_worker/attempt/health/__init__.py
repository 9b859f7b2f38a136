"""Faults of this host: a launcher that is silent, and starts that fail."""
