"""A simulated process: its own event loop on simulated time, which can be killed or paused between
two steps.

A killed process is gone at once: its connection is dead, whatever its coroutines still do while
they unwind reaches nobody. A frozen one simply gets no turn; what was sent to it waits in its
socket. Out of scope: what it does.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakSet

_UNWINDING_STEPS = 200


class _NoSelector(selectors.SelectSelector):
    """Nothing ever arrives from outside the simulation."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return []


class SimLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is somebody else's.

    Args:
        woken: called whenever something is to be done in it now.
    """

    def __init__(self, time: Callable[[], float], woken: Callable[[], None]) -> None:
        self._simulated = time
        self._woken = woken
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        super().__init__(_NoSelector())

    def time(self) -> float:
        return self._simulated()

    def _make_self_pipe(self) -> None:
        """One thread: nobody needs to wake this loop."""

    def _close_self_pipe(self) -> None:
        pass

    @property
    def has_work(self) -> bool:
        return bool(self._ready)

    @property
    def due(self) -> float | None:
        return self._scheduled[0]._when if self._scheduled else None

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task = super().create_task(coro, **options)
        self.tasks.add(task)
        return task

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        self._woken()
        return super().call_soon(callback, *args, context=context)

    def step(self) -> None:
        """One turn: what is ready and what has come due. As asyncio does it, but nothing comes from
        outside.
        """
        ready, timers, until = (
            self._ready,
            self._scheduled,
            self._simulated() + self._clock_resolution,
        )
        while timers and (timers[0]._cancelled or timers[0]._when < until):
            timer = heapq.heappop(timers)
            timer._scheduled = False
            if timer._cancelled:
                self._timer_cancelled_count -= 1
            else:
                ready.append(timer)
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
        finally:
            asyncio._set_running_loop(None)


class Process:
    """One start of one program.

    Args:
        ended: told how what it ran has ended.
        busy: where it enters itself whenever it has something to do.
    """

    def __init__(
        self,
        name: str,
        time: Callable[[], float],
        ended: Callable[[Process, BaseException | None], None],
        busy: dict[Process, None],
    ) -> None:
        self.name = name
        self.loop = SimLoop(time, lambda: busy.setdefault(self))
        self._busy = busy
        self.alive = True
        self.frozen = False
        self.jump_ms = 0
        self._ended = ended
        self._main: asyncio.Task[None] | None = None
        self.on_death: list[Callable[[], None]] = []
        self.loop.set_exception_handler(self._broke)

    @property
    def kind(self) -> str:
        """What it is one of: a host's worker, state, scheduler, people."""
        return "worker" if self.name[0] == "w" else self.name.split("-")[0]

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        self._main = self.loop.create_task(main)
        self._main.add_done_callback(self._finished)

    def soon(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Have ``call`` made in this process' next turn; nothing happens when it is dead."""
        if self.alive:
            self.loop.call_soon(call, *arguments)

    def thaw(self) -> None:
        """Go on after having been frozen."""
        self.frozen = False
        self._busy[self] = None

    def kill(self) -> None:
        """Gone, as by kill -9; whoever steps it calls `unwind` afterwards."""
        if self.alive:
            self.alive = False
            for call in self.on_death:
                call()

    def unwind(self) -> None:
        """Let every coroutine of a dead process run to its end, cut off from the world, and free
        its loop.
        """
        self.loop.set_exception_handler(lambda loop, context: None)
        for _ in range(_UNWINDING_STEPS):
            left = [task for task in self.loop.tasks if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            self.loop.step()
        self.loop.close()

    def _finished(self, task: asyncio.Task[None]) -> None:
        if self.alive:
            self.kill()
            self._ended(self, None if task.cancelled() else task.exception())

    def _broke(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.alive and isinstance(error, BaseException):
            self.kill()
            self._ended(self, error)
