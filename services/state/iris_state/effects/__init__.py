"""What follows a commit: orders to workers, deltas to schedulers, and public events."""
