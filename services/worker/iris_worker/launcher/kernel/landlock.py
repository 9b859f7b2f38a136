"""Scopes sockets of the abstract namespace: from inside a domain only those made in it are reached.

A domain holds a thread, and what it starts. It cannot be left, and nothing outside of it can be
traced from inside. Linux 6.12 or later.
Source: landlock(7), linux/landlock.h; docs/design/isolation.md#abstract-sockets.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

_CREATE_RULESET = 444
_RESTRICT_SELF = 446
"""The same on all machines."""
_VERSION = 1
_NO_FILES = _NO_NETWORK = 0
_ABSTRACT_UNIX_SOCKET = 1
_ABI = 6
_ABSENT = {
    errno.ENOSYS: "this kernel has no Landlock",
    errno.EOPNOTSUPP: "Landlock was not enabled at boot",
}

_libc = ctypes.CDLL(None, use_errno=True)


def make_ruleset() -> int:
    """A descriptor for `enter_domain`. Raises OSError, in words when this kernel cannot scope such
    sockets.
    """
    version = _libc.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if version < 0:
        number = ctypes.get_errno()
        raise OSError(number, _ABSENT.get(number, f"Landlock: {os.strerror(number)}"))
    if version < _ABI:
        raise OSError(
            errno.EOPNOTSUPP,
            f"version {version} of this kernel's Landlock cannot; {_ABI} is of Linux 6.12",
        )
    attributes = struct.pack("QQQ", _NO_FILES, _NO_NETWORK, _ABSTRACT_UNIX_SOCKET)
    return _checked(_libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0))


def enter_domain(ruleset: int) -> None:
    """Put this thread into a domain of its own. It must have given up new privileges. Raises
    OSError.
    """
    _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result
