"""Reads events, logs and artifacts from their streams, and sends them on as they come."""
