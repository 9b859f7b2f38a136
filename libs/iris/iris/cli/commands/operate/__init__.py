"""Commands for a cluster, its users and its data."""
