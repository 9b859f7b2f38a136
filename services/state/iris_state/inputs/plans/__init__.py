"""Accepts schedulers' plans and records the jobs they skipped."""
