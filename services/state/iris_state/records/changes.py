"""The entries of the journal: `Commit`s, each a batch of changes. Types only; `ledger` applies
them.

Facts, past participles, positional: new fields go last with a default, tags are never reused, and a
journal of every earlier release replays (tests/golden). ``by``: whose command caused the change,
which `round` fills in; None: nobody's. Source: docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

from typing import get_args

import msgspec

from iris_core.access.actor import Actor
from iris_core.limits import ATTEMPTS
from iris_core.messages.state_worker import Ended
from iris_core.placement.queue import Range
from iris_core.quota import Quota
from iris_core.spec.jobs import Attribute, JobSpec
from iris_core.spec.resources import Amount
from iris_core.states import (
    Budget,
    Cause,
    Initiator,
    JobState,
    KernelStatus,
    SchedulingResult,
    SessionStatus,
    TaskState,
    WorkerState,
)
from iris_state.records.deployment_changes import DEPLOYMENT_KINDS as DEPLOYMENT_KINDS
from iris_state.records.deployment_changes import DeploymentChanged as DeploymentChanged
from iris_state.records.deployment_changes import DeploymentCreated as DeploymentCreated
from iris_state.records.deployment_changes import DeploymentForgotten as DeploymentForgotten
from iris_state.records.deployment_changes import DeploymentMoved as DeploymentMoved
from iris_state.records.deployment_changes import DeploymentScaled as DeploymentScaled
from iris_state.records.deployment_changes import RolledOut as RolledOut
from iris_state.records.deployment_changes import RouteCreated as RouteCreated
from iris_state.records.deployment_changes import RouteMoved as RouteMoved
from iris_state.records.deployment_changes import RouteProbed as RouteProbed
from iris_state.records.deployment_changes import RoutesDiscovered as RoutesDiscovered
from iris_state.records.fleet_changes import FLEET_KINDS as FLEET_KINDS
from iris_state.records.fleet_changes import OrphanDeleted as OrphanDeleted
from iris_state.records.fleet_changes import PoolGrowth as PoolGrowth
from iris_state.records.fleet_changes import PoolRemoved as PoolRemoved
from iris_state.records.fleet_changes import PoolSet as PoolSet
from iris_state.records.fleet_changes import SliceCleared as SliceCleared
from iris_state.records.fleet_changes import SliceMoved as SliceMoved
from iris_state.records.fleet_changes import SliceRequested as SliceRequested
from iris_state.records.gates import Gate
from iris_state.records.indexes.stored import StoredBytes
from iris_state.records.project_changes import PROJECT_KINDS as PROJECT_KINDS
from iris_state.records.project_changes import ProjectRemoved as ProjectRemoved
from iris_state.records.project_changes import ProjectSet as ProjectSet
from iris_state.records.stops import Noticed as Noticed
from iris_state.records.stops import StopOrdered as StopOrdered

GANG = -1
"""The ``index`` of a session that consists of a whole job."""


class JobAdmitted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """A job exists, with all its tasks PENDING. ``parent``, ``rerun_of`` and ``lineage`` are job
    numbers, 0 without a known one.
    """

    number: int
    name: str
    spec: JobSpec
    user: str
    submitted_ms: int
    root_submitted_ms: int
    parent: int = 0
    idempotency_key: str = ""
    request_id: str = ""
    traceparent: str = ""
    rerun_of: int = 0
    by: Actor | None = None
    gates: tuple[Gate, ...] = ()
    lineage: int = 0


class Assigned(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """A new attempt of a PENDING task is open on a worker.

    ``chain``: index and attempt that its chain began with, if that is not itself; see
    `indexes.chains`.
    """

    job: int
    index: int
    attempt: int
    worker: str
    chain: tuple[int, int] | None = None


class Staged(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """A live attempt has reached a later stage, or does something else in its stage
    (``detail``). ``waits``: as in `Stage`.
    """

    job: int
    index: int
    attempt: int
    status: KernelStatus
    detail: str = ""
    waits: bool = False


class Moved(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """A task left its attempt: it is PENDING again, or has ended. ``attempt`` -1 when it was in
    none.

    A gang's member that has exited 0, or is stopped for its leader, leaves its attempt and stays
    ACTIVE.

    Attributes:
        shown: the displayed state of the attempt.
        closed: the attempt's end is known (``ended``); otherwise it is being stopped and still
            holds its resources.
        charged_to: the incremented counter.
        note: one sentence for a person.
        suspect: the attempt may have crashed its worker, see `poison`.
        not_before_ms: of a task that is PENDING again: it is not queued before that time; 0: at
            once.
    """

    job: int
    index: int
    attempt: int
    state: TaskState
    shown: TaskState
    cause: Cause
    initiator: Initiator
    closed: bool
    charged_to: Budget | None = None
    ended: Ended | None = None
    note: str = ""
    suspect: bool = False
    by: Actor | None = None
    not_before_ms: int = 0


class Closed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """The end of an attempt that its task had left before is now known; its resources are free."""

    job: int
    index: int
    attempt: int
    ended: Ended


class JobMoved(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=6):
    """The derived state of a job changed."""

    job: int
    state: JobState
    cause: Cause | None = None
    error: str = ""
    by: Actor | None = None


class SessionMoved(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=7):
    """The stored status of a coscheduled session changed, by this handler or promotion."""

    job: int
    status: SessionStatus
    handler: str
    result: SchedulingResult = SchedulingResult.SUCCESS
    reason: str = ""
    by: Actor | None = None


class Judged(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=8):
    """A judgement without a SessionMoved; ``tries`` is the handler's counter from now on. ``index``
    GANG: whole job.

    ``looks`` equal judgements are merged, the first of them at ``since_ms`` (0: now). ``version``
    is the journal sequence that holds it: a plan based on an older one does not count as another
    failure. ``to_status``: the target of a session of one, whose status is not stored; None:
        unchanged.
    """

    job: int
    index: int
    handler: str
    result: SchedulingResult
    reason: str = ""
    tries: int = 0
    looks: int = 1
    since_ms: int = 0
    version: int = 0
    to_status: SessionStatus | None = None


class WorkerRegistered(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=9):
    """A host has started, started again under a new incarnation, or has other attributes.

    ``chains``: as of `Register`.
    """

    worker: str
    incarnation: str
    attributes: dict[str, Attribute]
    total: Amount
    address: str = ""
    version: str = ""
    monotonic_ms: int = 0
    max_attempts: int = ATTEMPTS
    boot: str = ""
    chains: bool = False


class WorkerMoved(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=10):
    """A host's state changed. ``drained`` of a LOST one: whether it is DRAINING when it comes back;
    of one that is
    stopping: False. ``notice_ms``: when its machine is taken away; 0: that is not known.
    """

    worker: str
    state: WorkerState
    reason: str = ""
    drained: bool | None = None
    by: Actor | None = None
    notice_ms: int = 0


class Nominated(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=11):
    """The capacity that is being freed on ``worker`` is nominated for this pending task; ""
    withdraws the nomination.
    """

    job: int
    index: int
    worker: str


class Avoided(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=12):
    """This task must not be placed on this worker before ``until_ms``.

    ``worker`` `OCCUPIED`: on any worker with another attempt, nor another attempt beside it;
    ``until_ms`` 0: no longer.
    """

    job: int
    index: int
    worker: str
    until_ms: int


class QuotaSet(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=13):
    """A user's limits were set."""

    quota: Quota
    by: Actor | None = None


class GroupsNoted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=46):
    """The issuer of a user's token has named these groups of the user, other ones than before."""

    user: str
    groups: tuple[str, ...]


class Answered(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=14):
    """A command's request id and its answer, so that a repeated request gets the same answer.

    ``body`` is JSON, or the id of a job (``j7``) whose view is then made again. ``user``: who asked.
    """

    request_id: str
    status: str
    body: bytes
    user: str


class GatesOpened(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=23):
    """A gate of a job has opened, or of some of its tasks; those without another one are queued.

    ``gate``: its number, or `gates.BACKOFF`. ``ranges``: half-open ranges of task indexes; empty:
    as a whole.
    """

    job: int
    gate: int
    ranges: tuple[Range, ...] = ()


class JobAmended(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=24):
    """A job waits for something else than before: its specification and its gates from now on."""

    job: int
    spec: JobSpec
    gates: tuple[Gate, ...]
    by: Actor | None = None


class Requeued(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=25):
    """An attempt that is being stopped does not end its task, whatever it exits with: somebody
    wants it again.
    """

    job: int
    index: int
    attempt: int


class GraceEnded(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=45):
    """An attempt that is stopped, or is about to be, is killed at once: somebody does not wait for
    the end of its grace period.
    """

    job: int
    index: int
    attempt: int


class Evicted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=51):
    """So many bytes of what a job has stored were deleted, because its user held most when there was
    no room.
    """

    job: int
    bytes: StoredBytes


class JobGrown(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=40):
    """An open job has so many calls more, in so many tasks behind those it had; none: its client is
    there.

    ``segments``, ``firsts``: as in `Calls`.
    """

    job: int
    calls: int
    tasks: int
    segments: tuple[str, ...] = ()
    firsts: tuple[int, ...] = ()
    by: Actor | None = None


class JobClosed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=41):
    """An open job takes no further calls; ``note``: why, when its client has not said so."""

    job: int
    note: str = ""
    by: Actor | None = None


class QueueHeld(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=26):
    """The jobs with this user, band and label (empty: any) wait from now on, and those that are
    admitted later.
    """

    number: int
    user: str = ""
    band: str = ""
    label: str = ""
    reason: str = ""
    by: Actor | None = None


class QueueReleased(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=27):
    """A hold on the queue has ended; the gates of the jobs that it held open after it."""

    number: int
    by: Actor | None = None


class JobPruned(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=15):
    """A job that ended long ago was deleted; its counts are kept."""

    job: int


class Led(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=16):
    """A replica has taken over: from now on the appends of every other one are refused.

    ``boot``: of its host; ``boot_ms``: the time of records at which that began, by which times pass
    while it leads. Empty: unknown.
    """

    leader: str
    epoch: int
    boot: str = ""
    boot_ms: int = 0


class Dropped(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=21):
    """Of the audit ``entries`` were deleted, by number, ``spent`` idempotency keys of deleted jobs, and
    ``answered`` requests.
    """

    entries: tuple[int, ...] = ()
    spent: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()


class Audited(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=22):
    """Somebody's command was executed and has changed something; the changes are in the same
    commit.

    Attributes:
        kind, record, name: what it was done to: job, worker, user or deployment; its id; its name.
        owner: of that record, empty of a worker. detail: the reason that was given, or what was
            asked for.
    """

    by: Actor
    action: str
    kind: str
    record: str
    name: str
    owner: str = ""
    detail: str = ""


class WorkerForgotten(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=17):
    """A LOST host was deleted; its attempts keep its name."""

    worker: str
    by: Actor | None = None


Change = (
    JobAdmitted
    | Assigned
    | Staged
    | Moved
    | Closed
    | JobMoved
    | SessionMoved
    | Judged
    | WorkerRegistered
    | WorkerMoved
    | Nominated
    | Avoided
    | QuotaSet
    | GroupsNoted
    | Answered
    | GatesOpened
    | JobAmended
    | Requeued
    | GraceEnded
    | Evicted
    | JobGrown
    | JobClosed
    | QueueHeld
    | QueueReleased
    | StopOrdered
    | Noticed
    | JobPruned
    | Led
    | Dropped
    | Audited
    | WorkerForgotten
    | DeploymentCreated
    | DeploymentChanged
    | RolledOut
    | DeploymentMoved
    | DeploymentForgotten
    | RouteCreated
    | RouteMoved
    | RouteProbed
    | RoutesDiscovered
    | DeploymentScaled
    | PoolSet
    | PoolRemoved
    | PoolGrowth
    | SliceRequested
    | SliceMoved
    | SliceCleared
    | OrphanDeleted
    | ProjectSet
    | ProjectRemoved
)

SIGNED: frozenset[type] = frozenset(
    kind for kind in get_args(Change) if "by" in kind.__struct_fields__
)
"""The kinds of changes that name their actor."""


class Commit(msgspec.Struct, frozen=True, array_like=True):
    """One batch: the leader's epoch, the time, and the changes.

    ``epoch`` and ``serial`` make the bytes of every commit unique, on which an append of unknown
    outcome relies.
    """

    epoch: int
    serial: int
    at_ms: int
    changes: list[Change]
