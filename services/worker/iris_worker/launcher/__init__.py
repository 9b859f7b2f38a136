"""Processes of attempts: starting, watching, adopting and ending them."""
