"""The running worker: starts and ends its parts, reports, and watches its host."""
