"""The objects of the HTTP API. Those of the cluster, deployments, events and streams are in the
modules beside it.

The state service makes them, the gateway forwards them, the CLI and the SDK decode them. States are
lower case, times RFC 3339 UTC. Stable: fields are only added.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from iris_core.placement.reasons import Reason
from iris_core.quota import QUOTA_LIMITS
from iris_core.spec.jobs import JobSpec
from iris_core.spec.projects import ROOT

JOB_COLUMNS = ("submitted", "name", "user", "band", "state", "tasks", "duration")
"""What listings of jobs are ordered by."""
JOB_ORDERS = tuple(f"{sign}{column}" for column in JOB_COLUMNS for sign in ("", "-"))
"""Ascending, and behind ``-`` descending."""
NEWEST_FIRST = "-submitted"
"""The order of a listing of jobs that names none."""
JOBS_ORDERED = 10_000
"""Jobs that are put in order at once: of more, the newest."""


def moment(ms: int | None) -> datetime | None:
    """A time as RFC 3339 text; None for 0 and None."""
    return datetime.fromtimestamp(ms / 1000, UTC) if ms else None


class View(msgspec.Struct, kw_only=True):
    """The base of all views: fields by name."""


class ActorView(View, kw_only=True):
    """Who caused a change.

    Attributes:
        name: a short form: ``mia``, ``task j7/0 of mia``, or the address without authentication.
        task: the task that sent the command. token, address: the name of the token and the client's
            address, shown to admins and to that user only.
    """

    name: str
    user: str | None = None
    role: str | None = None
    task: str | None = None
    token: str | None = None
    address: str | None = None


class AuditView(View, kw_only=True):
    """A command that somebody has given and that changed something.

    Attributes:
        kind: of what it was done to: job, worker, user, deployment, queue, pool or slice.
            id, name: which one.
        owner: of that record; None of a worker.
        detail: the reason that was given, or what was asked for.
        times: how often the same command was given, last ``at``, and first ``first_at``.
    """

    number: int
    at: datetime | None
    by: ActorView
    action: str
    kind: str
    id: str
    name: str
    owner: str | None
    detail: str
    times: int = 1
    first_at: datetime | None = None


class CallerView(View, kw_only=True):
    """Who a token belongs to. ``role``: user, admin or worker."""

    user: str
    role: str


class InterruptionView(View, kw_only=True):
    """How the last attempt of a task that is pending again ended; ``message`` is a clause, ``at``
    the time of the end.
    """

    task: str
    cause: str | None
    message: str
    worker: str
    at: datetime | None


class JobLink(View, kw_only=True):
    """Another job: its id, its name, and its state."""

    id: str
    name: str
    state: str


class GateView(View, kw_only=True):
    """What keeps a job's tasks out of the queue, or kept them out.

    Attributes:
        kind: dependency, not_before, singleton or held.
        opened_at: when it opened; None: it is closed.
        job, when, each: of a dependency: the other job, None when it is forgotten, and what it
            waits for.
        until_at: of a time. key: of a singleton. by, since, reason: of a hold. hold: the id of the
            hold on the queue that it belongs to; None: the job's own.
    """

    kind: str
    opened_at: datetime | None
    job: JobLink | None = None
    when: str | None = None
    each: bool = False
    until_at: datetime | None = None
    key: str | None = None
    by: ActorView | None = None
    since: datetime | None = None
    reason: str | None = None
    hold: str | None = None


class QueueHoldView(View, kw_only=True):
    """A hold on the queue: the pending tasks of all jobs with this user, band and label (None: any)
    wait.

    Attributes:
        jobs, tasks: how many jobs it holds now, and how many of their tasks are pending.
    """

    id: str
    user: str | None
    band: str | None
    label: str | None
    reason: str | None
    by: ActorView | None
    since: datetime | None
    jobs: int = 0
    tasks: int = 0


class GatedJobView(View, kw_only=True):
    """A job with pending tasks that are not in the queue, since they wait for a job, a time, a
    retry, a release, or the end of an earlier attempt or run.

    ``tasks``: how many of them.
    """

    job: str
    job_id: str
    user: str
    band: str
    submitted_at: datetime | None
    tasks: int
    pending_reason: Reason | None


class ClosedGate(View, kw_only=True):
    """What a job would wait for besides capacity; None: nothing. ``project``: as `JobSpec.project`
    of an admitted job. ``steps``: those of fair share in the key of its order.
    """

    reason: Reason | None = None
    project: str = ""
    steps: int = 0


class StoredView(View, kw_only=True):
    """Bytes in the stores of output directories, of output, and of results of calls, each with what
    the store adds.
    """

    artifact_bytes: int = 0
    output_bytes: int = 0
    result_bytes: int = 0


class JobView(View, kw_only=True):
    """A job. ``interrupted`` is the latest interruption while a task that has been placed before is
    pending again.

    ``ended_by``: whose command ended it; null when nobody's did.
    ``warnings`` are only in the answer to the submission or rerun that created the job, or returned
    a live one. ``spec_abridged``: a listing truncates a long specification. ``rerun_of``: the id of
    the job that it repeats, while that is kept; its tasks have the same indexes. ``next_run``: the
    id of the next job of its name and owner. ``parent_id``: null while its parent is not known. ``gates``:
    what it waits or has waited for; ``waiters``: the first jobs that wait for it now. ``version``:
    for If-Match of a change. ``open``: it takes further calls; ``note``: that it does, or why it
    does no more, when its client has not closed it. ``limits``: what it asks for that the hosts of
    its tasks do not hold them to by control groups; not in listings. ``name_shared``: other users
    have jobs of this name, so that it leads here for its owner only. ``grace_s``: between the
    signal that stops its tasks and KILL, as this cluster gives it; not in listings. ``stored``: by
    its attempts that have ended; ``evicted``: of it and of what runs, what was deleted to make room
    because its owner held most; each null where there is none. ``project``: the path of the one it
    is in.
    """

    id: str
    name: str
    state: str
    user: str
    band: str
    replicas: int
    spec: JobSpec
    parent: str | None
    submitted_at: datetime | None
    root_submitted_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    error: str | None
    task_counts: dict[str, int]
    pending_reason: Reason | None = None
    children: int = 0
    coscheduled: bool = False
    cause: str | None = None
    interrupted: InterruptionView | None = None
    warnings: list[str] = []
    spec_abridged: bool = False
    rerun_of: str | None = None
    next_run: str | None = None
    parent_id: str | None = None
    submitted_by: ActorView | None = None
    ended_by: ActorView | None = None
    version: int = 1
    gates: list[GateView] = []
    waiters: list[JobLink] = []
    open: bool = False
    note: str | None = None
    limits: list[str] = []
    name_shared: bool = False
    grace_s: float | None = None
    stored: StoredView | None = None
    evicted: StoredView | None = None
    project: str = ROOT


class ArtifactView(View, kw_only=True):
    """What has become of the output directory of an attempt that has ended.

    Attributes:
        bytes: as it is stored, tar.gz. files: how many files and links it holds.
        note: why it is not kept, or what of it was left out.
        upload: which of its worker's uploads holds it; None: it is not kept.
    """

    bytes: int
    files: int
    note: str | None
    upload: str | None


class NoticeView(View, kw_only=True):
    """What an attempt was told before it is stopped: timeout, drain, preempted or spot. Times by
    its host's clock.

    ``deadline_at``: until when nothing further is done to it; none: it may go on.
    """

    reason: str
    at: datetime | None
    deadline_at: datetime | None = None


class AttemptView(View, kw_only=True):
    """One attempt. ``state`` is a task state; ``stage`` the kernel status; counters are before and
    after.

    Attributes:
        output_dropped_bytes: bytes of its output that are not in the log. output_bytes: what the
            others took there when it ended.
        rss_bytes: what its processes hold now, while it runs; ``peak_rss_bytes``: the most they
        held. cpu_ms, read_bytes, written_bytes: what they have used; of a running one as of the
            last heartbeat.
        memory_limit_reached_bytes: the memory limit for which one of them was killed.
        by: whose command ended it.
        stopping: why it was told to stop, while its task may still succeed by exit 0.
        notices: that it was given, oldest first.
        requeued: with it its task went back to the queue, at its own or a person's request.
    """

    number: int
    state: str
    stage: str
    cause: str | None
    initiator: str | None
    charged_to: str | None
    worker: str
    exit_code: int | None
    signal: int | None
    error: str | None
    stderr_tail: str | None
    peak_rss_bytes: int | None
    assigned_at: datetime | None
    building_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    failure_count: tuple[int, int]
    preemption_count: tuple[int, int]
    open: bool
    output_dropped_bytes: int = 0
    output_bytes: int = 0
    rss_bytes: int | None = None
    cpu_ms: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    memory_limit_reached_bytes: int | None = None
    artifact: ArtifactView | None = None
    by: ActorView | None = None
    stopping: str | None = None
    notices: list[NoticeView] = []
    requeued: bool = False


class OutOfMemoryView(View, kw_only=True):
    """The last attempt of a task, of which a process was killed for the memory limit; what to
    request instead.
    """

    task: str
    limit_bytes: int
    peak_bytes: int
    suggested_bytes: int


class TaskView(View, kw_only=True):
    """A task with the newest of its ``attempt_count`` attempts.

    ``id`` (``j35/42``) and ``job_id`` name it for good; ``task`` and ``job`` are names, which a
    later run takes over. ``user``: the owner. ``no_retry``: it failed without a retry although its
    budget was not used up. ``note``: what an active task waits for, or what is odd about its
    process, as why it is not cloned. ``rerun_of``: the task that it repeats, as ``j3/5``, while
    that is kept. ``by``: whose command ended it. ``levels``: of a gang by levels of the topology,
        what its worker has of each, innermost first. ``output_evicted_bytes``: of its job's output,
            what was deleted to make room.
    """

    task: str
    job: str
    index: int
    state: str
    pending_reason: Reason | None
    failure_count: int
    preemption_count: int
    worker: str | None
    attempts: list[AttemptView]
    exit_code: int | None = None
    error: str | None = None
    cause: str | None = None
    no_retry: bool = False
    note: str | None = None
    attempt_count: int = 0
    rerun_of: str | None = None
    id: str = ""
    job_id: str = ""
    user: str = ""
    by: ActorView | None = None
    requeue_count: int = 0
    reclaim_count: int = 0
    levels: dict[str, str] = {}
    signal: int | None = None
    output_evicted_bytes: int = 0


class TaskStatesView(View, kw_only=True):
    """The state of every task of a job, by ascending index: each state with how many tasks in a row
    are in it.
    """

    runs: list[tuple[str, int]]


class AttemptPage(View, kw_only=True):
    """Attempts of one task by number. ``id``, ``task``, ``user``: as of the task."""

    items: list[AttemptView]
    next_cursor: str | None
    id: str
    task: str
    user: str


class KernelView(View, kw_only=True):
    task: str
    attempt: int
    worker: str
    status: str
    id: str = ""


class SessionView(View, kw_only=True):
    """A session. ``job_id`` and a kernel's ``id`` are those of the job and the task. ``reason``:
    why it waits, else why its status changed as it did, as far as something is known.
    """

    id: str
    job: str
    status: str
    since: datetime | None
    tries: dict[str, int]
    kernels: list[KernelView]
    job_id: str = ""
    reason: str = ""


class HistoryRow(View, kw_only=True, rename={"from_status": "from", "to_status": "to"}):
    """A judgement; ``by``: whose command caused it."""

    entity: str
    handler: str
    from_status: str
    to_status: str
    result: str
    reason: str
    attempts: int
    first_at: datetime | None
    last_at: datetime | None
    by: ActorView | None = None


class TreeView(View, kw_only=True):
    job: JobView
    children: list[TreeView]


class QueueRow(View, kw_only=True):
    """One range of a waiting job's tasks in the queue, with the columns of the sort key
    (docs/design/semantics.md#order). ``id``: of the first task, ``job_id``: of the job. ``side``: near,
    within a guarantee of its project, or far; empty while no project has one.
    ``project``: the path of the one it is in. ``step``: of fair share, of the projects on its way
    and of its user last; empty while there is none.
    """

    position: int
    task: str
    job: str
    user: str
    band: str
    depth: int
    root_submitted_at: datetime | None
    submitted_at: datetime | None
    sequence: int
    tasks: int
    pending_reason: Reason | None
    id: str = ""
    job_id: str = ""
    side: str = ""
    project: str = ROOT
    step: list[int] = msgspec.field(default_factory=list)


QuotaView = msgspec.defstruct(
    "QuotaView",
    [
        ("user", str),
        *((limit.name, int) for limit in QUOTA_LIMITS),
        ("max_band", str),
        *((limit.used, int, 0) for limit in QUOTA_LIMITS),
        ("is_default", bool, False),
        ("sources", dict[str, str], msgspec.field(default_factory=dict)),
        ("groups", list[str], msgspec.field(default_factory=list)),
    ],
    bases=(View,),
    namespace={
        "__doc__": "A user's limits, 0 is unlimited, and what is used of each. ``is_default``: "
        "none are set for the name, so these hold if it is a user's; ``max_band`` then does not "
        "bound an admin. ``sources``: by limit, the group that it comes from, as ``@GROUP``, or "
        "``default``; one set for the user is not there. ``groups``: of the user, as the issuer "
        "named them with the last command."
    },
    kw_only=True,
)


class PlacementView(View, kw_only=True):
    task: str
    index: int
    worker: str


class PlanView(View, kw_only=True):
    """A dry run's answer; ``verdict`` as in `PlanPreview`; ``variants``: that of each alternative
    alone; ``levels``: of a gang by levels of the topology, over how many domains of each it would
    be.
    """

    verdict: str
    placements: list[PlacementView]
    victims: list[str]
    reason: Reason | None
    ahead: int
    variants: dict[str, str] = {}
    levels: dict[str, int] = {}


class LatestHistoryView(View, kw_only=True):
    """The newest decisions about a job, oldest first; ``total``: of how many, at least, of a job of
    many attempts.
    """

    items: list[HistoryRow]
    total: int
    is_least: bool


class Page(View, kw_only=True):
    items: list[Any]
    next_cursor: str | None = None
