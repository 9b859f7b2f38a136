"""Refuses the kernel's keyrings to all that this process starts. Linux only.

A keyring of a user or of a session keeps its keys when the processes that added them have ended,
and no namespace has its own. Whoever asks is told that this kernel has none, which programs and
container runtimes are prepared for.
Source: seccomp(2), linux/filter.h, linux/audit.h; docs/design/isolation.md#keyrings.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

_SET_MODE_FILTER = 1
_SPEC_ALLOW = 4
"""The flag keeps processors as fast as without a filter on kernels before 5.16."""
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_FIRST = {
    "x86_64": {0xC000_003E: 248, 0x4000_0003: 286},
    "aarch64": {0xC000_00B7: 217, 0x4000_0028: 309},
}
"""The number of add_key(2) by the architecture of a system call: a machine's own, and that of its
32-bit programs. request_key(2) and keyctl(2) follow."""
_X32 = 0x4000_0000
"""Set in a number by programs of x32, which are else as those of x86_64."""
_LOAD = 0x20
_AND = 0x54
_EQUAL = 0x15
_AT_LEAST = 0x35
_MORE = 0x25
_RETURN = 0x06
_NUMBER = 0
_ARCHITECTURE = 4
_ALLOW = 0x7FFF_0000
_REFUSE = 0x0005_0000 | errno.ENOSYS

_libc = ctypes.CDLL(None, use_errno=True)


def program(machine: str) -> bytes:
    """The filter for a machine, as ``os.uname`` names it. Raises OSError when its system calls are
    not known.
    """
    if machine not in _FIRST:
        raise OSError(
            errno.ENOSYS, f"keyrings cannot be refused: the system calls of {machine} are not known"
        )
    lines = [(_LOAD, 0, 0, _ARCHITECTURE)]
    for architecture, first in _FIRST[machine].items():
        lines += [
            (_EQUAL, 0, 6, architecture),
            (_LOAD, 0, 0, _NUMBER),
            (_AND, 0, 0, ~_X32 & 0xFFFF_FFFF),
            (_AT_LEAST, 0, 1, first),
            (_MORE, 0, 1, first + 2),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _REFUSE),
        ]
    lines.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def refuse_keyrings() -> None:
    """From now on, for good. This process must have given up new privileges. Raises OSError."""
    machine = os.uname().machine
    code = program(machine)
    held = ctypes.create_string_buffer(code, len(code))
    described = struct.pack("HP", len(code) // struct.calcsize("HBBI"), ctypes.addressof(held))
    if _libc.syscall(_SECCOMP[machine], _SET_MODE_FILTER, _SPEC_ALLOW, described):
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
