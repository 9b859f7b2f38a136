"""Ends of children as a file descriptor: a signalfd for SIGCHLD. Linux only.

Python's own way wakes the event loop twice for each signal and costs as much as half a report; a descriptor costs one
read for all that have ended. Out of scope: reaping.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

_SIGSET_BYTES = 128
_SIGINFO_BYTES = 128


def block() -> None:
    """Block SIGCHLD in this thread and those it starts; to be called before the first thread.

    A thread that does not block it, such as one that sends spans or looks up a server, takes it from the descriptor,
    and the end of a task goes unnoticed until the next one. Started processes inherit the mask unless given their own.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})


class ChildWatch:
    """``fd`` is readable after SIGCHLD, which has to be blocked (`block`), until `close`. Raises OSError."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        mask = ctypes.create_string_buffer(_SIGSET_BYTES)
        libc.sigemptyset(mask)
        libc.sigaddset(mask, int(signal.SIGCHLD))
        self.fd = libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))

    def clear(self) -> None:
        """Clear the notification; the next end makes ``fd`` readable again."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 16 * _SIGINFO_BYTES)

    def close(self) -> None:
        os.close(self.fd)
