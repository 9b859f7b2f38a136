"""Sorted and counted copies of what records hold, for quick answers."""
