"""Changes users and groups of the calling thread only. Linux only.

The C library changes those of all threads of a process: it interrupts each by a signal, and waits
for it. What a thread starts has those of that thread, so nothing needs that.
Source: nptl(7), setresuid(2).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

_NUMBERS = {"x86_64": (117, 119, 116), "aarch64": (147, 149, 159)}
"""Of setresuid(2), setresgid(2) and setgroups(2)."""

_libc = ctypes.CDLL(None, use_errno=True)


def _known() -> tuple[int, int, int] | None:
    """The numbers for the programs of this machine; None for its 32-bit ones, and where they are
    not known.
    """
    return _NUMBERS.get(os.uname().machine) if sys.maxsize > 1 << 32 else None


_numbers = _known()


def set_users(real: int, effective: int, saved: int) -> None:
    """Raises OSError."""
    if _numbers is None:
        os.setresuid(real, effective, saved)
    else:
        _check(_libc.syscall(_numbers[0], real, effective, saved))


def set_groups(real: int, effective: int, saved: int) -> None:
    """Raises OSError."""
    if _numbers is None:
        os.setresgid(real, effective, saved)
    else:
        _check(_libc.syscall(_numbers[1], real, effective, saved))


def set_further_groups(groups: Sequence[int]) -> None:
    """Raises OSError."""
    if _numbers is None:
        os.setgroups(groups)
    else:
        _check(_libc.syscall(_numbers[2], len(groups), (ctypes.c_uint32 * len(groups))(*groups)))


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
