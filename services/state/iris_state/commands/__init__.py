"""Decodes and executes commands."""
