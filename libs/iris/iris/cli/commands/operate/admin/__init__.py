"""`iris admin`."""
