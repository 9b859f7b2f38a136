"""Chaos test: a real cluster on this machine under load and faults, and a check of the results."""
