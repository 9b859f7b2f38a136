"""Probes of the routes that run here: when, how, and what came of them."""
