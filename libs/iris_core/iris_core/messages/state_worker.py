"""Between the state service and workers: reports of workers, orders to them, and the answers to
both.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from iris_core.limits import ATTEMPTS
from iris_core.messages.message import AttemptRef, ServiceMessage
from iris_core.spec.calls import Calls
from iris_core.spec.jobs import Attribute, Environment, NoticePolicy, Probe
from iris_core.spec.resources import Amount, ResourceRequest
from iris_core.states import Cause, KernelStatus, NoticeReason

MOST_STORED = 1 << 40
"""Bytes that one attempt can have stored, at most: no worker can say so much that a sum overflows."""
StoredSize = Annotated[int, msgspec.Meta(ge=0, le=MOST_STORED)]


class TaskUsage(ServiceMessage, frozen=True):
    """What the processes of an attempt have used together; without a control group, the first one
    and its children.

    ``memory_limit_bytes``: the memory limit for which the kernel has killed one of them; 0: none
    was killed.
    """

    cpu_ms: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    memory_limit_bytes: int = 0


class Artifact(ServiceMessage, frozen=True):
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


class Ended(ServiceMessage, frozen=True):
    """How an attempt's process ended on its worker.

    Attributes:
        cause: exited (a normal exit, any code), infrastructure (it could not be prepared or
            started, or its end is unknown), missing (the worker has no record of it), cancelled (it
            was ordered to stop), timeout, handed_back (it was not started, because the one before
            it in its chain takes long).
        exit_code: None when a signal ended it or it never ran.
        error: one line for a person. stderr_tail: the end of its standard error.
        dropped_bytes: bytes of its output that are not in the log stream.
        artifact: what has become of its output directory, if it had one.
        output_bytes, result_bytes: what its messages take in the streams of output and of results.
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
    output_bytes: StoredSize = 0
    result_bytes: StoredSize = 0


class GivenNotice(ServiceMessage, frozen=True):
    """An attempt was told why it will be stopped; each reason is told once. Times by its host's
    clock.

    ``deadline_ms``: until when nothing further is done to it; 0: it may go on.
    """

    reason: NoticeReason
    at_ms: int
    deadline_ms: int = 0


class Stage(ServiceMessage, frozen=True):
    """The present status of one attempt; ``ended`` when its process has ended for good (status
    TERMINATED or ERROR).

    ``detail``: what is done in this status, for a person; it may change within the status.
    ``notices``: that it was given, oldest first. ``waits``: in this status it does nothing but wait
        for what another attempt builds or pulls on this host.
    """

    ref: AttemptRef
    status: KernelStatus
    at_ms: int
    ended: Ended | None = None
    detail: str = ""
    notices: tuple[GivenNotice, ...] = ()
    waits: bool = False


class Register(ServiceMessage, frozen=True):
    """Sent when a worker starts: its identity, its resources, and every attempt whose process still
    runs or whose end it knows. Open attempts that are not listed are missing. Sent again when its
    attributes have changed.

    ``boot`` identifies the boot of the host and ``monotonic_ms`` is its clock since then: they
    order two registrations of one boot. ``max_attempts``: how many may be open here at a time.
    ``chains``: it lets attempts wait for others. ``trouble``: the fault of the host, empty when it
    is well.
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
    chains: bool = False
    trouble: str = ""


class WorkerReport(ServiceMessage, frozen=True):
    """Changes on a host, sent at once and repeated until the answer confirms that they are
    committed.

    Attributes:
        monotonic_ms: the host's monotonic clock when this is sent; 0: unknown.
        leaving: "stopping" when the worker is shutting down and accepts no orders, "gone" when it
            has ended.
        why: it leaves; empty: it was stopped.
        notice_ms: how long after this report its machine is taken away; 0: that is not known.
    """

    worker: str
    incarnation: str
    stages: tuple[Stage, ...] = ()
    register: Register | None = None
    monotonic_ms: int = 0
    leaving: str = ""
    why: str = ""
    notice_ms: int = 0


class ReportTaken(ServiceMessage, frozen=True):
    """The commit that holds the report is durable. ``known`` False: register first, then report
    again.

    ``drop``: attempts in the report that no longer belong to this worker; their processes must be
    stopped.
    """

    known: bool = True
    drop: tuple[AttemptRef, ...] = ()


class ProbeResult(ServiceMessage, frozen=True):
    """The state of a route's probes on its host. Each heartbeat holds the newest result of each
    route.

    Attributes:
        address: host:port of the process.
        passes, failures: consecutive passes and failures up to the last result; one of them is 0,
            both before the first result.
        ready: whether the last probe of the ready path passed; true without a ready path.
        age_ms: time since the last result when the heartbeat was sent; before the first result,
            since the process started.
        detail: of the last failure, one line.
    """

    ref: AttemptRef
    address: str
    passes: int = 0
    failures: int = 0
    ready: bool = True
    age_ms: int = 0
    detail: str = ""


class LiveUsage(ServiceMessage, frozen=True):
    """What the processes of a running attempt use: the memory they hold now, and the most they have
    held.
    """

    ref: AttemptRef
    usage: TaskUsage
    rss_bytes: int = 0
    peak_bytes: int = 0


class HeartbeatMessage(ServiceMessage, frozen=True):
    """A heartbeat: all attempts that run on this host or whose end is not yet acknowledged.

    Attributes:
        monotonic_ms: the host's monotonic clock when the list was made; 0: unknown, and then no
            attempt counts as missing because the list lacks it.
        probes: of every running attempt whose job has a probe.
        usage: of every running attempt that has a control group.
        warnings: what of its configuration does not agree with the host, by code.
        timeouts: ms, by job, that orders have told since the attempts were started; 0: none.
        output_bytes: by job, what messages of its running attempts take in the stream of output,
            without attempts that have printed little.
        muted: of the jobs with attempts here, those of which orders say that nothing more is
            stored.
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
    timeouts: dict[int, int] = {}
    output_bytes: dict[int, StoredSize] = {}
    muted: tuple[int, ...] = ()


class TaskGrant(ServiceMessage, frozen=True):
    """The right to make tokens for the attempts of one job on one worker; see
    `iris_core.access.task_tokens`.

    ``claims``: what it says, packed. ``key``: a secret that signs tokens.
    """

    job: int
    claims: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"TaskGrant(job={self.job})"


class TaskTemplate(ServiceMessage, frozen=True):
    """The part of an order that all tasks of a job share; sent once per order.

    ``serves``: for a route, the name of the port that serves its requests; its probe may use
    another one. ``traceparent``: the trace context that the job was submitted with; below it, the
    order's, when orders are traced. ``settle_ms``: for a route, how long it serves on after it left
    discovery, when its worker stops by itself. ``grant``: for the tokens of its attempts; None
    while the signing keys are not known. ``output``: the output directory of each attempt, relative
    to its own; empty: it has none. ``array``, ``each_line``: where the tasks have their values
    from, see `JobSpec`. ``stop_signal``: 0 is TERM. ``calls``: of a map, what its tasks call.
    ``preload``: modules that are imported once for all attempts on a host.
    ``terminal``: its attempts read and write a terminal.
    ``notice``: what they are told before they are stopped. ``project``: empty: the root.
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
    array: str = ""
    each_line: str = ""
    calls: Calls | None = None
    preload: tuple[str, ...] = ()
    stop_signal: int = 0
    terminal: bool = False
    notice: NoticePolicy | None = None
    project: str = ""

    @property
    def code(self) -> bool:
        """Whether its attempts get something from the bundle store."""
        return self.bundle is not None or self.calls is not None


class Gang(ServiceMessage, frozen=True):
    """Addresses of the members of a session of two or more: host addresses by task index.

    ``attempt``: of task 0, from which the members of a restarted gang derive new ports. ``slices``:
    the hosts are in so many parts of equal size. ``deadline_ms``: when their time limit is over, by
    the monotonic clock of the host that this is sent to; 0: they have none, or that clock is
    unknown.
    """

    job: int
    hosts: tuple[str, ...]
    attempt: int = 0
    slices: int = 1
    deadline_ms: int = 0


class Stop(ServiceMessage, frozen=True):
    """End an attempt's whole process group: its job's signal after ``settle_ms``, then KILL after
    ``grace_ms`` more.

    A preempted attempt whose job has a notice is given that in place of the signal.

    A route is removed from discovery before that and serves until TERM, for proxies that have not
    read the new set yet.
    """

    ref: AttemptRef
    grace_ms: int = 5000
    why: Cause = Cause.CANCELLED
    settle_ms: int = 0


class Chain(ServiceMessage, frozen=True):
    """Attempts of one job that run one after the other in the place of one: each of ``members``, in
    this order, starts when nothing of those before it, nor of ``ahead``, runs any more.
    """

    ahead: tuple[AttemptRef, ...]
    members: tuple[AttemptRef, ...]


class Order(ServiceMessage, frozen=True):
    """The orders of one commit for one worker. Each part is idempotent: an attempt is prepared and
    started once, ever.

    Attributes:
        run: attempts to prepare and start (sessions of one). prepare: attempts to prepare and
            report PREPARED. start: prepared attempts to start. stop: attempts to end and report; an
            unknown attempt is reported as ended with cause missing.
        register: the state service does not know this incarnation: send Register.
        expires_ms: when the order expires, by the host's monotonic clock; afterwards only its stops
            are executed. 0: never.
        renewals: for new tokens of the attempts of these jobs that run there.
        timeouts: ms, of jobs whose timeout was changed while attempts of them run there; 0: none.
        chains: which of ``run`` wait for others to end.
        drained: attempts to give notice of a drain; they go on.
        muted: the jobs whose user has stored as much today as the quota allows: of what their
            attempts there print from now on only the end is stored, and no artifact; None: as
            before.
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
    timeouts: dict[int, int] = {}
    chains: tuple[Chain, ...] = ()
    drained: tuple[AttemptRef, ...] = ()
    muted: tuple[int, ...] | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether an acceptance of the order changes something, and not only its failure."""
        return bool(self.prepare or self.start or not (self.run or self.stop))


class OrderTaken(ServiceMessage, frozen=True):
    """The worker has the order. ``incarnation`` differs from the order's when the worker has
    restarted; then nothing was executed. Of an order that nobody awaits it may come up to 20 ms
    later, with a report.

    Attributes:
        monotonic_ms: the host's monotonic clock when it took the order; 0: unknown.
        stopping: nothing was executed because the worker is shutting down.
    """

    incarnation: str
    taken: bool = True
    monotonic_ms: int = 0
    stopping: bool = False
