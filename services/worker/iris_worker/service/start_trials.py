"""Finds out whether a host on which starts fail can start processes again. Part of the shell: it
waits.

At intervals a program that does nothing is started as those of tasks are: in a slot, as its user,
with its sandbox and a control group, while all device files are there. No task is risked for that.
Out of scope: which failures are trouble (failed_starts).
"""

from __future__ import annotations

import asyncio
from itertools import count

from iris_core.messages.message import AttemptRef
from iris_worker.attempt.executor import Executor
from iris_worker.launcher.records.records import Exit

_JOB = 0
"""Jobs have other numbers."""


class StartTrials:
    """Those of one worker. ``interval_s``: from the beginning of its trouble to the first, and
    between them.
    """

    def __init__(self, executor: Executor, interval_s: float) -> None:
        self._executor = executor
        self._interval_s = interval_s
        self._numbers = count()

    async def run(self) -> None:
        """Try to start something whenever starts fail: until cancelled."""
        starts = self._executor.starts
        while True:
            await starts.in_trouble.wait()
            await asyncio.sleep(self._interval_s)
            try:
                exit_ = await self._try()
            except OSError as error:
                starts.refused(error, starts.kind)
            else:
                if exit_.code == 0:
                    starts.started(trial=True)

    async def _try(self) -> Exit:
        """The exit of a program that is started now. Raises OSError."""
        executor = self._executor
        ref = AttemptRef(_JOB, 0, next(self._numbers))
        await executor.prepare(ref, executor.requests.any_user)
        attempt = executor.attempts.by_ref[ref]
        try:
            attempt.slot.give_directory()
            request = executor.requests.of_trial(attempt)
        except OSError:
            executor.finisher.discard(attempt)
            raise
        over: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        executor.build(
            attempt, request, lambda exit_: None if over.done() else over.set_result(exit_)
        )
        exit_ = await over
        executor.logs.finish(ref, silent=True)
        executor.finisher.discard(attempt)
        executor.acknowledged((ref,))
        return exit_
