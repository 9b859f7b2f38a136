"""Which route gets a request, and which is tried next."""
