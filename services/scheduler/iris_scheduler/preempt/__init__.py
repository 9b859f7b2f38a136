"""Preempts work of lower bands for work of higher bands, and reclaims what is guaranteed."""
