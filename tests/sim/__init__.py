"""Deterministic simulation: the services on one thread, with a simulated clock, network and
journal.
"""
