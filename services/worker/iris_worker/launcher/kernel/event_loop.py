"""The launcher's event loop: timers, and callbacks for descriptors and for children that have
ended.

asyncio has the same methods; importing it doubles the launcher's start and memory, and each
callback costs more.
"""

from __future__ import annotations

import heapq
import itertools
import os
import select
import signal
import time
from _signal import pthread_sigmask  # type: ignore[import-not-found]  # that of `signal` makes names of its answers
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
    """For one thread, the main one: signals interrupt no other.

    Attributes:
        late_s: how long after its time the timer is run whose turn it is.
    """

    def __init__(self) -> None:
        self.late_s = 0.0
        self._epoll = select.epoll()
        self._watched: dict[int, tuple[int, Callable[[], object]]] = {}
        self._timers: list[tuple[float, int, DelayedCall]] = []
        self._order = itertools.count()
        self._held_back: tuple[signal.Signals, ...] = ()

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> DelayedCall:
        timer = DelayedCall(time.monotonic() + delay_s, partial(callback, *args))
        heapq.heappush(self._timers, (timer.due_s, next(self._order), timer))
        return timer

    def watch(self, fd: int, callback: Callable[[], object], *, writable: bool = False) -> None:
        """Call back whenever ``fd`` can be read, or written if that is asked; replaces what was set
        before.
        """
        events = select.EPOLLIN | (select.EPOLLOUT if writable else 0)
        before = self._watched.get(fd)
        self._watched[fd] = (events, callback)
        if before is None:
            self._epoll.register(fd, events)
        elif before[0] != events:
            self._epoll.modify(fd, events)

    def forget(self, fd: int) -> None:
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def watch_children(self, callback: Callable[[], object]) -> None:
        """Call back after children have ended: the signal writes to a pipe, once for all that end
        during a turn.
        """
        self._held_back = (signal.SIGCHLD,)
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
        pthread_sigmask(signal.SIG_UNBLOCK, self._held_back)
        ready = self._epoll.poll(wait_s)
        pthread_sigmask(signal.SIG_BLOCK, self._held_back)
        for fd, watched in [(fd, self._watched[fd]) for fd, _ in ready]:
            if self._watched.get(fd) is watched:  # an earlier callback may have closed it
                watched[1]()
        now_s = time.monotonic()
        while self._timers and (due_s := self._timers[0][0]) <= now_s:
            self.late_s = now_s - due_s
            heapq.heappop(self._timers)[2].run()
