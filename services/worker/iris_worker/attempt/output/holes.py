"""Frees disk space in the middle of a file that is still written, by hole punching. Linux only.

Output that was sent is not needed any more, but a file cannot be truncated at its front, and
emptying it would lose concurrent writes. After punching a hole the file keeps its length and its
writers are not affected.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

_KEEP_SIZE = 0x01
_PUNCH_HOLE = 0x02


@functools.cache
def _fallocate() -> Any:
    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
    return call


def punch(fd: int, start: int, length: int) -> bool:
    """Free ``length`` bytes from ``start`` on; False where the file system does not support it,
    which only costs space.
    """
    if length <= 0:
        return False
    try:
        return bool(_fallocate()(fd, _KEEP_SIZE | _PUNCH_HOLE, start, length) == 0)
    except (OSError, AttributeError):
        return False


def first_hole(fd: int, start: int) -> tuple[int, int]:
    """The start and end of the first hole after ``start``; ``start`` twice when there is none."""
    try:
        hole = os.lseek(fd, start, os.SEEK_HOLE)
        return hole, os.lseek(fd, hole, os.SEEK_DATA)
    except OSError:
        return start, start
