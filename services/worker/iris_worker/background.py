"""The tasks of the worker's event loop; the first that fails ends the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """Tasks that run until they end or are cancelled. Needs a running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = self._loop.create_future()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Have `until` raise this, unless another one came before."""
        if not self._failed.done():
            self._failed.set_exception(error)

    async def until(self, *events: asyncio.Event) -> None:
        """Wait for one of the events. Raises what a task has raised, now or before."""
        waiting: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(event.wait()) for event in events
        ]
        try:
            await asyncio.wait({*waiting, self._failed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        if self._failed.done():
            self._failed.result()

    async def end(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """Nobody waits for a failure any more."""
        self._failed.cancel()
