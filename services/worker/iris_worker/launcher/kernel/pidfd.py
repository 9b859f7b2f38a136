"""Reads the exit status of a process that is not our child, where the kernel provides it.

A process that has ended and is not reaped yet shows its status in /proc to its own user. One that
is reaped shows it through a pidfd that was opened before, since Linux 6.15. Otherwise only its
parent can read it.
Source: include/uapi/linux/pidfd.h, PIDFD_GET_INFO; proc_pid_stat(5), fields 3 and 52.
"""

from __future__ import annotations

import fcntl
import struct

from iris_worker.launcher.kernel.tree import zombie_status

_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, 64 bytes)
_WANT_EXIT = 1 << 3
_INFO = struct.Struct("=QQ11Ii")  # mask, cgroup id, eleven ids, exit status


def exit_status(pid: int, pidfd: int) -> int | None:
    """The wait status of a process whose pidfd is readable; None when it cannot be determined."""
    for known in (
        _reaped(pidfd),
        zombie_status(pid),
        _reaped(pidfd),
    ):  # it may be reaped between the two reads
        if known is not None:
            return known
    return None


def _reaped(pidfd: int) -> int | None:
    ask = bytearray(_INFO.pack(_WANT_EXIT, 0, *[0] * 11, 0))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, ask)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack_from(ask)
    return int(status) if mask & _WANT_EXIT else None
