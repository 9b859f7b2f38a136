"""Signals processes that may have ended, also when their id was reused."""

from __future__ import annotations

import contextlib
import os

from iris_worker.launcher.kernel import tree


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; False when it is empty."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # it has a member that runs as another user
        return True
    return True


def signal_process(pid: int, ticks: int, number: int) -> bool:
    """Signal the process that was started at ``ticks``; False when it has ended, also when its id
    was reused.
    """
    with contextlib.suppress(ProcessLookupError):
        if tree.started_ticks(pid) == ticks:
            os.kill(pid, number)
            return True
    return False
