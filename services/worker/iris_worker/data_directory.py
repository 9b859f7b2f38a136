"""Which worker of its host one is: that of a data directory."""

from pathlib import Path

MEMORY = "/dev/shm"
"""Where the directory of a worker's tokens is, if it is not in its data directory."""


def data_id(root: Path) -> str:
    """What tells the worker with this data directory from all others of its host. Raises
    OSError.
    """
    found = root.stat()
    return f"{found.st_dev:x}-{found.st_ino:x}"
