"""Encodes the ledger and restores it."""
