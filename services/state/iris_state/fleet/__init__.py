"""Decisions about pools and slices: what is made, mended and given back. Pure."""
