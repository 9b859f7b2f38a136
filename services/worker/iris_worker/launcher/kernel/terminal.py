"""The terminal of an attempt's process."""

from __future__ import annotations

import contextlib
import os
import termios
from collections.abc import Iterator

_SHOWN_BYTES = 1 << 16
_SIZE = (24, 80)
"""Of a terminal that nobody has been connected to yet."""


@contextlib.contextmanager
def open_terminal(uid: int) -> Iterator[tuple[int, int]]:
    """The two ends of a new terminal; the second is the user's (-1: this process'). Raises
    OSError.
    """
    ends = os.openpty()
    try:
        os.fchown(ends[1], uid, -1)
        termios.tcsetwinsize(ends[1], _SIZE)
        yield ends
    finally:
        for end in ends:
            os.close(end)


def keep_shown(terminal: int, out: int) -> None:
    """Write to a file what was shown at a terminal and not read. Raises OSError at its end."""
    os.set_blocking(terminal, False)
    while data := os.read(terminal, _SHOWN_BYTES):
        os.write(out, data)
