"""The invariants of records."""
