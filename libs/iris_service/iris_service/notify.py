"""Notifies systemd when this process is ready, alive and stopping. Does nothing without systemd.

The variables are removed from the environment, so that child processes do not inherit them. Source:
    sd_notify(3).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping

READY = b"READY=1"
ALIVE = b"WATCHDOG=1"
STOPPING = b"STOPPING=1"


class Notifier:
    """The socket that systemd listens on, if there is one.

    Args:
        environ: of this process.

    Attributes:
        interval_s: how often `ALIVE` is due, half of the unit's WatchdogSec; 0 for a unit without.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        address = environ.pop("NOTIFY_SOCKET", "")
        watchdog_us = environ.pop("WATCHDOG_USEC", "")
        watched = environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.interval_s = (
            int(watchdog_us) / 2e6 if address and watched and watchdog_us.isdigit() else 0.0
        )

    def __bool__(self) -> bool:
        """Whether systemd listens."""
        return bool(self._address)

    def send(self, state: bytes) -> None:
        """Send a state; never blocks and never raises, because a failed notification must not end
        the process.
        """
        if self._address:
            with (
                contextlib.suppress(OSError),
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking,
            ):
                speaking.setblocking(False)
                speaking.sendto(state, self._address)
