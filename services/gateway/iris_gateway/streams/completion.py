"""Detects the end of a job or task: at once by its events, and reliably by polling.

See also: `logs`, which reads on to the last line.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Self

from iris_core.states import JOB_TERMINAL, TERMINAL, display_name
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams.event import Filter
from iris_gateway.streams.feed import Feed, Lagging

_RETRY_S = 1.0
_LOOK_S = 5.0
"""Between two looks at the state of what does not end; events of others come much oftener."""
_TASK_ENDS = frozenset(f"task.state.{display_name(state)}" for state in TERMINAL)
_JOB_ENDS = frozenset(f"job.state.{display_name(state)}" for state in JOB_TERMINAL)
ENDED = frozenset(display_name(state) for state in (*TERMINAL, *JOB_TERMINAL))
"""Terminal states."""


class Completion:
    """Watches one job, or one task of it, while its context lasts.

    Args:
        job: its name. task: the task's name, empty for the whole job.
        ask: returns its present state. Raises ProblemResponse. state: as it was found a moment ago, if it was.

    Attributes:
        arrival: set when the end is known.
        state: the last known one.
    """

    def __init__(self, feed: Feed, job: str, task: str, ask: Callable[[], Awaitable[str]], state: str = "") -> None:
        self._feed = feed
        self._job = job
        self._task = task
        self._ask = ask
        self._watcher: asyncio.Task[None] | None = None
        self.arrival = asyncio.Event()
        self.state = state

    @property
    def known(self) -> bool:
        """Whether it has ended, or no longer exists."""
        return self.state in ENDED or self._watcher is None or self._watcher.done()

    @property
    def cut_off(self) -> bool:
        """Whether it has not ended, and the stream ends because this gateway shuts down."""
        return self._feed.closed and self.state not in ENDED

    async def __aenter__(self) -> Self:
        await self._feed.wake()
        position = self._feed.newest
        self.state = self.state or await self._ask()
        if self.state not in ENDED:
            self._watcher = asyncio.create_task(self._watch(position))
            self._watcher.add_done_callback(lambda _: self.arrival.set())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watcher is not None:
            self._watcher.cancel()

    async def _watch(self, position: int) -> None:
        while self.state not in ENDED and not self._feed.closed:
            try:
                await self._watch_from(position)
            except Lagging:
                position = self._feed.newest
            except ProblemResponse as problem:
                if problem.code == "not_found":
                    return
                await asyncio.sleep(_RETRY_S)

    async def _watch_from(self, position: int) -> None:
        clock = asyncio.get_running_loop().time
        wanted = Filter(types=("task",) if self._task else ("job",), within=self._job)
        async with contextlib.aclosing(self._feed.watch(wanted, position)) as batches:
            self.state, asked_s = await self._ask(), clock()
            async for _, events in batches:
                ends = any(self._ends(event.type, event.job, event.task) for event in events)
                if ends or clock() - asked_s >= _LOOK_S:
                    self.state, asked_s = await self._ask(), clock()
                if self.state in ENDED:
                    return

    def _ends(self, kind: str, job: str, task: str | None) -> bool:
        if self._task:
            return kind in _TASK_ENDS and task == self._task
        return kind in _JOB_ENDS and job == self._job
