import os
import signal
import sys
from pathlib import Path

import pytest

from iris_service import child as module
from iris_service.child import ChildProcess, Program
from tests.support.cluster import until


@pytest.fixture
def child_of(tmp_path):
    """A child that runs some Python, and is ended with the test."""
    made: list[ChildProcess] = []

    def make(code, *, kept=True, timer_slack_ns=0):
        argv = [sys.executable, "-c", code]
        program = Program(
            "state", "state", argv, dict(os.environ), kept, timer_slack_ns=timer_slack_ns
        )
        made.append(ChildProcess(program, tmp_path))
        return made[-1]

    yield make
    for child in made:
        child.signal(signal.SIGKILL)
        if child.pid:
            until(lambda child=child: child.look(0.0) is not None, "it has ended")


def ended(child, now):
    return until(lambda: child.look(now) is not None or None, "it has ended")


def test_a_service_that_dies_is_due_at_once_and_then_after_growing_pauses(child_of):
    child = child_of("raise SystemExit(3)")
    pauses = []
    for round_ in range(5):
        now = round_ * 1.0
        child.spawn(now)
        ended(child, now)
        pauses.append(round(child.due - now, 3))

    assert pauses == [0.0, 0.1, 0.2, 0.4, 0.8]


def test_after_a_steady_run_it_is_due_at_once_again(child_of):
    child = child_of("")
    for _ in range(4):
        child.spawn(0.0)
        ended(child, 0.0)
    child.spawn(0.0)
    ended(child, 100.0)

    assert child.due == 100.0


def test_a_worker_that_dies_is_never_due(child_of):
    child = child_of("raise SystemExit(1)", kept=False)
    child.spawn(0.0)
    ended(child, 0.0)

    assert (child.due, child.pid) == (None, 0)


def test_an_end_is_told_once_with_its_code_or_signal(child_of):
    child = child_of("import time; time.sleep(60)")
    child.spawn(0.0)
    child.signal(signal.SIGKILL)
    codes = until(lambda: [code] if (code := child.look(0.0)) is not None else None, "it has ended")

    assert (codes, child.look(0.0)) == ([-9], None)


def test_output_is_added_to_the_log(child_of, tmp_path):
    child = child_of("print('hello')")
    for _ in range(2):
        child.spawn(0.0)
        ended(child, 0.0)

    assert (tmp_path / "state.log").read_text() == "hello\nhello\n"


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels have no timer slack")
def test_a_program_may_be_woken_later_than_this_process(child_of, tmp_path):
    asked = "print(open('/proc/self/timerslack_ns').read().strip())"
    usual, later = child_of(asked), child_of(asked, timer_slack_ns=200_000)
    for child in (usual, later):
        child.spawn(0.0)
        ended(child, 0.0)

    mine = Path("/proc/self/timerslack_ns").read_text()
    assert (tmp_path / "state.log").read_text() == f"{mine}200000\n"


WRITES_WHEN_TOLD = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("ready", flush=True)
while signal.sigwait([signal.SIGUSR1]):
    print("x" * 2000, flush=True)
"""


def test_the_log_of_a_service_that_runs_on_does_not_grow_for_ever(child_of, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LOG_BYTES", 1000)
    log, earlier = tmp_path / "state.log", tmp_path / "state.log.1"
    child = child_of(WRITES_WHEN_TOLD)
    child.spawn(0.0)
    until(lambda: log.read_text() == "ready\n", "it listens")
    for written in (2007, 2001, 2001):
        child.signal(signal.SIGUSR1)
        until(lambda written=written: log.stat().st_size == written, "it has written")
        child.look(0.0)
        assert (log.stat().st_size, earlier.stat().st_size) == (0, written)
