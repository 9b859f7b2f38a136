"""The notifier: tells people and programs of their jobs."""
