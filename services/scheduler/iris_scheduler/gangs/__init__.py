"""Placing whole gangs on groups of workers."""
