"""Between the state service and schedulers: the mirror and its changes, and the plans made from
it.
"""

from __future__ import annotations

from typing import Any

from iris_core.limits import ATTEMPTS
from iris_core.messages.message import AttemptRef, ServiceMessage
from iris_core.placement.reasons import Reason
from iris_core.quota import Quota
from iris_core.spec.jobs import Attribute, Constraint, JobSpec, Level
from iris_core.spec.resources import Amount, ResourceLimits, ResourceRequest
from iris_core.states import PriorityBand, WorkerState


class JobRow(ServiceMessage, frozen=True):
    """A job with pending or placed tasks, for the scheduler.

    Attributes:
        spread: see `JobSpec.spread_key`. slices, within: see `Coscheduling`.
        group_by: of a gang, the key of its innermost level. levels: all of them, empty when that
            one, required, is all.
        chained: its tasks may wait behind one another, see `is_chainable`.
        protect_ms: its attempts are not preempted before they have run for so long.
        project: the path of the one it is in; empty: the root.
        steps: of its user and project, see `packed_steps`.
    """

    job: int
    name: str
    user: str
    band: PriorityBand
    depth: int
    root_submitted_ms: int
    submitted_ms: int
    replicas: int
    resources: ResourceRequest
    constraints: tuple[Constraint, ...] = ()
    group_by: str = ""
    timeout_ms: int | None = None
    spread: str = ""
    max_parallel: int | None = None
    slices: int = 1
    within: str = ""
    levels: tuple[Level, ...] = ()
    chained: bool = False
    protect_ms: int = 0
    project: str = ""
    steps: int = 0

    @classmethod
    def of(cls, spec: JobSpec, **others: Any) -> JobRow:
        """The row of a job with this specification. ``others``: the fields that follow from its
        place among jobs.
        """
        gang = spec.coscheduling
        return cls(
            band=spec.priority_band,
            replicas=spec.task_count,
            resources=spec.resources,
            constraints=spec.placement,
            group_by=gang.key if gang is not None else "",
            timeout_ms=spec.timeout_ms,
            spread=spec.spread_key,
            max_parallel=spec.max_parallel,
            slices=gang.slices if gang is not None else 1,
            within=gang.within if gang is not None else "",
            levels=gang.several if gang is not None else (),
            protect_ms=spec.protect_ms,
            project=spec.project,
            **others,
        )


class WorkerRow(ServiceMessage, frozen=True):
    """One host as the scheduler sees it. ``chains``: attempts may wait for others there.
    ``reason``: for its state.
    """

    worker: str
    state: WorkerState
    attributes: dict[str, Attribute]
    total: Amount
    max_building: int = 8
    max_attempts: int = ATTEMPTS
    chains: bool = False
    reason: str = ""


class ProjectRow(ServiceMessage, frozen=True):
    """What the running tasks of a project, and of those below it, may hold before others go first, and
    what they may hold before others.
    """

    path: str
    limit: ResourceLimits
    guarantee: ResourceLimits = ResourceLimits()


class ShareRow(ServiceMessage, frozen=True):
    """The jobs of a user right in a project have these steps from now on, see `packed_steps`."""

    project: str
    user: str
    steps: int


class Hold(ServiceMessage, frozen=True):
    """An open attempt on a worker; it holds its resources until its end is known.

    Attributes:
        building: counts in the worker's building window (its task is ASSIGNED or BUILDING).
        stopping: it has been ordered to stop and must not be evicted again.
        since_ms: when it was assigned; a RUNNING one's start.
        stopping_ms: when it was ordered to stop, or later where its job has a longer grace period
            than others: then it should have ended as soon as theirs. 0 while it has not been.
        alone: nothing else may be placed beside it.
        chain: the attempt that its chain began with, if that is not itself. The open attempts of a
            chain together hold what one of them needs.
    """

    ref: AttemptRef
    worker: str
    building: bool
    stopping: bool
    since_ms: int
    stopping_ms: int = 0
    alone: bool = False
    chain: AttemptRef | None = None


class Queued(ServiceMessage, frozen=True):
    """Waiting tasks of one job: half-open index ranges, and since when they wait."""

    job: int
    ranges: tuple[tuple[int, int], ...]
    since_ms: int


OCCUPIED = ""
"""In place of a worker that a task is kept off: every worker with another attempt."""


class Avoid(ServiceMessage, frozen=True):
    """Do not place this task on this worker before the given time, and prefer other workers for it
    afterwards.

    ``worker`` `OCCUPIED`: on any worker with another attempt.
    """

    job: int
    index: int
    worker: str
    until_ms: int


class Nomination(ServiceMessage, frozen=True):
    """The capacity that a victim frees on ``worker`` is reserved for this waiting task."""

    job: int
    index: int
    worker: str


class Reclaimed(ServiceMessage, frozen=True):
    """This task's last attempt gave way at that time to work within a guarantee."""

    job: int
    index: int
    at_ms: int


class Ran(ServiceMessage, frozen=True):
    """Attempts of a job that have ended after they had started, and how long they had run,
    together.
    """

    job: int
    attempts: int
    ms: int


class Delta(ServiceMessage, frozen=True):
    """The changes of one commit for the scheduler; it applies to version ``after`` only, the commit
    before it.

    A commit may wait for the plan of what it makes pending. Then a draft comes first: the changes
    so far, of version ``after``, and the delta of the commit has the rest.

    Attributes:
        ran: of jobs whose tasks may wait behind one another.
        drafts: how many drafts came before this one since version ``after``.

    Order of application: jobs, workers, quotas, projects, closed, unqueued, opened (takes its task out of the
    queue), moved, queued, avoid, nominations, reclaimed, released, gone, shares.
    """

    version: int
    at_ms: int
    jobs: tuple[JobRow, ...] = ()
    workers: tuple[WorkerRow, ...] = ()
    quotas: tuple[Quota, ...] = ()
    closed: tuple[AttemptRef, ...] = ()
    unqueued: tuple[Queued, ...] = ()
    opened: tuple[Hold, ...] = ()
    moved: tuple[Hold, ...] = ()
    queued: tuple[Queued, ...] = ()
    avoid: tuple[Avoid, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    released: tuple[Nomination, ...] = ()
    gone: tuple[int, ...] = ()
    lost_workers: tuple[str, ...] = ()
    after: int = -1
    ran: tuple[Ran, ...] = ()
    drafts: int = 0
    projects: tuple[ProjectRow, ...] = ()
    reclaimed: tuple[Reclaimed, ...] = ()
    shares: tuple[ShareRow, ...] = ()


class FullSnapshot(ServiceMessage, frozen=True):
    """Everything the scheduler's mirror holds, as of ``version``."""

    version: int
    at_ms: int
    jobs: tuple[JobRow, ...] = ()
    workers: tuple[WorkerRow, ...] = ()
    quotas: tuple[Quota, ...] = ()
    holds: tuple[Hold, ...] = ()
    queued: tuple[Queued, ...] = ()
    avoid: tuple[Avoid, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    chunk: int = 0
    last: bool = True
    projects: tuple[ProjectRow, ...] = ()
    reclaimed: tuple[Reclaimed, ...] = ()


class Placement(ServiceMessage, frozen=True):
    """Tasks of one job and where each goes: ``workers[i]`` indexes the plan's worker table, for
    ``indexes[i]``.

    The placement of a coscheduled job holds all its tasks and is accepted or refused as a whole.
    """

    job: int
    indexes: tuple[int, ...]
    workers: tuple[int, ...]


class Extension(ServiceMessage, frozen=True):
    """Tasks that wait on a worker behind an open attempt of their job, and then run one after the
    other in its place.

    ``chain``: the attempt that the chain began with; it may have ended, if one of the chain is
    open.
    """

    chain: AttemptRef
    worker: str
    indexes: tuple[int, ...]


class Eviction(ServiceMessage, frozen=True):
    """Preempt these attempts, all or none, and reserve the freed capacity for ``nominations``.

    The others of their chains are preempted with them. ``reclaims``: those of the band of the waiting
    tasks give way to the guarantee of the tasks' project.
    """

    victims: tuple[AttemptRef, ...]
    nominations: tuple[Nomination, ...]
    reclaims: bool = False


class JobReason(ServiceMessage, frozen=True):
    """Why the pending tasks of a job were not placed; published when it changes, and repeated at
    intervals.

    ``looks``: in how many cycles that was so since it was last published. ``since_ms``: the first
    of those cycles; 0: now.
    """

    job: int
    reason: Reason
    looks: int = 1
    since_ms: int = 0


class Reasons(ServiceMessage, frozen=True):
    """The reasons of pending jobs, for followers; they are not recorded in the journal."""

    reasons: tuple[JobReason, ...] = ()


class Plan(ServiceMessage, frozen=True):
    """The result of one cycle, a pure function of the snapshot of ``version``."""

    scheduler: str
    version: int
    workers: tuple[str, ...] = ()
    placements: tuple[Placement, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    reasons: tuple[JobReason, ...] = ()
    cycle_us: int = 0
    extensions: tuple[Extension, ...] = ()


class PlanTaken(ServiceMessage, frozen=True):
    """The commit that holds the plan is durable.

    Refused tasks are still pending, as of the version given with them. ``traces``: the trace
    contexts of the jobs with placed tasks; at most 1,000.
    """

    version: int
    placed: int
    refused: tuple[tuple[int, int, str], ...] = ()
    traces: dict[int, str] = {}
