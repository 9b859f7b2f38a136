"""Placing single tasks on workers."""
