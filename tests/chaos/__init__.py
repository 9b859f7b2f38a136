"""A real cluster on this machine, a load, and a killer; what is left at the end is recounted."""
