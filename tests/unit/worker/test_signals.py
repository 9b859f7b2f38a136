"""Which processes the worker signals when it ends what an attempt left behind."""

from __future__ import annotations

import signal
import subprocess

from iris_worker.launcher.kernel.signals import signal_process
from iris_worker.launcher.kernel.tree import started_ticks


def test_a_process_that_has_the_id_of_one_that_is_gone_is_not_signalled():
    other = subprocess.Popen(["sleep", "100"])
    ticks = started_ticks(other.pid)
    assert not signal_process(other.pid, ticks - 1, signal.SIGKILL)
    assert other.poll() is None
    assert signal_process(other.pid, ticks, signal.SIGKILL)
    assert other.wait() == -signal.SIGKILL
    assert not signal_process(other.pid, ticks, signal.SIGKILL)
