"""Processes that are stopped before they have become their programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from iris_worker.launcher.kernel import tree
from iris_worker.launcher.kernel.event_loop import EventLoop
from iris_worker.launcher.starts.spawn import Child, begin
from iris_worker.launcher.starts.starts import Starts, Stopped

STOPS_ITSELF = "import os, signal\nwhile True: os.kill(os.getpid(), signal.SIGSTOP)"
STOPS_ONCE = (
    "import os, signal, sys\nos.kill(os.getpid(), signal.SIGSTOP)\nos.close(int(sys.argv[1]))"
)


def started(code: str) -> tuple[subprocess.Popen[bytes], int]:
    """A process that is about to become another program, for all that its report says."""
    read_end, write_end = os.pipe()
    with open(write_end, "wb"):
        words = (sys.executable, "-c", code, str(write_end))
        return subprocess.Popen(words, pass_fds=[write_end]), read_end


def test_one_that_somebody_stops_is_continued():
    loop, begun = EventLoop(), []
    process, report = started(STOPS_ONCE)
    Starts(loop).add(Child(process.pid, report), "true", lambda: begun.append(process.pid))
    while not begun:
        loop.turn()
    assert process.wait(20) == 0


def test_one_that_is_stopped_again_and_again_is_ended():
    loop, begun = EventLoop(), []
    process, report = started(STOPS_ITSELF)
    starts = Starts(loop, stopped_s=0.5)
    starts.add(Child(process.pid, report), "true", lambda: begun.append(process.pid))
    while tree.is_alive(process.pid):
        loop.turn()
    assert isinstance(starts.settle(process.pid), Stopped)
    assert process.wait(20) == -signal.SIGKILL
    assert begun == []


def test_one_that_has_become_its_program_is_no_start_any_more(tmp_path: Path):
    loop, begun = EventLoop(), []
    null = os.open(os.devnull, os.O_RDWR)
    child = begin(
        ("sleep", "1000"), {"PATH": os.environ["PATH"]}, str(tmp_path), (null, null, null)
    )
    os.close(null)
    starts = Starts(loop)
    starts.add(child, "sleep", lambda: begun.append(child.pid))
    assert child.pid in starts
    while not begun:
        loop.turn()
    assert child.pid not in starts
    os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)
    assert starts.settle(child.pid) is None
