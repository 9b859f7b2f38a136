"""Decides what a worker does with orders and reports: which attempts it holds, and what it says. Pure."""
