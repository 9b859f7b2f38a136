"""Probes of the routes on this host: schedule, execution and results."""
