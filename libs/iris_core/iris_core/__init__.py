"""Decisions and words of Iris: pure, and shared by all services. No clock, loop, socket, dice or logging here."""

__version__ = "0.1.0"
