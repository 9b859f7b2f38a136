"""A simulated process: its own event loop on simulated time, so that it can be killed or frozen between two steps.

A killed process is gone at once: its connection is dead, whatever its coroutines still do while they unwind reaches
nobody. A frozen one simply gets no turn; what was sent to it waits in its socket. Not in this room: what it does.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

_UNWINDING_STEPS = 200


class _NoSelector(selectors.SelectSelector):
    """Nothing ever arrives from outside the simulation."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return []


class SimLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is somebody else's."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._simulated = time
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

    def step(self) -> None:
        """One turn: what is ready and what has come due."""
        asyncio._set_running_loop(self)
        try:
            self._run_once()
        finally:
            asyncio._set_running_loop(None)


class Process:
    """One start of one program.

    Args:
        main: what it runs; how it ended is given to ``ended``.
    """

    def __init__(self, name: str, time: Callable[[], float], ended: Callable[[Process, BaseException | None], None]):
        self.name = name
        self.loop = SimLoop(time)
        self.alive = True
        self.frozen = False
        self.jump_ms = 0
        self._ended = ended
        self._main: asyncio.Task[None] | None = None
        self.on_death: list[Callable[[], None]] = []
        self.loop.set_exception_handler(self._broke)

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        self._main = self.loop.create_task(main)
        self._main.add_done_callback(self._finished)

    def soon(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Have ``call`` made in this process' next turn; nothing happens when it is dead."""
        if self.alive:
            self.loop.call_soon(call, *arguments)

    def kill(self) -> None:
        """Gone, as by kill -9; whoever steps it calls `unwind` afterwards."""
        if self.alive:
            self.alive = False
            for call in self.on_death:
                call()

    def unwind(self) -> None:
        """Let every coroutine of a dead process run to its end, cut off from the world, and free its loop."""
        self.loop.set_exception_handler(lambda loop, context: None)
        for _ in range(_UNWINDING_STEPS):
            left = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
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
