"""Encodes the ledger, and takes snapshots of it."""
