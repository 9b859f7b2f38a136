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
from iris_core.spec import Attribute, Constraint, Environment, JobSpec, Probe
from iris_core.states import Cause, KernelStatus, PriorityBand, WorkerState


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The base of all messages: immutable, fields by position."""


class AttemptRef(_Message, frozen=True, order=True):
    """One attempt: job number, task index, attempt number from 0."""

    job: int
    index: int
    attempt: int


# ── commands: gateway → state, a request answered by Answer once its effect is durable ───────────────────────────────


class Caller(_Message, frozen=True):
    """The authenticated sender of a request. Roles: user, admin, worker, task.

    Attributes:
        attempt, worker: of a task, which attempt's token it is, and where that was made.
        token: the name of the token. address: of the client; empty in queries.
        claimed: authentication is off, and the user is what the client says.
    """

    user: str = ""
    role: str = "user"
    attempt: AttemptRef | None = None
    worker: str = ""
    token: str = ""
    address: str = ""
    claimed: bool = False


class SubmitJob(_Message, frozen=True):
    """Admit this job.

    ``parent``: the parent job, which must exist; empty for the parent in its name.
    ``rerun_of``: the number of the job that it repeats; 0: none.
    """

    spec: JobSpec
    caller: Caller
    request_id: str
    submitted_ms: int
    idempotency_key: str = ""
    if_exists: str = "error"
    traceparent: str = ""
    parent: str = ""
    rerun_of: int = 0


class CancelJob(_Message, frozen=True):
    """Kill the whole subtree of ``job`` (a name or an opaque id)."""

    job: str
    caller: Caller
    request_id: str
    requested_ms: int
    reason: str = ""


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


class RerunJob(_Message, frozen=True):
    """Submit the specification of ``job`` again: all its tasks, or only those that did not succeed, under their
    indexes.
    """

    job: str
    caller: Caller
    request_id: str
    requested_ms: int
    failed_only: bool = False


class DeployCommand(_Message, frozen=True):
    """A command on a deployment.

    Attributes:
        action: create (with ``spec``), update (``spec`` or ``patch``), scale (``replicas``), rollback (``revision``,
            0: the one before), pause, resume, delete.
        version: the expected version of the deployment; another one is refused. 0: any.
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
    traceparent: str = ""
    patch: bytes = b""


class Answer(_Message, frozen=True):
    """The answer to a request.

    Attributes:
        status: "ok", "created", "replayed", "accepted", or a `Code` value when refused.
        body: JSON for the caller: the API object, or ``{"detail", "errors"}`` of a refusal.
        position: journal sequence: a command's effect is stored at or before it, a read is as of it; 0: unknown.
    """

    status: str
    body: bytes = b"null"
    position: int = 0


BEHIND = "behind"
"""Answer status of a follower that has not reached the requested position; the leader has."""


class Query(_Message, frozen=True):
    """A read. ``what`` names a view (jobs, job, tasks, task, attempts, tree, queue, workers, ...).

    ``at_least``: the journal sequence that the answer must include; an answer of the leader always does.
    """

    what: str
    arguments: dict[str, Any] = {}
    caller: Caller = Caller()
    at_least: int = 0


# ── reports: worker → state ─────────────────────────────────────────────────────────────────────────────────────


class TaskUsage(_Message, frozen=True):
    """What the processes of an attempt have used together; without a control group, the first one and its children.

    ``memory_limit_bytes``: the memory limit for which the kernel has killed one of them; 0: none was killed.
    """

    cpu_ms: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    memory_limit_bytes: int = 0


class Artifact(_Message, frozen=True):
    """What has become of the output directory of an attempt.

    Attributes:
        upload: under which it is stored, see `subjects.artifact`; empty: it is not kept.
        bytes: as it is stored. files: how many files and links it holds.
        note: why it is not kept, or what of it was left out; for a person.
    """

    upload: str = ""
    bytes: int = 0
    files: int = 0
    note: str = ""


class Ended(_Message, frozen=True):
    """How an attempt's process ended on its worker.

    Attributes:
        cause: exited (a normal exit, any code), infrastructure (it could not be prepared or started, or its end
            is unknown), missing (the worker has no record of it), cancelled (it was ordered to stop), timeout.
        exit_code: None when a signal ended it or it never ran.
        error: one line for a person. stderr_tail: the end of its standard error.
        dropped_bytes: bytes of its output that are not in the log stream.
        artifact: what has become of its output directory, if it had one.
    """

    cause: Cause
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    stderr_tail: str = ""
    peak_rss_bytes: int = 0
    dropped_bytes: int = 0
    usage: TaskUsage | None = None
    artifact: Artifact | None = None


class Stage(_Message, frozen=True):
    """The present status of one attempt; ``ended`` when its process has ended for good (status TERMINATED or ERROR).

    ``detail``: what is done in this status, for a person; it may change within the status.
    """

    ref: AttemptRef
    status: KernelStatus
    at_ms: int
    ended: Ended | None = None
    detail: str = ""


class Register(_Message, frozen=True):
    """Sent when a worker starts: its identity, its resources, and every attempt whose process still runs or whose end
    it knows. Open attempts that are not listed are missing. Sent again when its attributes have changed.

    ``boot`` identifies the boot of the host and ``monotonic_ms`` is its clock since then: they order two registrations
    of one boot. ``max_attempts``: how many may be open here at a time.
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
        monotonic_ms: the host's monotonic clock when this is sent; 0: unknown.
        leaving: "stopping" when the worker is shutting down and accepts no orders, "gone" when it has ended.
        why: it leaves; empty: it was stopped.
    """

    worker: str
    incarnation: str
    stages: tuple[Stage, ...] = ()
    register: Register | None = None
    monotonic_ms: int = 0
    leaving: str = ""
    why: str = ""


class ReportTaken(_Message, frozen=True):
    """The commit that holds the report is durable. ``known`` False: register first, then report again.

    ``drop``: attempts in the report that no longer belong to this worker; their processes must be stopped.
    """

    known: bool = True
    drop: tuple[AttemptRef, ...] = ()


class ProbeResult(_Message, frozen=True):
    """The state of a route's probes on its host. Each heartbeat holds the newest result of each route.

    Attributes:
        address: host:port of the process.
        passes, failures: consecutive passes and failures up to the last result; one of them is 0, both before the first
            result.
        ready: whether the last probe of the ready path passed; true without a ready path.
        age_ms: time since the last result when the heartbeat was sent; before the first result, since the process
            started.
        detail: of the last failure, one line.
    """

    ref: AttemptRef
    address: str
    passes: int = 0
    failures: int = 0
    ready: bool = True
    age_ms: int = 0
    detail: str = ""


class LiveUsage(_Message, frozen=True):
    """What the processes of a running attempt use: the memory they hold now, and the most they have held."""

    ref: AttemptRef
    usage: TaskUsage
    rss_bytes: int = 0
    peak_bytes: int = 0


class HeartbeatMessage(_Message, frozen=True):
    """A heartbeat: all attempts that run on this host or whose end is not yet acknowledged.

    Attributes:
        monotonic_ms: the host's monotonic clock when the list was made; 0: unknown, and then no attempt counts as
            missing because the list lacks it.
        probes: of every running attempt whose job has a probe.
        usage: of every running attempt that has a control group.
        warnings: what of its configuration does not agree with the host, by code.
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
    usage: tuple[LiveUsage, ...] = ()
    warnings: dict[str, str] = {}


# ── the load of deployments: proxy → state ──────────────────────────────────────────────────────────────────────


class DeploymentLoad(_Message, frozen=True):
    """The requests to one deployment at one proxy.

    Attributes:
        outstanding: under way or waiting for a route; a websocket is one. arrived: since the report before.
    """

    deployment: str
    outstanding: int
    arrived: int = 0


class DeploymentRequests(_Message, frozen=True):
    """The requests to one deployment that one proxy got since its report before, refused ones included.

    Attributes:
        routes: how many were sent to each route, by its id; a retry counts again.
        answered: requests that were answered since then. failed: those answered with a status of 500 or more.
        latency: how many got the head of their answer within each of `serving.LATENCY_MS`, and how many later.
    """

    deployment: str
    arrived: int
    routes: dict[str, int] = {}
    answered: int = 0
    failed: int = 0
    latency: tuple[int, ...] = ()


class QueriedLoad(_Message, frozen=True):
    """What a deployment's Prometheus query gave; ``error``: why it gave nothing."""

    deployment: str
    value: float = 0.0
    error: str = ""


class LoadReport(_Message, frozen=True):
    """The load of deployments that have a scaling rule, and requests; once a second from each process of a proxy.

    Attributes:
        proxy: unique per process. leaving: it stops, and what it has reported counts no more.
        queried: from the leader, with no proxy.
        requests: of deployments that got any since the report before.
    """

    proxy: str
    loads: tuple[DeploymentLoad, ...] = ()
    leaving: bool = False
    queried: tuple[QueriedLoad, ...] = ()
    requests: tuple[DeploymentRequests, ...] = ()


# ── what a host is to do: state → worker, a request answered at once by OrderTaken ──────────────────────────────


class TaskGrant(_Message, frozen=True):
    """The right to make tokens for the attempts of one job on one worker; see `iris_core.task_tokens`.

    ``claims``: what it says, packed. ``key``: a secret that signs tokens.
    """

    job: int
    claims: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"TaskGrant(job={self.job})"


class TaskTemplate(_Message, frozen=True):
    """The part of an order that all tasks of a job share; sent once per order.

    ``serves``: for a route, the name of the port that serves its requests; its probe may use another one.
    ``traceparent``: the trace context that the job was submitted with; below it, the order's, when orders are traced.
    ``settle_ms``: for a route, how long it serves on after it left discovery, when its worker stops by itself.
    ``grant``: for the tokens of its attempts; None while the signing keys are not known.
    ``output``: the output directory of each attempt, relative to its own; empty: it has none.
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
    settle_ms: int = 0
    environment: Environment | None = None
    grant: TaskGrant | None = None
    output: str = ""


class Gang(_Message, frozen=True):
    """Addresses of the members of a session of two or more: host addresses by task index.

    ``attempt``: of task 0, from which the members of a restarted gang derive a new port.
    """

    job: int
    hosts: tuple[str, ...]
    attempt: int = 0


class Stop(_Message, frozen=True):
    """End an attempt's whole process group: TERM after ``settle_ms``, then KILL after ``grace_ms`` more.

    A route is removed from discovery before that and serves until TERM, for proxies that have not read the new set yet.
    """

    ref: AttemptRef
    grace_ms: int = 5000
    why: Cause = Cause.CANCELLED
    settle_ms: int = 0


class Order(_Message, frozen=True):
    """The orders of one commit for one worker. Each part is idempotent: an attempt is prepared and started once, ever.

    Attributes:
        run: attempts to prepare and start (sessions of one). prepare: attempts to prepare and report PREPARED. start:
            prepared attempts to start. stop: attempts to end and report; an unknown attempt is reported as ended with
            cause missing.
        register: the state service does not know this incarnation: send Register.
        expires_ms: when the order expires, by the host's monotonic clock; afterwards only its stops are executed. 0:
            never.
        renewals: for new tokens of the attempts of these jobs that run there.
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
    renewals: tuple[TaskGrant, ...] = ()


class OrderTaken(_Message, frozen=True):
    """The worker has the order. ``incarnation`` differs from the order's when the worker has restarted; then nothing
    was executed.

    Attributes:
        monotonic_ms: the host's monotonic clock when it answers; 0: unknown.
        stopping: nothing was executed because the worker is shutting down.
    """

    incarnation: str
    taken: bool = True
    monotonic_ms: int = 0
    stopping: bool = False


class LogChunk(_Message, frozen=True):
    """A piece of one attempt's output.

    Attributes:
        stream: stdout or stderr. offset: of ``data`` in that stream, in bytes, including dropped bytes.
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
    """Output of one attempt, in order. Unconfirmed output is sent again; ``offset`` identifies duplicates."""

    ref: AttemptRef
    chunks: tuple[LogChunk, ...]


# ── commands that people execute beside a task: gateway → worker, each request answered ─────────────────────────


class StartExecution(_Message, frozen=True, tag="start"):
    """Start a command in the directory and environment of a running attempt; it ends with the attempt.

    Attributes:
        execution: its id, of the gateway's choice. user: the only one who may write to it.
        tty: with a terminal of that many rows and columns, and of the type ``term``.
    """

    execution: str
    ref: AttemptRef
    user: str
    command: tuple[str, ...]
    tty: bool = False
    rows: int = 24
    columns: int = 80
    term: str = ""


class ReadExecution(_Message, frozen=True, tag="read"):
    """Wait a while for output after piece number ``after``; answered by `ExecutionOutput`."""

    execution: str
    after: int


class WriteExecution(_Message, frozen=True, tag="write"):
    """Write to its standard input, whose position before ``data`` is ``offset``; signal it; resize its terminal.

    ``end``: nothing follows. ``signal``: a name without SIG, or empty.
    """

    execution: str
    user: str
    offset: int = 0
    data: bytes = b""
    end: bool = False
    signal: str = ""
    rows: int = 0
    columns: int = 0


class CloseExecution(_Message, frozen=True, tag="close"):
    """Its client is gone: kill it."""

    execution: str


ExecutionRequest = StartExecution | ReadExecution | WriteExecution | CloseExecution


class ExecutionOutput(_Message, frozen=True):
    """A piece of output, or none when its ``number`` is the one that was asked after.

    Attributes:
        ended: the last piece: the command has ended with a code or by a signal, or for the reason ``error``.
    """

    number: int
    stdout: bytes = b""
    stderr: bytes = b""
    ended: bool = False
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""


class ExecutionTaken(_Message, frozen=True):
    """The answer to a start or a write.

    ``position``: of the standard input, up to which it is taken; the rest is to be sent again. ``error``: why it was
    refused.
    """

    position: int = 0
    error: str = ""


# ── the scheduler's mirror: state → scheduler ───────────────────────────────────────────────────────────────────


class JobRow(_Message, frozen=True):
    """A job with pending or placed tasks, for the scheduler. ``spread``: see `JobSpec.spread_key`."""

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


class WorkerRow(_Message, frozen=True):
    """One host as the scheduler sees it."""

    worker: str
    state: WorkerState
    attributes: dict[str, Attribute]
    total: Amount
    max_building: int = 8
    max_attempts: int = ATTEMPTS


class Hold(_Message, frozen=True):
    """An open attempt on a worker; it holds its resources until its end is known.

    Attributes:
        building: counts in the worker's building window (its task is ASSIGNED or BUILDING).
        stopping: it has been ordered to stop and must not be evicted again.
        since_ms: when it was assigned; a RUNNING one's start.
        stopping_ms: when it was ordered to stop, 0 while it has not been.
        alone: nothing else may be placed beside it.
    """

    ref: AttemptRef
    worker: str
    building: bool
    stopping: bool
    since_ms: int
    stopping_ms: int = 0
    alone: bool = False


class Queued(_Message, frozen=True):
    """Waiting tasks of one job: half-open index ranges, and since when they wait."""

    job: int
    ranges: tuple[tuple[int, int], ...]
    since_ms: int


OCCUPIED = ""
"""In place of a worker that a task is kept off: every worker with another attempt."""


class Avoid(_Message, frozen=True):
    """Do not place this task on this worker before the given time, and prefer other workers for it afterwards.

    ``worker`` `OCCUPIED`: on any worker with another attempt.
    """

    job: int
    index: int
    worker: str
    until_ms: int


class Nomination(_Message, frozen=True):
    """The capacity that a victim frees on ``worker`` is reserved for this waiting task."""

    job: int
    index: int
    worker: str


class Delta(_Message, frozen=True):
    """The changes of one commit for the scheduler; it applies to version ``after`` only, the commit before it.

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

    The placement of a coscheduled job holds all its tasks and is accepted or refused as a whole.
    """

    job: int
    indexes: tuple[int, ...]
    workers: tuple[int, ...]


class Eviction(_Message, frozen=True):
    """Preempt these attempts, all or none, and reserve the freed capacity for ``nominations``."""

    victims: tuple[AttemptRef, ...]
    nominations: tuple[Nomination, ...]


class JobReason(_Message, frozen=True):
    """Why the pending tasks of a job were not placed; published when it changes, and repeated at intervals.

    ``looks``: in how many cycles that was so since it was last published. ``since_ms``: the first of those cycles; 0:
    now.
    """

    job: int
    reason: Reason
    looks: int = 1
    since_ms: int = 0


class Reasons(_Message, frozen=True):
    """The reasons of pending jobs, for followers; they are not recorded in the journal."""

    reasons: tuple[JobReason, ...] = ()


class Plan(_Message, frozen=True):
    """The result of one cycle, a pure function of the snapshot of ``version``."""

    scheduler: str
    version: int
    workers: tuple[str, ...] = ()
    placements: tuple[Placement, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    reasons: tuple[JobReason, ...] = ()
    cycle_us: int = 0


class PlanTaken(_Message, frozen=True):
    """The commit that holds the plan is durable.

    Refused tasks are still pending, as of the version given with them. ``traces``: the trace contexts of the jobs with
    placed tasks; at most 1,000.
    """

    version: int
    placed: int
    refused: tuple[tuple[int, int, str], ...] = ()
    traces: dict[int, str] = {}


class PlanRequest(_Message, frozen=True):
    """A dry run: whether a job would be placed now, after which preemptions, or never."""

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
    """Sent by the leader: its id, since when it leads, its position, and the id of the last published event."""

    leader: str = ""
    epoch: int = 0
    sequence: int = 0
    ready: bool = True
    last_published: str = ""


class ReplicaInfo(_Message, frozen=True):
    """What a replica of the state service does.

    Attributes:
        leads: whether it leads. epoch: of the newest leader it knows. sequence: the last commit it has applied.
        behind: commits of the leader that it has not applied. unpublished: events that their stream has not confirmed.
        stored_bytes: what each store holds, from the leader only.
    """

    leads: bool = False
    epoch: int = 0
    sequence: int = 0
    behind: int = 0
    unpublished: int = 0
    stored_bytes: dict[str, int] = {}


NO_TOKEN_FILE = "none"
"""What stands in `ServiceInfo.tokens` for a gateway without a token_file."""


class ServiceInfo(_Message, frozen=True):
    """A process describes itself.

    Attributes:
        service: as ``iris server`` calls it. id: unique per start.
        started_ms: the wall time of its start.
        configuration: its settings with their origins as TOML, without secrets.
        replica: of the state service only.
        tokens: of a gateway only: a digest of the tokens it accepts from its token_file, NO_TOKEN_FILE without one.
    """

    service: str
    id: str
    version: str
    host: str
    pid: int
    started_ms: int
    configuration: str = ""
    replica: ReplicaInfo | None = None
    tokens: str = ""
