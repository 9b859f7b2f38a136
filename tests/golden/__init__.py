"""Journals and snapshots of every release, which must always replay; ``python -m tests.golden v0_2`` adds one."""
