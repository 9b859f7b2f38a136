"""Pools and slices as records. Pure."""
