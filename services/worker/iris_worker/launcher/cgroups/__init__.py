"""Limits of tasks, by process and by control group."""
