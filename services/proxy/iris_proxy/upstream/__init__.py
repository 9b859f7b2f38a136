"""Connections to routes."""
