"""The messages between services. Types only.

Facts end in a past participle, requests are imperative. Positions are fixed (array_like): new fields go last,
with a default, and no meaning changes under an old name. Times are ``*_ms``, stamped by the first sender.
A task is ``(job, index)`` here: ``job`` is the job's number, assigned at admission and never reused.
Source: docs/ARCHITECTURE.md#storage, docs/ARCHITECTURE.md#the-path-of-one-job; docs/design/semantics.md#sessions.
"""

from __future__ import annotations

from typing import Any

import msgspec

from iris_core.limits import ATTEMPTS
from iris_core.quota import Quota
from iris_core.reasons import Reason
from iris_core.resources import Amount, ResourceRequest
from iris_core.serving import DeploymentSpec
from iris_core.spec import Attribute, Constraint, JobSpec, Probe
from iris_core.states import Cause, KernelStatus, PriorityBand, WorkerState


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The common manners: immutable and positional."""


class AttemptRef(_Message, frozen=True, order=True):
    """One attempt: job number, task index, attempt number from 0."""

    job: int
    index: int
    attempt: int


# ── what people want: gateway → state, durable ──────────────────────────────────────────────────────────────────


class Caller(_Message, frozen=True):
    """On whose behalf a request comes. Roles: user, admin, worker."""

    user: str = ""
    role: str = "user"


class SubmitJob(_Message, frozen=True):
    """Admit this job; answer to ``answer_to`` once it is durable.

    ``parent``: the job it is submitted under, which must be known; empty for whatever its name says.
    """

    spec: JobSpec
    caller: Caller
    request_id: str
    submitted_ms: int
    idempotency_key: str = ""
    if_exists: str = "error"
    answer_to: str = ""
    traceparent: str = ""
    parent: str = ""


class CancelJob(_Message, frozen=True):
    """Kill the whole subtree of ``job`` (a name or an opaque id)."""

    job: str
    caller: Caller
    request_id: str
    requested_ms: int
    reason: str = ""
    answer_to: str = ""


class AdminCommand(_Message, frozen=True):
    """An operator's command: ``action`` is drain, undrain, mark_lost, forget (target: worker id) or set_quota
    (target: user).
    """

    action: str
    target: str
    caller: Caller
    request_id: str
    requested_ms: int
    arguments: dict[str, Any] = {}
    answer_to: str = ""


class RerunJob(_Message, frozen=True):
    """Submit again what ``job`` was, all of it or only the tasks that did not succeed."""

    job: str
    caller: Caller
    request_id: str
    requested_ms: int
    failed_only: bool = False
    answer_to: str = ""


class DeployCommand(_Message, frozen=True):
    """A command on a deployment.

    Attributes:
        action: create (with ``spec``), update (``spec`` or ``patch``), scale (``replicas``), rollback (``revision``,
            0: the one before), pause, resume, delete.
        version: refused unless it is still the deployment's; 0: whatever that is.
        patch: a JSON merge patch (RFC 7396) of the deployment's specification.
    """

    action: str
    name: str
    caller: Caller
    request_id: str
    requested_ms: int
    spec: DeploymentSpec | None = None
    replicas: int = 0
    revision: int = 0
    version: int = 0
    answer_to: str = ""
    traceparent: str = ""
    patch: bytes = b""


class Answer(_Message, frozen=True):
    """How a request ended.

    Attributes:
        status: "ok", "created", "replayed", "accepted", or a `Code` value when refused.
        body: JSON for the caller: the API object, or ``{"detail", "errors"}`` of a refusal.
        position: in the journal: a command's effect stands there or before it, a read is as of it; 0: not known.
    """

    status: str
    body: bytes = b"null"
    position: int = 0


BEHIND = "behind"
"""The status of an answer of a replica that follows and is not as far as it was asked for: the leader is."""


class Query(_Message, frozen=True):
    """A read. ``what`` names a view (jobs, job, tasks, task, attempts, tree, queue, workers, ...).

    ``at_least``: the position in the journal that the answer must hold; the leader's own answer always does.
    """

    what: str
    arguments: dict[str, Any] = {}
    caller: Caller = Caller()
    at_least: int = 0


# ── what happened on a host: worker → state ─────────────────────────────────────────────────────────────────────


class Ended(_Message, frozen=True):
    """How an attempt's process ended on its worker.

    Attributes:
        cause: exited (a normal exit, any code), infrastructure (it could not be prepared or started, or its end
            is unknown), missing (the worker has no trace of it), cancelled (it was ordered to stop), timeout.
        exit_code: None when a signal ended it or it never ran.
        error: one line for a person. stderr_tail: the last lines it printed there.
        dropped_bytes: of its output, what is not in the log stream.
    """

    cause: Cause
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    stderr_tail: str = ""
    peak_rss_bytes: int = 0
    dropped_bytes: int = 0


class Stage(_Message, frozen=True):
    """What one attempt is doing now; ``ended`` when its process is gone for good (status TERMINATED or ERROR)."""

    ref: AttemptRef
    status: KernelStatus
    at_ms: int
    ended: Ended | None = None


class Register(_Message, frozen=True):
    """A worker's start: who it is, what it has, and every attempt whose process it found still alive or can still
    tell the end of. Open attempts it does not name are missing.

    ``boot`` names the present start of the host, and ``monotonic_ms`` is its clock since then: of two registrations in
    one boot they tell the later. ``max_attempts``: how many may be open here at a time.
    """

    worker: str
    incarnation: str
    attributes: dict[str, Attribute]
    total: Amount
    monotonic_ms: int
    attempts: tuple[Stage, ...] = ()
    address: str = ""
    version: str = ""
    max_attempts: int = ATTEMPTS
    boot: str = ""


class WorkerReport(_Message, frozen=True):
    """Changes on a host, sent at once and repeated until the answer confirms that they are committed.

    Attributes:
        monotonic_ms: the host's monotonic clock as this is sent; 0 when it does not tell.
        leaving: "stopping" when the worker is shutting down and accepts no orders, "gone" when it has ended.
    """

    worker: str
    incarnation: str
    stages: tuple[Stage, ...] = ()
    register: Register | None = None
    monotonic_ms: int = 0
    leaving: str = ""


class ReportTaken(_Message, frozen=True):
    """The commit that holds the report is durable. ``known`` False: register first, then report again.

    ``drop``: attempts in the report that are not this worker's any more; their processes must be stopped.
    """

    known: bool = True
    drop: tuple[AttemptRef, ...] = ()


class ProbeResult(_Message, frozen=True):
    """How the process of a route stands, as its host knows it. Each heartbeat holds the newest of each route.

    Attributes:
        address: host:port where the process serves.
        passes, failures: results in a row up to the last one; one of them is 0, both before the first.
        ready: the last answer on the ready path passed; true where there is none.
        age_ms: since the last result, as the heartbeat was sent; before the first one since the process began.
        detail: of the last failure, one line.
    """

    ref: AttemptRef
    address: str
    passes: int = 0
    failures: int = 0
    ready: bool = True
    age_ms: int = 0
    detail: str = ""


class HeartbeatMessage(_Message, frozen=True):
    """A heartbeat: the whole list of attempts that live on this host or whose end is not yet acknowledged.

    Attributes:
        monotonic_ms: the host's monotonic clock as the list was made; 0 when it does not tell, and then no attempt
            is missing for not being in the list.
        probes: of every running attempt whose job has a probe.
    """

    worker: str
    incarnation: str
    sequence: int
    at_ms: int
    attempts: tuple[Stage, ...] = ()
    healthy: bool = True
    detail: str = ""
    monotonic_ms: int = 0
    probes: tuple[ProbeResult, ...] = ()


# ── the load of deployments: proxy → state ──────────────────────────────────────────────────────────────────────


class DeploymentLoad(_Message, frozen=True):
    """The requests to one deployment at one proxy.

    Attributes:
        outstanding: under way or waiting for a route; a websocket is one. arrived: since the report before.
    """

    deployment: str
    outstanding: int
    arrived: int = 0


class QueriedLoad(_Message, frozen=True):
    """What a deployment's Prometheus query gave; ``error``: why it gave nothing."""

    deployment: str
    value: float = 0.0
    error: str = ""


class LoadReport(_Message, frozen=True):
    """The load of deployments that have a scaling rule; once a second from each process of a proxy.

    Attributes:
        proxy: unique per process. leaving: it stops, and what it has reported counts no more.
        queried: from the leader, with no proxy.
    """

    proxy: str
    loads: tuple[DeploymentLoad, ...] = ()
    leaving: bool = False
    queried: tuple[QueriedLoad, ...] = ()


# ── what a host is to do: state → worker, a request answered at once by OrderTaken ──────────────────────────────


class TaskTemplate(_Message, frozen=True):
    """What the tasks of one job run; sent once per order, not once per task.

    ``serves``: for a route, the name of the port that gets its requests; its probe may ask another one.
    ``traceparent``: the trace context that the job was submitted with.
    """

    job: int
    name: str
    command: tuple[str, ...]
    env: dict[str, str]
    replicas: int
    resources: ResourceRequest
    user: str = ""
    bundle: str | None = None
    ports: tuple[str, ...] = ()
    timeout_ms: int | None = None
    probe: Probe | None = None
    serves: str = ""
    traceparent: str = ""


class Gang(_Message, frozen=True):
    """Where the members of a session of two or more are: host addresses by task index.

    ``attempt``: of task 0, by which members that are placed again agree on another port.
    """

    job: int
    hosts: tuple[str, ...]
    attempt: int = 0


class Stop(_Message, frozen=True):
    """End an attempt's whole process group: TERM after ``settle_ms``, then KILL after ``grace_ms`` more.

    A route has left discovery already and serves until TERM, for proxies that have not read the new set yet.
    """

    ref: AttemptRef
    grace_ms: int = 5000
    why: Cause = Cause.CANCELLED
    settle_ms: int = 0


class Order(_Message, frozen=True):
    """One order per worker per commit. Each part is idempotent: an attempt is prepared and started once, ever.

    Attributes:
        run: prepare and start (sessions of one). prepare: prepare only and report PREPARED. start: start what is
            prepared. stop: end it and report its end; an unknown attempt is reported ended with cause missing.
        register: the state service does not know this incarnation: send Register.
        expires_ms: by the host's monotonic clock; later, nothing of it is taken but the stops. 0: never.
    """

    incarnation: str
    epoch: int
    templates: tuple[TaskTemplate, ...] = ()
    run: tuple[AttemptRef, ...] = ()
    prepare: tuple[AttemptRef, ...] = ()
    start: tuple[AttemptRef, ...] = ()
    stop: tuple[Stop, ...] = ()
    gangs: tuple[Gang, ...] = ()
    register: bool = False
    expires_ms: int = 0


class OrderTaken(_Message, frozen=True):
    """The worker has the order. ``incarnation`` differs from the order's when it restarted: nothing was taken.

    Attributes:
        monotonic_ms: the host's monotonic clock as it answers; 0 when it does not tell.
        stopping: nothing was taken because the worker is ending.
    """

    incarnation: str
    taken: bool = True
    monotonic_ms: int = 0
    stopping: bool = False


class LogChunk(_Message, frozen=True):
    """A piece of one attempt's output.

    Attributes:
        stream: stdout or stderr. offset: of ``data`` in that stream, in bytes, those dropped included.
        dropped: bytes dropped just before ``data``. dropped_lines: line ends in them, -1 where they were not counted.
        limit: the setting that made the worker drop them, with its value.
        final: nothing of this stream follows.
    """

    stream: str
    at_ms: int
    offset: int
    data: bytes
    dropped: int = 0
    final: bool = False
    dropped_lines: int = -1
    limit: str = ""


class TaskOutput(_Message, frozen=True):
    """What one attempt printed, in order. What was not confirmed is sent again; ``offset`` tells what came before."""

    ref: AttemptRef
    chunks: tuple[LogChunk, ...]


# ── the scheduler's mirror: state → scheduler ───────────────────────────────────────────────────────────────────


class JobRow(_Message, frozen=True):
    """A job with pending or placed tasks, for the scheduler."""

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


class WorkerRow(_Message, frozen=True):
    """One host as the scheduler sees it."""

    worker: str
    state: WorkerState
    attributes: dict[str, Attribute]
    total: Amount
    max_building: int = 8
    max_attempts: int = ATTEMPTS


class Hold(_Message, frozen=True):
    """An attempt that is open on a worker and so holds its resources until its end is known.

    Attributes:
        building: counts in the worker's building window (its task is ASSIGNED or BUILDING).
        stopping: it has been ordered to stop; nothing may evict it again.
        since_ms: when it was assigned; a RUNNING one's start.
        stopping_ms: when it was ordered to stop, 0 while it has not been.
    """

    ref: AttemptRef
    worker: str
    building: bool
    stopping: bool
    since_ms: int
    stopping_ms: int = 0


class Queued(_Message, frozen=True):
    """Tasks of one job that wait: half-open index ranges, and since when."""

    job: int
    ranges: tuple[tuple[int, int], ...]
    since_ms: int


class Avoid(_Message, frozen=True):
    """Keep this task off this worker until then, and take the worker last for it afterwards."""

    job: int
    index: int
    worker: str
    until_ms: int


class Nomination(_Message, frozen=True):
    """The place a victim frees on ``worker`` belongs to this waiting task."""

    job: int
    index: int
    worker: str


class Delta(_Message, frozen=True):
    """What one commit changed for the scheduler; applies to version ``after``, the commit before it, only.

    Order of application: jobs, workers, quotas, closed, unqueued, opened (takes its task out of the queue), moved,
    queued, avoid, nominations, released, gone.
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


class FullSnapshot(_Message, frozen=True):
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


# ── the scheduler's answer: scheduler → state ───────────────────────────────────────────────────────────────────


class Placement(_Message, frozen=True):
    """Tasks of one job and where each goes: ``workers[i]`` indexes the plan's worker table, for ``indexes[i]``.

    A coscheduled job's placement holds every task of it and is taken whole or refused whole.
    """

    job: int
    indexes: tuple[int, ...]
    workers: tuple[int, ...]


class Eviction(_Message, frozen=True):
    """Preempt these attempts, all or none, and keep the freed places for ``nominations``."""

    victims: tuple[AttemptRef, ...]
    nominations: tuple[Nomination, ...]


class JobReason(_Message, frozen=True):
    """Why the pending tasks of a job were passed over; published when it changed, and now and then when it has not.

    ``looks``: how often it was passed over like this since it was last published. ``since_ms``: the first of them, 0:
    now.
    """

    job: int
    reason: Reason
    looks: int = 1
    since_ms: int = 0


class Reasons(_Message, frozen=True):
    """Why jobs wait, for replicas that follow: nothing of it is recorded."""

    reasons: tuple[JobReason, ...] = ()


class Plan(_Message, frozen=True):
    """One cycle's answer, a pure function of the snapshot of ``version``."""

    scheduler: str
    version: int
    workers: tuple[str, ...] = ()
    placements: tuple[Placement, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    reasons: tuple[JobReason, ...] = ()
    cycle_us: int = 0


class PlanTaken(_Message, frozen=True):
    """The commit that holds the plan is durable. Refused tasks are still pending; the version says from when.

    ``traces``: the trace contexts of the jobs that the plan has placed tasks of, where they have one; at most 1,000.
    """

    version: int
    placed: int
    refused: tuple[tuple[int, int, str], ...] = ()
    traces: dict[int, str] = {}


class PlanRequest(_Message, frozen=True):
    """A dry run: would this fit now, after preempting what, or never?"""

    spec: JobSpec
    caller: Caller
    at_ms: int


class PlanPreview(_Message, frozen=True):
    """The dry run's answer.

    Attributes:
        verdict: "now", "after_preemption", "not_now" (would wait) or "never" (no registered worker could ever).
        placements: worker id per task index for the tasks that would start.
        victims: task names that would be evicted.
        reason: why it would wait, None when verdict is now.
        ahead: tasks that come before it in the queue.
    """

    verdict: str
    placements: tuple[tuple[int, str], ...] = ()
    victims: tuple[str, ...] = ()
    reason: Reason | None = None
    ahead: int = 0
    version: int = 0


class Ping(_Message, frozen=True):
    """Who leads, since when, how far, and the id of the last event it has published."""

    leader: str = ""
    epoch: int = 0
    sequence: int = 0
    ready: bool = True
    last_published: str = ""
