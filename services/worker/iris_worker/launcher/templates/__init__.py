"""Processes from which calls are cloned, and clones that make several."""
