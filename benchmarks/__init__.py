"""One program per row of the performance table, and one that runs them all: ``python -m
benchmarks``.
"""
