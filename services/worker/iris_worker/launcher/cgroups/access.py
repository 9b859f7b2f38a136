"""Reading and writing files of control groups, which may be gone at any time.

Out of scope: what the files mean (`files`), and which groups there are (`cgroup`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from math import inf

_READ_BYTES = 1 << 16


def put(path: str, text: str, directory: int | None = None) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        write_to(fd, path, text)
    finally:
        os.close(fd)


def write_to(fd: int, path: str, text: str) -> None:
    try:
        os.write(fd, text.encode())
    except OSError as error:
        error.filename = path
        raise


def get(path: str) -> str:
    """The contents of a file; empty when it is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        parts = []
        while part := os.read(fd, _READ_BYTES):
            parts.append(part)
        return b"".join(parts).decode()
    except OSError:  # its group was removed
        return ""
    finally:
        os.close(fd)


def tree(directory: str) -> Iterable[str]:
    """A group, and the groups in it."""
    try:
        has_groups = os.stat(directory).st_nlink > 2
    except FileNotFoundError:
        return ()
    return [path for path, _, _ in os.walk(directory)] if has_groups else (directory,)


def remove(directory: str, most: float = inf) -> int:
    """Remove a group and the groups in it, at most so many; returns how many. What still has a
    process stays, for the next launcher.
    """
    removed = 0
    for path, _, _ in os.walk(directory, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(path)
            removed += 1
        if removed >= most:
            break
    return removed


def numbers(base: str) -> list[int]:
    return [int(name) for name in os.listdir(base) if name.isdigit()]
