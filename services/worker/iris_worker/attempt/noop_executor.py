"""An executor that runs no processes: every attempt succeeds at once, with real messages. For benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, TaskGrant
from iris_core.states import Cause
from iris_worker.agent.agent import Agent, LocalAttempt
from iris_worker.attempt.isolation import Isolated
from iris_worker.attempt.output.logs import Batch, OutputLogs
from iris_worker.clock import HostClock
from iris_worker.launcher.records import CgroupSupport

_SUCCESS = Ended(Cause.EXITED, 0)


class NoopExecutor:
    """Has the interface of `Executor`."""

    def __init__(self, worker: str, agent: Agent, clock: HostClock, on_change: Callable[[], None]) -> None:
        self.logs = OutputLogs(worker)
        self.has_trash = False
        self.isolated = Isolated("none", "no process is started")
        self.cgroups = CgroupSupport(trouble="no process is started")
        self.usage = ()
        self._on_change = on_change
        self._agent = agent
        self._clock = clock

    async def recover(self) -> tuple[int, int]:
        return 0, 0

    @property
    def room(self) -> int:
        return 1000

    def launch(self, held: LocalAttempt) -> None:
        now_ms = self._clock.wall_ms()
        self._agent.on_started(held.ref, now_ms)
        self._agent.on_ended(held.ref, _SUCCESS, now_ms)

    def kill(self, ref: AttemptRef, grace_ms: int, settle_ms: int) -> None:
        """Nothing runs."""

    def kill_all(self) -> None:
        """Nothing runs."""

    @property
    def running(self) -> int:
        return 0

    def trouble(self) -> str:
        return ""

    def renew_token(self, ref: AttemptRef, grant: TaskGrant) -> None:
        """Nothing has a token."""

    def discard(self, ref: AttemptRef) -> None:
        """Nothing was prepared."""

    def end_prepared(self, ref: AttemptRef, ended: Ended) -> bool:
        """Nothing was built."""
        return False

    def stored(self, batch: Batch) -> None:
        """Nothing was printed."""

    def give_up_logs(self, before_s: float) -> int:
        return 0

    def acknowledged(self, refs: Iterable[AttemptRef]) -> None:
        """Nothing is on disk."""

    def flush(self) -> None:
        """End of a round."""
        self._on_change()

    def close(self) -> None:
        """Nothing is open."""
