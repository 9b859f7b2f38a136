"""Processes that run: of attempts, beside them, and without one."""
