"""Stops another process, and returns once it stands: on a busy machine its threads run on after the
signal, long enough to answer.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_WITHIN_S = 30.0


def suspend(pid: int) -> None:
    """Send SIGSTOP and wait until no thread of the process runs. Raises ProcessLookupError,
    TimeoutError.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline_s = time.monotonic() + _WITHIN_S
    while not all(_state(thread) in "TtZX" for thread in Path(f"/proc/{pid}/task").iterdir()):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"process {pid} runs {_WITHIN_S:g} s after SIGSTOP")
        time.sleep(0.001)


@contextlib.contextmanager
def suspended(pids: Iterable[int]) -> Iterator[None]:
    """These processes stand for as long as the block lasts. Raises ProcessLookupError,
    TimeoutError.
    """
    stands: list[int] = []
    try:
        for pid in pids:
            stands.append(pid)
            suspend(pid)
        yield
    finally:
        for pid in stands:
            os.kill(pid, signal.SIGCONT)


def _state(thread: Path) -> str:
    """One letter of proc(5); X: it is gone."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
