"""Every status of every entity with its wire value, and named sets of statuses. Nothing here
decides.

A wire value is never reused. Sources: docs/design/semantics.md#tasks-and-attempts,
docs/design/semantics.md#rules-and-judgement, docs/design/semantics.md#sessions,
docs/design/semantics.md#deployments-and-routes, docs/design/semantics.md#enumerations.
"""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum
from functools import lru_cache


class TaskState(IntEnum):
    """A task's state as users see it. The numbers are the proto values of Task States."""

    UNSPECIFIED = 0
    PENDING = 1
    BUILDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    KILLED = 6
    WORKER_FAILED = 7
    UNSCHEDULABLE = 8
    ASSIGNED = 9
    PREEMPTED = 10


class JobState(IntEnum):
    """Derived from the states of a job's tasks, never set on its own. 2 is reserved."""

    UNSPECIFIED = 0
    PENDING = 1
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    KILLED = 6
    WORKER_FAILED = 7
    UNSCHEDULABLE = 8


class SessionStatus(StrEnum):
    """The progress of a unit that is placed all-or-nothing (docs/design/semantics.md#sessions)."""

    PENDING = "PENDING"
    SCHEDULED = "SCHEDULED"
    PREPARING = "PREPARING"
    PREPARED = "PREPARED"
    CREATING = "CREATING"
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    CANCELLED = "CANCELLED"


class KernelStatus(StrEnum):
    """The progress of one attempt on its worker (Status Transitions calls an attempt a kernel)."""

    PENDING = "PENDING"
    SCHEDULED = "SCHEDULED"
    PREPARING = "PREPARING"
    PULLING = "PULLING"
    PREPARED = "PREPARED"
    CREATING = "CREATING"
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    CANCELLED = "CANCELLED"
    ERROR = "ERROR"


class DeploymentLifecycle(StrEnum):
    """Status of a deployment. Source: docs/design/semantics.md#deployments-and-routes."""

    PENDING = "pending"
    CREATED = "created"
    SCALING = "scaling"
    READY = "ready"
    DEPLOYING = "deploying"
    DESTROYING = "destroying"
    DESTROYED = "destroyed"


class RouteStatus(StrEnum):
    """Status of a route. Source: docs/design/semantics.md#deployments-and-routes."""

    PROVISIONING = "provisioning"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    DEGRADED = "degraded"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FAILED_TO_START = "failed_to_start"


class SliceStatus(StrEnum):
    """Status of a slice, the hosts that a provider makes and deletes at once.

    Source: docs/design/fleet.md#statuses-of-a-slice.
    """

    REQUESTED = "requested"
    CREATING = "creating"
    READY = "ready"
    DRAINING = "draining"
    DELETING = "deleting"
    DELETED = "deleted"
    FAILED = "failed"


class SliceCause(StrEnum):
    """Why a slice entered a status. Source: docs/design/fleet.md#causes."""

    NEED = "need"
    MIN = "min"
    BUFFER = "buffer"
    IDLE = "idle"
    OPERATOR = "operator"
    OVER_MAX = "over_max"
    REMOVED = "removed"
    ACCEPTED = "accepted"
    EXHAUSTED = "exhausted"
    REFUSED = "refused"
    CREATE_FAILED = "create_failed"
    NO_ANSWER = "no_answer"
    REGISTERED = "registered"
    BOOT_FAILED = "boot_failed"
    BOOT_TIMEOUT = "boot_timeout"
    HOST_LOST = "host_lost"
    HOST_DEGRADED = "host_degraded"
    PREEMPTED = "preempted"
    SPOT_NOTICE = "spot_notice"
    GONE = "gone"
    DRAINED = "drained"
    DEADLINE = "deadline"
    DEMAND_BACK = "demand_back"
    NOT_LISTED = "not_listed"
    DELETE_OVERDUE = "delete_overdue"
    ADOPTED = "adopted"
    ORPHAN = "orphan"


class WorkerState(StrEnum):
    """Liveness of a host, and whether it may get new work."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    DRAINING = "draining"
    LOST = "lost"


class SchedulingResult(StrEnum):
    """The result of one judgement (docs/design/semantics.md#rules-and-judgement)."""

    SUCCESS = "SUCCESS"
    NEED_RETRY = "NEED_RETRY"
    EXPIRED = "EXPIRED"
    GIVE_UP = "GIVE_UP"
    SKIPPED = "SKIPPED"


class Outcome(StrEnum):
    """What a handler or a worker claims; it never judges (docs/design/semantics.md#sessions)."""

    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    SKIPPED = "SKIPPED"


class MatchType(Enum):
    """How many parts must be in a status for a condition to hold
    (docs/design/semantics.md#sessions).
    """

    ALL = "all"
    ANY = "any"
    NOT_ANY = "not_any"


class PriorityBand(IntEnum):
    """A lower value is scheduled first."""

    PRODUCTION = 1
    INTERACTIVE = 2
    BATCH = 3


class ConstraintOp(StrEnum):
    """How a constraint compares. Source: docs/design/semantics.md#constraints-and-resources."""

    EQ = "eq"
    NE = "ne"
    EXISTS = "exists"
    NOT_EXISTS = "not_exists"
    GT = "gt"
    GE = "ge"
    LT = "lt"
    LE = "le"
    IN = "in"


class Budget(StrEnum):
    """The counter that is charged for a return to PENDING."""

    FAILURE = "failure"
    PREEMPTION = "preemption"
    RESCHEDULE = "reschedule"
    REQUEUE = "requeue"
    RECLAIM = "reclaim"


class Initiator(StrEnum):
    """Who initiated a change."""

    USER = "user"
    SCHEDULER = "scheduler"
    WORKER = "worker"
    SYSTEM = "system"


class Cause(StrEnum):
    """Why an attempt or a task ended, or returned to PENDING."""

    EXITED = "exited"
    FAILED = "failed"
    CANCELLED = "cancelled"
    JOB_ENDED = "job_ended"
    PARENT_ENDED = "parent_ended"
    REPLACED = "replaced"
    TIMEOUT = "timeout"
    SCHEDULING_TIMEOUT = "scheduling_timeout"
    RESCHEDULES_SPENT = "reschedules_spent"
    WORKER_LOST = "worker_lost"
    WORKER_CRASHED = "worker_crashed"
    MISSING = "missing"
    INFRASTRUCTURE = "infrastructure"
    PREEMPTED = "preempted"
    UNDELIVERED = "undelivered"
    PREPARE_TIMEOUT = "prepare_timeout"
    START_TIMEOUT = "start_timeout"
    COSCHEDULED_SIBLING = "coscheduled_sibling"
    COSCHEDULED_RESTART = "coscheduled_restart"
    LEADER_DONE = "leader_done"
    DEPENDENCY_FAILED = "dependency_failed"
    REQUEUED = "requeued"
    HELD = "held"
    HANDED_BACK = "handed_back"
    RETIRED = "retired"
    RECLAIMED = "reclaimed"


class NoticeReason(StrEnum):
    """Why an attempt will be stopped: its time limit, its host is drained or taken away, or work of
    a higher band, or within the guarantee of another project.
    """

    TIMEOUT = "timeout"
    DRAIN = "drain"
    PREEMPTED = "preempted"
    SPOT = "spot"


T = TaskState
J = JobState
S = SessionStatus
K = KernelStatus

ACTIVE = frozenset({T.ASSIGNED, T.BUILDING, T.RUNNING})
NON_TERMINAL = ACTIVE | {T.PENDING}
TERMINAL = frozenset(
    {T.SUCCEEDED, T.FAILED, T.KILLED, T.WORKER_FAILED, T.UNSCHEDULABLE, T.PREEMPTED}
)
FAILURES = frozenset({T.FAILED, T.WORKER_FAILED, T.PREEMPTED})

GIVES_WAY = frozenset({Cause.PREEMPTED, Cause.RECLAIMED})
"""Why an attempt ends that makes room for other work, or goes with its host."""

JOB_TERMINAL = frozenset({J.SUCCEEDED, J.FAILED, J.KILLED, J.WORKER_FAILED, J.UNSCHEDULABLE})

SESSION_TERMINAL = frozenset({S.TERMINATED, S.CANCELLED})
SESSION_LIVE = frozenset({S.SCHEDULED, S.PREPARING, S.PREPARED, S.CREATING, S.RUNNING})

KERNEL_TERMINAL = frozenset({K.TERMINATED, K.CANCELLED, K.ERROR})
KERNEL_UNPREPARED = frozenset({K.PENDING, K.SCHEDULED, K.PREPARING, K.PULLING})
KERNEL_UNSTARTED = KERNEL_UNPREPARED | {K.PREPARED, K.CREATING}
KERNEL_NON_TERMINAL = KERNEL_UNSTARTED | {K.RUNNING, K.TERMINATING}

STAGE_ORDER = {status: rank for rank, status in enumerate(KernelStatus)}
"""A report never moves an attempt to a lower rank."""

DISPLAY_COLOURS = {
    T.UNSPECIFIED: "#57606a",
    T.PENDING: "#9a6700",
    T.ASSIGNED: "#bc4c00",
    T.BUILDING: "#8250df",
    T.RUNNING: "#0969da",
    T.SUCCEEDED: "#1a7f37",
    T.FAILED: "#cf222e",
    T.KILLED: "#57606a",
    T.WORKER_FAILED: "#8250df",
    T.UNSCHEDULABLE: "#cf222e",
    T.PREEMPTED: "#bc4c00",
}
"""The colour of each state's badge. Source: docs/design/page.md#states."""


@lru_cache(maxsize=None, typed=True)  # members of two enumerations may be equal as integers
def display_name(state: Enum) -> str:
    """The word for a state everywhere people see it: lower case."""
    return state.name.lower()


def css_class(state: TaskState) -> str:
    """The CSS class of a state's badge, ``status-{name}``. Source: docs/design/page.md#states."""
    return f"status-{display_name(state)}"
