"""Journals and snapshots of every release, which must replay for ever; ``python -m tests.golden v0_2`` adds one."""
