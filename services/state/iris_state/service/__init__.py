"""The running service: starts and ends its parts, and deletes what is kept no longer."""
