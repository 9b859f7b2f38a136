"""Output of attempts: reading, shipping and limiting it."""
