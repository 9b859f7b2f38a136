"""Groups of processes beside what started them and was killed. The end of a pipe that all of a group
hold tells that none of it is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from iris_service.group_guard import GroupGuard, guard

OWNER = """
import subprocess, sys
from iris_service.group_guard import GroupGuard
guard = GroupGuard()
{before}
with guard.group() as begin:
    words = ["/bin/sh", "-c", "sleep 60 & echo $!; wait"]
    subprocess.run(words, start_new_session=True, preexec_fn=begin)
"""
FAILED_START = """
try:
    with guard.group() as begin:
        subprocess.run(["/no/such/program"], start_new_session=True, preexec_fn=begin)
except OSError:
    pass
"""
ENDED_GUARD = """
with guard.group() as begin:
    subprocess.run(["true"], start_new_session=True, preexec_fn=begin)
guard._process.kill()
guard._process.wait()
"""
TOLD = """
with guard.group():
    print(guard._process.pid, flush=True)
"""
Start = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", code]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("before", ["", FAILED_START, ENDED_GUARD])
def test_a_group_ends_with_what_started_it_however_that_ended(start: Start, before: str) -> None:
    owner = start(OWNER.format(before=before))
    assert owner.stdout is not None
    assert int(owner.stdout.readline())
    owner.kill()
    assert owner.stdout.read() == b""


def test_a_guard_is_not_ended_by_signals_that_end_its_neighbours(start: Start) -> None:
    owner = start(OWNER.format(before=TOLD))
    assert owner.stdout is not None
    guarding = int(owner.stdout.readline())
    assert int(owner.stdout.readline())
    os.kill(guarding, signal.SIGTERM)
    os.kill(guarding, signal.SIGINT)
    owner.kill()
    assert owner.stdout.read() == b""


def test_a_group_that_is_over_is_left_alone() -> None:
    groups = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2)]
    over, left = groups
    guard([b"0 %d\n" % over.pid, b"1 %d\n" % left.pid, b"0 0\n"])
    assert left.wait() == -signal.SIGKILL
    assert over.poll() is None
    over.kill()
    over.wait()


def test_what_is_closed_has_ended_its_groups() -> None:
    guarding = GroupGuard()
    with guarding.group() as begin:
        words = ["sleep", "600"]
        process = subprocess.Popen(words, start_new_session=True, preexec_fn=begin)  # noqa: PLW1509 - one system call
        guarding.close()
        assert process.wait() == -signal.SIGKILL
    guarding.close()
