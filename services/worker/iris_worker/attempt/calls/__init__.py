"""Calls of a map: the files they read, and what they leave."""
