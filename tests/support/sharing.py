"""A cluster in which people with projects want more than there is: the state machine and the planner,
on a clock of their own.

Every attempt starts as soon as it is assigned and ends when its time has passed, or when it is told to
and `SharedCluster.give_way` is called. Used by the tests of fair share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount, Device, ResourceRequest
from iris_core.states import Cause, KernelStatus
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.plan import plan
from iris_scheduler.settings import SchedulerSettings
from iris_state.policy import Policy
from tests.support.world import Host, World, stage

SETTINGS = SchedulerSettings()
DONE = Ended(Cause.EXITED, exit_code=0)
STOPPED = Ended(Cause.CANCELLED, exit_code=143)
CHIPS = {"device-type": "gpu", "device-variant": "h100"}


class SharedCluster(World):
    """One host with so many chips. ``is_checked``: compare every record after every step.

    Attributes:
        held_ms: chips held, times ms, by the project and the user.
        started: when the first task of each job has started, ms.
    """

    def __init__(
        self, chips: int, policy: Policy | None = None, *, is_checked: bool = True
    ) -> None:
        self.is_checked = is_checked
        super().__init__(policy or Policy(max_building=1000))
        self.held_ms: Counter[tuple[str, str]] = Counter()
        self.started: dict[str, list[int]] = {}
        self.length_ms: Callable[[], int] = lambda: 600_000
        self._ends: list[tuple[int, AttemptRef]] = []
        amount = Amount(cpu_millis=chips * 1000, memory_bytes=1 << 40, chips=chips)
        self.register(Host("w", amount, dict(CHIPS), max_attempts=10_000))

    def check(self) -> None:
        if self.is_checked or self.mirror is None:
            super().check()

    def want(self, name: str, user: str, tasks: int, project: str = "") -> None:
        """A user submits a job of tasks with one chip each."""
        resources = ResourceRequest(cpu_millis=100, device=Device("gpu", "h100"))
        made = self.submit(
            JobSpec(
                name=name,
                command=("true",),
                replicas=tasks,
                resources=resources,
                project=project,
            ),
            Caller(user, "admin"),
        )
        assert made.status == "created", made

    def cycle(self) -> None:
        """One cycle of the planner; what it places starts."""
        assert self.mirror is not None
        decision = plan(self.mirror, Cache(), self.now_ms, SETTINGS)
        self.mirror.looked()
        if not decision.is_empty:
            self.plan(decision.plan)
        begun = [
            AttemptRef(*key)
            for key, attempt in self.ledger.presence["w"].open.items()
            if not attempt.started_ms
        ]
        if begun:
            self.say("w", *(stage(ref, KernelStatus.RUNNING, self.now_ms) for ref in begun))
        for ref in begun:
            job = self.ledger.jobs[ref.job]
            self.started.setdefault(job.name, []).append(self.now_ms)
            heappush(self._ends, (self.now_ms + self.length_ms(), ref))

    def give_way(self) -> list[AttemptRef]:
        """What was told to stop ends; returns it."""
        stopping = sorted(self.hosts["w"].stopping)
        self._ends = [one for one in self._ends if one[1] not in stopping]
        heapify(self._ends)
        ended = (stage(ref, KernelStatus.TERMINATED, self.now_ms, STOPPED) for ref in stopping)
        self.say("w", *ended)
        return stopping

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        until_ms = self.now_ms + round(seconds * 1000)
        began_ms = self.now_ms
        self.cycle()
        while self._ends and self._ends[0][0] <= until_ms:
            self.now_ms = self._ends[0][0]
            ended = []
            while self._ends and self._ends[0][0] == self.now_ms:
                ended.append(heappop(self._ends)[1])
            for ref in ended:
                self._count(ref, began_ms)
            self.say(
                "w", *(stage(ref, KernelStatus.TERMINATED, self.now_ms, DONE) for ref in ended)
            )
            self.cycle()
        self.now_ms = until_ms
        for _, ref in self._ends:
            self._count(ref, began_ms)

    def _count(self, ref: AttemptRef, since_ms: int) -> None:
        job = self.ledger.jobs[ref.job]
        attempt = job.task(ref.index).attempts[ref.attempt]
        key = (job.spec.project or "/", job.user)
        self.held_ms[key] += self.now_ms - max(attempt.assigned_ms, since_ms)

    def parts(self) -> dict[tuple[str, str], float]:
        """Which part of all that was held each user of a project has held."""
        return {key: held / self.held_ms.total() for key, held in self.held_ms.items()}
