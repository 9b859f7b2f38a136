"""Decisions and words of Iris: pure, and shared by all services. No clock, loop, socket, randomness or logging here."""

__version__ = "0.1.0"
