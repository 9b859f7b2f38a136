"""Types and decisions that all services share. Pure: no clock, event loop, socket, randomness or logging."""

__version__ = "0.1.0"
