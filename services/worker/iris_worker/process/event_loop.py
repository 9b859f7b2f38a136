"""The launcher's event loop: timers, and callbacks for descriptors and for children that have ended.

asyncio has the same methods; importing it doubles the launcher's start and memory, and each callback costs more.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import selectors
import signal
import time
from collections.abc import Callable
from functools import partial

_READ_BYTES = 4096


class DelayedCall:
    """A call in the future; ``due_s`` is monotonic."""

    __slots__ = ("_callback", "due_s")

    def __init__(self, due_s: float, callback: Callable[[], object]) -> None:
        self.due_s = due_s
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def run(self) -> None:
        if self._callback is not None:
            self._callback()


class EventLoop:
    """For one thread, the main one: signals interrupt no other."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, DelayedCall]] = []
        self._order = itertools.count()

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> DelayedCall:
        timer = DelayedCall(time.monotonic() + delay_s, partial(callback, *args))
        heapq.heappush(self._timers, (timer.due_s, next(self._order), timer))
        return timer

    def watch(self, fd: int, callback: Callable[[], object], *, writable: bool = False) -> None:
        """Call back whenever ``fd`` can be read, or written if that is asked; replaces what was set before."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writable else 0)
        if fd in self._selector.get_map():
            self._selector.modify(fd, events, callback)
        else:
            self._selector.register(fd, events, callback)

    def forget(self, fd: int) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(fd)

    def watch_children(self, callback: Callable[[], object]) -> None:
        """Call back after children have ended: the signal writes to a pipe."""
        read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing is written
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

        def ended() -> None:
            os.read(read_end, _READ_BYTES)
            callback()

        self.watch(read_end, ended)

    def turn(self) -> None:
        """Wait until something is due, and run the callbacks of all that is."""
        wait_s = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        for key, _ in self._selector.select(wait_s):
            if self._selector.get_map().get(key.fd) == key:  # an earlier callback may have closed it
                key.data()
        now_s = time.monotonic()
        while self._timers and self._timers[0][0] <= now_s:
            heapq.heappop(self._timers)[2].run()
