"""Assigns tasks and gangs to workers, in queue order."""
