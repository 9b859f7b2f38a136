"""Prints for people and for programs: tables, times, progress; safe on a terminal."""
