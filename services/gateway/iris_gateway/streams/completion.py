"""Detects the end of a job or task: at once by its events, and reliably by polling.

See also: `logs`, which reads on to the last line, and `results`, which also tells of tasks that
    left none.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from array import array
from collections.abc import Awaitable, Callable, Iterable
from typing import Self

from iris_core.states import JOB_TERMINAL, TERMINAL, TaskState, display_name
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams.event import EventRecord, Filter
from iris_gateway.streams.feed import Feed, Lagging

_RETRY_S = 1.0
_LOOK_S = 4.5
"""Between two looks at the state of what does not end, at least; a feed without events yields every
5 s.
"""
BAD_ENDS = 1000
"""Bad ends that a follower takes at a time at most."""
_TASK_ENDS = frozenset(f"task.state.{display_name(state)}" for state in TERMINAL)
_BAD_ENDS = _TASK_ENDS - {f"task.state.{display_name(TaskState.SUCCEEDED)}"}
_JOB_ENDS = frozenset(f"job.state.{display_name(state)}" for state in JOB_TERMINAL)
ENDED = frozenset(display_name(state) for state in (*TERMINAL, *JOB_TERMINAL))
"""Terminal states."""
ENDS = tuple(sorted(_BAD_ENDS | _JOB_ENDS))
"""The subjects that tell of the end of a job, and of tasks that end otherwise than well."""


class Completion:
    """Watches one job, or one task of it, while its context lasts.

    Args:
        feed: of `ENDS`, or of all events for a task.
        number, job: of the job; a later one may have its name. task: the task's name, empty for the
            whole job.
        ask: returns its present state. Raises ProblemResponse.
        found: its state when it was asked for, and the `position_of` before that; left out, it is
            asked for.
        calls: whether `take_bad_ends` of its tasks is wanted; 16 bytes of each are held.

    Attributes:
        arrival: set when the end is known, and when there are bad ends.
        state: the last known one.
    """

    def __init__(
        self,
        feed: Feed,
        number: int,
        job: str,
        task: str,
        ask: Callable[[], Awaitable[str]],
        found: tuple[str, int] | None = None,
        calls: bool = False,
    ) -> None:
        self._feed = feed
        self._number = number
        self._job = job
        self._task = task
        self._ask = ask
        self._watcher: asyncio.Task[None] | None = None
        self._found = found
        self._types = ("task",) if task else ("job", "task") if calls else ("job",)
        self._calls = calls
        self.arrival = asyncio.Event()
        self.state = ""
        self._bad_ends = array("q")

    def take_bad_ends(self, limit: int = BAD_ENDS) -> list[tuple[int, int]]:
        """Indexes of tasks of the job that have ended otherwise than well meanwhile, each with the
        number of its last attempt, -1 without one; at most ``limit``, the oldest first.
        """
        taken = self._bad_ends[: 2 * limit]
        del self._bad_ends[: 2 * limit]
        return list(zip(taken[::2], taken[1::2], strict=True))

    @property
    def known(self) -> bool:
        """Whether it has ended, or no longer exists."""
        return self.state in ENDED or self._watcher is None or self._watcher.done()

    @property
    def cut_off(self) -> bool:
        """Whether it has not ended, and the stream ends because this gateway shuts down."""
        return self._feed.closed and self.state not in ENDED

    async def __aenter__(self) -> Self:
        position = self._found[1] if self._found is not None else await position_of(self._feed)
        self.state = self._found[0] if self._found is not None else await self._ask()
        if self.state not in ENDED:
            self._watcher = asyncio.create_task(self._watch(position))
            self._watcher.add_done_callback(lambda _: self.arrival.set())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watcher is not None:
            self._watcher.cancel()

    async def _watch(self, position: int) -> None:
        """``position``: before the state was asked for, so its end is an event after that."""
        asked_s = asyncio.get_running_loop().time()
        while self.state not in ENDED and not self._feed.closed:
            try:
                await self._watch_from(position, asked_s)
            except Lagging:
                pass
            except ProblemResponse as problem:
                if problem.code == "not_found":
                    return
                await asyncio.sleep(_RETRY_S)
            position = self._feed.newest
            asked_s = -math.inf

    async def _watch_from(self, position: int, asked_s: float) -> None:
        clock = asyncio.get_running_loop().time
        wanted = Filter(types=self._types, within=self._job, number=self._number)
        async with contextlib.aclosing(self._feed.watch(wanted, position)) as batches:
            async for _, events in batches:
                if self._calls:
                    self._note(events)
                ends = any(self._ends(event.type, event.job, event.task) for event in events)
                if ends or clock() - asked_s >= _LOOK_S:
                    asked_s = clock()
                    self.state = await self._ask()
                if self.state in ENDED:
                    return

    def _note(self, events: Iterable[EventRecord]) -> None:
        for event in events:
            if event.type in _BAD_ENDS and event.job == self._job and event.task:
                index = int(event.task.rpartition("/")[2])
                attempt = -1 if event.attempt is None else event.attempt
                self._bad_ends.extend((index, attempt))
                self.arrival.set()

    def _ends(self, kind: str, job: str, task: str | None) -> bool:
        if self._task:
            return kind in _TASK_ENDS and task == self._task
        return kind in _JOB_ENDS and job == self._job


async def position_of(feed: Feed) -> int:
    """From where on a feed is read now; what is asked for afterwards knows of all events before.
    Raises ProblemResponse unavailable.
    """
    await feed.wake()
    return feed.newest
