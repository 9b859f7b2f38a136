"""Which boot of its host a process runs in, and the time since then."""

from __future__ import annotations

import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The id of this boot of the host; empty where the kernel does not provide it."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def since_boot_ns() -> int:
    """Time since boot, suspends included: the same for all processes of a host, never set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
