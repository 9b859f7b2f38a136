"""Deterministic simulation: the services' own rooms on one thread, under a simulated clock, network and journal."""
