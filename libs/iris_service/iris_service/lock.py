"""One process per directory: a lock that ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class DirectoryInUse(Exception):
    """Another process holds the lock of this directory."""


def lock(directory: Path, refusal: str) -> int:
    """Hold ``directory``/lock while the returned descriptor is open. Raises
    DirectoryInUse(``refusal``).
    """
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DirectoryInUse(refusal) from None
    return descriptor
