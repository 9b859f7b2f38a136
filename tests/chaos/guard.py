"""``python -m tests.chaos.guard DIRECTORY``: ends what a run has left, once the run has ended,
however that was.

The run holds the other end of its standard input, which the kernel closes when the run is killed
too. Processes are known by their directory, also those that are frozen, or wait for a host that is
switched off.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.house.repository import ROOT
from tests.support.cluster import owns

_KILL_S = 60.0
_LOOK_S = 1.0


@contextmanager
def guarded() -> Iterator[Path]:
    """A directory that is gone after the end of this process, with every process that was started
    with its name.
    """
    directory = Path(tempfile.mkdtemp(prefix="iris-chaos-"))
    words = [sys.executable, "-m", "tests.chaos.guard", str(directory)]
    guard = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield directory
    finally:
        guard.communicate()


def main(directory: Path) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    left = end_all(directory)
    shutil.rmtree(directory, ignore_errors=bool(left))
    if left:
        print(f"killed, and still running: {left}", file=sys.stderr)
    return int(bool(left))


def end_all(directory: Path) -> list[int]:
    """Kill all until there are none; those that still run after a while."""
    until_s = time.monotonic() + _KILL_S
    while left := [
        each for each in psutil.process_iter() if each.pid != os.getpid() and owns(directory, each)
    ]:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if time.monotonic() > until_s:
            break
        psutil.wait_procs(left, timeout=_LOOK_S)
    return [process.pid for process in left]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
