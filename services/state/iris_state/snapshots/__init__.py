"""The ledger as bytes, and when it is saved."""
