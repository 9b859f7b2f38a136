"""Heads and refusals of HTTP, as a proxy changes and writes them."""
