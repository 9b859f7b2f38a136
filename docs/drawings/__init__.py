"""What `docs/draw.py` draws, one document a module."""
