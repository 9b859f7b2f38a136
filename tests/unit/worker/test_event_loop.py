"""The launcher's event loop."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from iris_worker.launcher.kernel import event_loop
from iris_worker.launcher.kernel.event_loop import EventLoop


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    before = signal.getsignal(signal.SIGCHLD)
    yield EventLoop()
    if (wakeup := signal.set_wakeup_fd(-1)) >= 0:
        os.close(wakeup)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD,))
    signal.signal(signal.SIGCHLD, before)


def test_timers_run_in_their_order_unless_cancelled(
    loop: EventLoop, monkeypatch: pytest.MonkeyPatch
):
    ran: list[int] = []
    now_s = time.monotonic()
    with monkeypatch.context() as standing:
        standing.setattr(event_loop.time, "monotonic", lambda: now_s)
        timers = [loop.call_later(delay / 1000, ran.append, delay) for delay in (3, 1, 2)]
    timers[2].cancel()
    while len(ran) < 2:
        loop.turn()
    assert ran == [1, 3]


def test_a_descriptor_is_watched_until_it_is_forgotten(loop: EventLoop):
    seen: list[bytes] = []
    read_end, write_end = os.pipe()
    loop.watch(read_end, lambda: seen.append(os.read(read_end, 1)))
    os.write(write_end, b"ab")
    loop.turn()
    loop.forget(read_end)
    loop.call_later(0, lambda: None)
    loop.turn()
    assert seen == [b"a"]
    os.close(read_end)
    os.close(write_end)


def test_a_callback_may_forget_a_descriptor_that_is_ready_too(loop: EventLoop):
    pipes = [os.pipe() for _ in range(2)]
    seen: list[int] = []

    def ready(read_end: int) -> None:
        seen.append(read_end)
        for end, _ in pipes:
            loop.forget(end)

    for read_end, write_end in pipes:
        loop.watch(read_end, lambda read_end=read_end: ready(read_end))
        os.write(write_end, b"x")
    loop.turn()
    assert len(seen) == 1
    for ends in pipes:
        for end in ends:
            os.close(end)


def test_the_end_of_a_child_is_noticed(loop: EventLoop):
    ended: list[bool] = []
    loop.watch_children(lambda: ended.append(True))
    child = subprocess.Popen(["true"])
    while not ended:
        loop.turn()
    assert child.wait() == 0
