"""The records of the ledger: jobs with their tasks and attempts, coscheduled sessions, workers.

Fields only, and properties that follow from them; `ledger` alone writes. Records are positional so
that a snapshot is one encoding of them. Source: docs/design/semantics.md#entities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from iris_core.access.actor import Actor
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Artifact, GivenNotice, TaskUsage
from iris_core.placement.priority import PriorityKey, priority_key
from iris_core.spec.index_set import IndexSet
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_core.states import (
    ACTIVE,
    JOB_TERMINAL,
    KERNEL_UNSTARTED,
    TERMINAL,
    Budget,
    Cause,
    Initiator,
    JobState,
    KernelStatus,
    PriorityBand,
    SchedulingResult,
    SessionStatus,
    TaskState,
)
from iris_core.tables.task import BUDGET_OF_STATE, is_finished
from iris_state.policy import GRACE_MS
from iris_state.records.gates import Gate
from iris_state.records.indexes.stored import NONE_STORED, StoredBytes
from iris_state.records.indexes.usage_days import Outcomes
from iris_state.records.stops import UNCONFIRMED_MS, Ending

Key = tuple[int, int]
"""A task: job number and index."""

AttemptKey = tuple[int, int, int]
"""An attempt: job number, index, attempt number."""


class Attempt(msgspec.Struct, array_like=True, gc=False):
    """One placement of a task on one worker. Open, and so holding resources, until ``closed_ms``.

    ``since_ms`` is when it entered its status; counters are before and after its end was charged.
    ``suspect``: it may have crashed its worker, see `poison`. ``detail``: what its worker does in
    this status; ``doing``: since it runs. ``by``: whose command ended it. ``alone``: nothing is
    placed beside it, because an earlier attempt of its task is suspect. ``requeued``: its task was
    requeued while it was being stopped. ``chain``: as of `changes.Assigned`. ``ending``: it is
        being stopped, its task stays in its state until the end is known. ``notices``: that it was
            given. ``at_once``: it is stopped without a grace period. ``waits``: for what another
                attempt builds on its host. ``output_bytes``: as of `Ended`.
    """

    number: int
    worker: str
    assigned_ms: int
    since_ms: int
    status: KernelStatus = KernelStatus.SCHEDULED
    shown: TaskState = TaskState.ASSIGNED
    building_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    closed_ms: int = 0
    cause: Cause | None = None
    initiator: Initiator | None = None
    charged_to: Budget | None = None
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    stderr_tail: str = ""
    peak_rss_bytes: int = 0
    failures: tuple[int, int] = (0, 0)
    preemptions: tuple[int, int] = (0, 0)
    dropped_bytes: int = 0
    suspect: bool = False
    detail: str = ""
    usage: TaskUsage | None = None
    artifact: Artifact | None = None
    by: Actor | None = None
    alone: bool = False
    requeued: bool = False
    chain: tuple[int, int] | None = None
    ending: Ending | None = None
    notices: tuple[GivenNotice, ...] = ()
    doing: str = ""
    at_once: bool = False
    waits: bool = False
    output_bytes: int = 0

    @property
    def is_open(self) -> bool:
        return not self.closed_ms

    @property
    def is_building(self) -> bool:
        """Whether it counts in the building window of its worker; what waits behind another
        attempt, or for what that builds, does not.
        """
        return self.chain is None and not self.waits and self.status in KERNEL_UNSTARTED

    @property
    def waits_in_chain(self) -> bool:
        """Whether it waits for another attempt to end, as far as its worker has told."""
        return self.chain is not None and self.status is KernelStatus.SCHEDULED

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop, and its end is not known."""
        return self.status is KernelStatus.TERMINATING or (self.ending is not None and self.is_open)

    @property
    def exit_ignored(self) -> bool:
        """Whether its task is tried again whatever it exits with."""
        return self.requeued or self.cause in (Cause.REQUEUED, Cause.HELD)


class Session(msgspec.Struct, array_like=True):
    """The stored part of a session: a coscheduled job's status, or only the tries of a session of
    one.

    ``version`` grows with every change, for compare-and-set. ``judged_at`` is the journal sequence
    of the last refused placement, see `changes.Judged`. ``begun_ms``: when its members were told to
    start; 0: not yet.
    """

    status: SessionStatus = SessionStatus.PENDING
    since_ms: int = 0
    version: int = 0
    tries: dict[str, int] = {}
    judged_at: int = 0
    begun_ms: int = 0


class Task(msgspec.Struct, array_like=True, gc=False):
    """One task of a job; its current attempt is the last one.

    ``cause``, ``note`` and ``by`` describe its end. ``no_retry``: it failed for good with budget
    left; no counter is charged. ``gates``: the bits of its job's gates with ``each`` that are
    closed for it (`Gate.bit`); ``not_before_ms``: not queued before, while it is pending; 0: no
    such gate.
    """

    state: TaskState = TaskState.PENDING
    failure_count: int = 0
    preemption_count: int = 0
    reschedules: int = 0
    queued_ms: int = 0
    attempts: list[Attempt] = []
    session: Session | None = None
    cause: Cause | None = None
    note: str = ""
    no_retry: bool = False
    by: Actor | None = None
    gates: int = 0
    not_before_ms: int = 0
    requeue_count: int = 0
    reclaim_count: int = 0

    @property
    def is_gated(self) -> bool:
        """Whether a gate of its own keeps it out of the queue while it is pending."""
        return self.gates > 0 or self.not_before_ms > 0

    @property
    def current(self) -> Attempt | None:
        """The task's current attempt; None while the task is pending or waits for its gang, and
        when it has ended.
        """
        return (
            self.attempts[-1] if self.state in ACTIVE and not self.attempts[-1].ended_ms else None
        )

    @property
    def is_leaving(self) -> bool:
        """Whether it is pending, and its last attempt is being stopped."""
        return self.state is TaskState.PENDING and bool(self.attempts) and self.attempts[-1].is_open

    @property
    def waits_for_gang(self) -> bool:
        """Whether its attempt has exited 0, or is stopped for the gang's leader, and the task waits
        for the other members.
        """
        return self.state in ACTIVE and self.attempts[-1].ended_ms > 0

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL


class HistoryEntry(msgspec.Struct, array_like=True, gc=False):
    """One merged row: equal judgements in a row count up ``attempts``."""

    index: int
    handler: str
    from_status: str
    to_status: str
    result: SchedulingResult
    reason: str
    attempts: int
    first_ms: int
    last_ms: int
    by: Actor | None = None

    def says(self, other: HistoryEntry) -> bool:
        """Whether two rows are the same judgement at different times."""
        return (
            self.index == other.index
            and self.handler == other.handler
            and self.from_status == other.from_status
            and self.to_status == other.to_status
            and self.result is other.result
            and self.reason == other.reason
            and self.by == other.by
        )


_STATES = tuple(TaskState)
"""In the order of their wire values, as in `Job.counts`."""


class Job(msgspec.Struct, array_like=True):
    """A job with all its tasks, by ascending index. ``counts[state]`` is how many tasks are in each
    state.

    ``rerun_of``: the number of the job that it repeats, in whole or in part; 0: none.
    ``by``: who has submitted it; ``ended_by``: whose command ended it.
    ``gates``: open and closed ones, by number; ``eligible_ms``: when the last gate of the whole job
    opened, 0: never closed. ``version``: grows with each amendment. ``retimed``: its timeout was
    changed, and hosts may know another. ``open``: further calls may be added. ``grown_ms``: the
    last request of the client of such a job; ``note``: why it was closed, when its client has not
    done so. ``usage``: of its attempts that have ended. ``lineage``: of a job that a task submitted
    beside its own: the number of the root from which all such jobs descend; 0: it is none.
    ``stored``: what its attempts that have ended have stored; ``evicted``: what of it, and of
    running ones, was deleted to make room.
    """

    number: int
    name: str
    spec: JobSpec
    user: str
    band: PriorityBand
    depth: int
    submitted_ms: int
    root_submitted_ms: int
    parent: int
    tasks: Sequence[Task]
    counts: list[int]
    state: JobState = JobState.PENDING
    started_ms: int = 0
    finished_ms: int = 0
    cause: Cause | None = None
    error: str = ""
    children: list[int] = []
    session: Session | None = None
    history: list[HistoryEntry] = []
    idempotency_key: str = ""
    traceparent: str = ""
    rerun_of: int = 0
    by: Actor | None = None
    ended_by: Actor | None = None
    gates: tuple[Gate, ...] = ()
    eligible_ms: int = 0
    version: int = 1
    retimed: bool = False
    open: bool = False
    grown_ms: int = 0
    note: str = ""
    usage: Outcomes = {}
    lineage: int = 0
    stored: StoredBytes = NONE_STORED
    evicted: StoredBytes = NONE_STORED

    @property
    def held(self) -> StoredBytes:
        """What is kept of what its ended attempts have stored, but for what has expired."""
        return self.stored.less(self.evicted)

    def task(self, index: int) -> Task:
        """The task of an index that the job has. A rerun of a part has some of 0 to N-1 only."""
        return self.tasks[index if not self.spec.indexes else self.indexes.position(index)]

    def has(self, index: int) -> bool:
        """Whether it has a task of this index."""
        return index in self.indexes if self.spec.indexes else 0 <= index < len(self.tasks)

    def numbered(self) -> Iterator[tuple[int, Task]]:
        """Every task with its index."""
        return (
            zip(self.indexes, self.tasks, strict=True)
            if self.spec.indexes
            else enumerate(self.tasks)
        )

    @property
    def indexes(self) -> IndexSet:
        return self.spec.index_set

    @property
    def id(self) -> str:
        return f"j{self.number}"

    @property
    def is_terminal(self) -> bool:
        return self.state in JOB_TERMINAL

    @property
    def is_waiting(self) -> bool:
        """Whether a task of it waits."""
        return self.counts[TaskState.PENDING] > 0

    @property
    def is_gang(self) -> bool:
        return self.session is not None

    @property
    def closed_gates(self) -> tuple[Gate, ...]:
        return tuple(gate for gate in self.gates if gate.is_closed)

    @property
    def is_gated(self) -> bool:
        """Whether a gate keeps all of its pending tasks out of the queue."""
        return any(gate.is_closed and not gate.each for gate in self.gates)

    @property
    def opens_by_task(self) -> bool:
        """Whether its tasks became eligible one by one: by gates of their own, or as calls were
        added.
        """
        return self.spec.grows or any(gate.each for gate in self.gates)

    @property
    def leader_is_done(self) -> bool:
        """Whether task 0 of a gang with success ``leader`` has exited 0, and the gang has not
        ended.
        """
        gang = self.spec.coscheduling
        return gang is not None and gang.success == "leader" and self.task(0).waits_for_gang

    @property
    def key(self) -> PriorityKey:
        return priority_key(
            self.band, self.depth, self.root_submitted_ms, self.submitted_ms, sequence=self.number
        )

    def limit_ms(self, attempt: Attempt) -> int | None:
        """When a running attempt is looked at again: at its time limit, and once its stop takes
        long; None: never.

        The members of a gang have one time limit, from when all of them run.
        """
        if attempt.ending is not None:
            grace_ms = 0 if attempt.at_once else self.spec.grace_ms(GRACE_MS)
            return attempt.ending.since_ms + grace_ms + UNCONFIRMED_MS
        timeout_ms = self.spec.timeout_ms
        session = self.session
        if timeout_ms is None or (
            session is not None and session.status is not SessionStatus.RUNNING
        ):
            return None
        return (attempt.started_ms if session is None else session.since_ms) + timeout_ms

    def counted(self) -> dict[TaskState, int]:
        """How many tasks are in each state, without states that have none."""
        return {state: n for state, n in zip(_STATES, self.counts, strict=True) if n}


class HeldAmount(msgspec.Struct, array_like=True, frozen=True):
    """What attempts held, and of how much, from the end of a minute until the next sample.

    Attributes:
        number: minutes since the epoch.
    """

    number: int
    committed: Amount
    capacity: Amount


def ref_of(key: AttemptKey) -> AttemptRef:
    return AttemptRef(*key)


class Minute(msgspec.Struct, array_like=True):
    """Tasks within one minute.

    Attributes:
        number: minutes since the epoch.
        placed: assigned to a host. waited_ms: how long those had waited, together. longest_ms: the
        longest of them. succeeded, others: reached a final state.
    """

    number: int
    placed: int = 0
    waited_ms: int = 0
    longest_ms: int = 0
    succeeded: int = 0
    others: int = 0


class Totals(msgspec.Struct, array_like=True):
    """Counters that outlive their jobs: how many jobs were admitted and deleted, and the final
    states of the latter.

    ``dead_letters``: commands that were set aside because judging them raised. ``minutes``: the
    last ones in which tasks were placed or ended, oldest first. ``held``: what all healthy hosts
    held, as of `Worker.held`; ``minute_ends_ms``: when it is sampled next.
    """

    admitted: int = 0
    pruned: int = 0
    jobs: dict[str, int] = {}
    tasks: dict[str, int] = {}
    dead_letters: int = 0
    minutes: list[Minute] = []
    held: list[HeldAmount] = []
    minute_ends_ms: int = 0


class Fact(msgspec.Struct, frozen=True, gc=False):
    """One public fact of a change, without a number; `outbox` makes the event.

    ``task`` is None for a job's or session's own; ``tasks`` > 1 stands for that many tasks from
    ``task`` on. ``lasted_ms``: how long a placed task had waited in the queue, or how long an ended
    one had run; else None. ``by``: whose command caused it.
    """

    entity: str
    job: Job
    state: str
    previous: str | None
    at_ms: int
    task: int | None = None
    tasks: int = 1
    attempt: Attempt | None = None
    cause: Cause | None = None
    exit_code: int | None = None
    lasted_ms: int | None = None
    by: Actor | None = None
    signal: int | None = None


UNLIMITED = 1 << 60
"""Of what nothing bounds."""


def spent_and_limit(job: Job, task: Task, budget: Budget) -> tuple[int, int]:
    """A task's counter for one of its retry budgets, and its limit."""
    if budget is Budget.FAILURE:
        return task.failure_count, job.spec.max_retries_failure
    if budget is Budget.REQUEUE:
        return task.requeue_count, job.spec.max_requeues
    if budget is Budget.RECLAIM:
        return task.reclaim_count, UNLIMITED
    return task.preemption_count, job.spec.max_retries_preemption


def has_budget_left(job: Job, task: Task, state: TaskState) -> bool:
    """Whether a task that ends in this state failed for good before its retries were used up."""
    budget = BUDGET_OF_STATE.get(state)
    return budget is not None and not is_finished(state, *spent_and_limit(job, task, budget))


def kernel_status(task: Task) -> KernelStatus:
    """The task's kernel status in its session's present placement."""
    if task.state is TaskState.PENDING:
        return KernelStatus.PENDING
    return task.attempts[-1].status if task.attempts else KernelStatus.CANCELLED


def ended_waiting(task: Task) -> bool:
    """Whether a task of a plain job ended while it was pending, and not with its last attempt."""
    return task.is_terminal and (not task.attempts or task.cause is not task.attempts[-1].cause)


def was_cancelled(job: Job, task: Task) -> bool:
    """Whether a task ended while it was pending and without a running attempt, together with its
    job.
    """
    return ended_waiting(task) and (
        not task.attempts or 0 < task.attempts[-1].closed_ms <= job.finished_ms
    )


def lingers(job: Job, index: int) -> bool:
    """Whether an attempt that a pending task has left may still run: its end is not known yet.

    A gang's member is started after all members have reported, so one that has not reported does
    not run.
    """
    return any(
        a.is_open and (a.building_ms or a.started_ms or not job.is_gang)
        for a in job.task(index).attempts
    )


def idempotency(user: str, key: str) -> str:
    """The key of a user's idempotency key: two users may choose the same."""
    return f"{user}\0{key}"


def user_of_key(key: str) -> str:
    """Whose such a key is."""
    return key.partition("\0")[0]
