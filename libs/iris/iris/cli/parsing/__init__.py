"""Reads a command line: commands, flags, options that commands share, lines of a script,
suggestions.
"""
