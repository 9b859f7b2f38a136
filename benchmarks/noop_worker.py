"""A worker that runs no processes: every attempt succeeds at once, with real messages.

Started as ``python -m benchmarks.noop_worker``, with the settings of a worker.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended
from iris_core.states import Cause
from iris_service.run import run_service
from iris_worker.agent.local_attempt import LocalAttempt
from iris_worker.attempt.executor import Executor
from iris_worker.launcher.records.records import Started
from iris_worker.service.service import WorkerService, main
from iris_worker.settings import WorkerSettings

_SUCCESS = Ended(Cause.EXITED, 0)
_ROOM = 1000


class NoopExecutor(Executor):
    """Has no launcher."""

    async def recover(self) -> tuple[tuple[Started, ...], int]:
        return (), 0

    @property
    def room(self) -> int:
        return _ROOM

    def launch(self, held: LocalAttempt) -> None:
        now_ms = self._clock.wall_ms()
        self._agent.on_started(held.ref, now_ms)
        self._agent.on_ended(held.ref, _SUCCESS, now_ms)

    def kill(self, ref: AttemptRef, grace_ms: int, settle_ms: int) -> None:
        """Nothing runs."""

    def kill_all(self) -> None:
        """Nothing runs."""

    def trouble(self) -> str:
        return ""

    def acknowledged(self, refs: Iterable[AttemptRef]) -> None:
        """Nothing is on disk."""


class NoopWorker(WorkerService):
    """The worker of a host that runs nothing."""

    makes_executor = NoopExecutor


if __name__ == "__main__":
    run_service("worker", WorkerSettings, partial(main, kind=NoopWorker))
