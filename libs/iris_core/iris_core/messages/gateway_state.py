"""Between gateways and the state service: commands and queries of people, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias, get_args

from iris_core.admission.actions import (
    ADMIN_ACTIONS,
    DEPLOYMENT_ACTIONS,
    FLEET_ACTIONS,
    PROJECT_ACTIONS,
    Action,
    DeploymentAction,
    FleetAction,
    ProjectAction,
    read_action,
)
from iris_core.messages.message import AttemptRef, ServiceMessage
from iris_core.spec.jobs import Dependency, JobSpec
from iris_core.spec.pools import PoolSpec
from iris_core.spec.projects import ProjectSpec
from iris_core.spec.serving import DeploymentSpec
from iris_core.subjects import SUBJECTS


class Caller(ServiceMessage, frozen=True):
    """The authenticated sender of a request. Roles: user, admin, worker, task.

    Attributes:
        attempt, worker: of a task, which attempt's token it is, and where that was made.
        token: the name of the token. address: of the client; empty in queries.
        claimed: authentication is off, and the user is what the client says.
        groups: of the user, as the issuer of the token says, in order; None: it says nothing of
            groups, so those that are known stay.
    """

    user: str = ""
    role: str = "user"
    attempt: AttemptRef | None = None
    worker: str = ""
    token: str = ""
    address: str = ""
    claimed: bool = False
    groups: tuple[str, ...] | None = None


class SubmitJob(ServiceMessage, frozen=True):
    """Admit this job.

    ``parent``: the parent job, which must exist; empty for the parent in its name.
    ``rerun_of``: the number of the job that it repeats; 0: none. ``beside``: of a task: the job is
    no child, but stands beside the root of the task's job, and outlives it.
    """

    does: ClassVar[str] = "submit jobs"
    spec: JobSpec
    caller: Caller
    request_id: str
    submitted_ms: int
    idempotency_key: str = ""
    if_exists: str = "error"
    traceparent: str = ""
    parent: str = ""
    rerun_of: int = 0
    beside: bool = False


class CancelJob(ServiceMessage, frozen=True):
    """Kill the whole subtree of ``job`` (a name or an opaque id), or one call of a map
    (``/sweep/3``, ``j7/3``).

    ``now``: without a grace period, also for what is stopped already.
    """

    does: ClassVar[str] = "cancel jobs"
    job: str
    caller: Caller
    request_id: str
    requested_ms: int
    reason: str = ""
    now: bool = False


class AdminCommand(ServiceMessage, frozen=True):
    """An operator's command on a worker or a user: one of `actions.ADMIN_ACTIONS`, with its
    arguments.
    """

    does: ClassVar[str] = "administer the cluster"
    action: str
    target: str
    caller: Caller
    request_id: str
    requested_ms: int
    arguments: dict[str, Any] = {}

    @property
    def asked(self) -> Action:
        """The action. Raises Refused."""
        return read_action(ADMIN_ACTIONS, self.action, self.arguments)


class RerunJob(ServiceMessage, frozen=True):
    """Submit the specification of ``job`` again: all its tasks or some of them, under their
    indexes.

    Attributes:
        failed_only: only those that did not succeed. tasks: only these, a text as that of an
            `IndexSet`; empty: all.
        env: adds to its variables. after: what the new job waits for.
        resources: other amounts for each task, by the fields of `ResourceRequest`.
    """

    does: ClassVar[str] = "submit jobs"
    job: str
    caller: Caller
    request_id: str
    requested_ms: int
    failed_only: bool = False
    env: dict[str, str] = {}
    after: tuple[Dependency, ...] = ()
    tasks: str = ""
    resources: dict[str, int] = {}


class RequeueTasks(ServiceMessage, frozen=True):
    """Stop what runs of ``target``, a job or a task, and return it to the queue."""

    does: ClassVar[str] = "requeue tasks"
    target: str
    caller: Caller
    request_id: str
    requested_ms: int
    reason: str = ""


class GrowJob(ServiceMessage, frozen=True):
    """Add calls to an open ``job``, or close it; without either its client shows that it is there.

    Attributes:
        offset: after so many calls; another number is refused, unless these calls are there
            already.
        segments: files of their arguments. firsts: of each the index of the first task. count: how
            many calls they are.
        close: the job takes no further calls. reason: why, when that is not its client.
    """

    does: ClassVar[str] = "change jobs"
    job: str
    caller: Caller
    request_id: str
    requested_ms: int
    offset: int = 0
    segments: tuple[str, ...] = ()
    firsts: tuple[int, ...] = ()
    count: int = 0
    close: bool = False
    reason: str = ""


class AmendJob(ServiceMessage, frozen=True):
    """Change what ``job`` waits for, or some fields of its specification.

    Attributes:
        hold: keep its pending tasks out of the queue, or no longer; None: as it is. reason: of a
            hold.
        drop_after: it waits for no other job any more.
        version: the expected version of the job; another one is refused. 0: any.
        stop: with a hold, what runs of it is stopped too and waits with the rest.
        patch: a JSON merge patch (RFC 7396) of its specification, of the fields in
            `amendments.AMENDABLE`; empty: none.
    """

    does: ClassVar[str] = "change jobs"
    job: str
    caller: Caller
    request_id: str
    requested_ms: int
    hold: bool | None = None
    reason: str = ""
    drop_after: bool = False
    version: int = 0
    stop: bool = False
    patch: bytes = b""


class HoldQueue(ServiceMessage, frozen=True):
    """Keep the pending tasks of all jobs out of the queue that match every given part, present and
    future ones.

    Attributes:
        user, band, label: what matches; empty: any. A label is ``key=value``.
        hold: release this one instead, by its id.
    """

    does: ClassVar[str] = "hold the queue"
    caller: Caller
    request_id: str
    requested_ms: int
    user: str = ""
    band: str = ""
    label: str = ""
    reason: str = ""
    hold: str = ""


class DeployCommand(ServiceMessage, frozen=True):
    """A command on a deployment: one of `actions.DEPLOYMENT_ACTIONS`, with its fields."""

    does: ClassVar[str] = "change deployments"
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

    @property
    def asked(self) -> DeploymentAction:
        """The action. Raises Refused."""
        kind = DEPLOYMENT_ACTIONS.get(self.action, DeploymentAction)
        return read_action(
            DEPLOYMENT_ACTIONS, self.action, {f: getattr(self, f) for f in kind.__struct_fields__}
        )


class FleetCommand(ServiceMessage, frozen=True):
    """A command on a pool, or on a slice by its name or id: one of `actions.FLEET_ACTIONS`, with
    its fields.
    """

    does: ClassVar[str] = "change the fleet"
    action: str
    target: str
    caller: Caller
    request_id: str
    requested_ms: int
    spec: PoolSpec | None = None
    version: int = 0
    drain: bool = False
    deadline_s: float | None = None
    reason: str = ""

    @property
    def asked(self) -> FleetAction:
        """The action. Raises Refused."""
        kind = FLEET_ACTIONS.get(self.action, FleetAction)
        return read_action(
            FLEET_ACTIONS, self.action, {f: getattr(self, f) for f in kind.__struct_fields__}
        )


class ProjectCommand(ServiceMessage, frozen=True):
    """A command on a project by its path: one of `actions.PROJECT_ACTIONS`, with its fields."""

    does: ClassVar[str] = "change projects"
    action: str
    path: str
    caller: Caller
    request_id: str
    requested_ms: int
    spec: ProjectSpec | None = None
    version: int = 0

    @property
    def asked(self) -> ProjectAction:
        """The action. Raises Refused."""
        kind = PROJECT_ACTIONS.get(self.action, ProjectAction)
        return read_action(
            PROJECT_ACTIONS, self.action, {f: getattr(self, f) for f in kind.__struct_fields__}
        )


UserCommand: TypeAlias = (
    SubmitJob
    | CancelJob
    | AdminCommand
    | RerunJob
    | AmendJob
    | RequeueTasks
    | GrowJob
    | HoldQueue
    | DeployCommand
    | FleetCommand
    | ProjectCommand
)
"""A command of a person. ``does``: what, in the words of a refusal."""
SUBJECT_OF: Mapping[type[UserCommand], str] = {
    kind: row.pattern
    for row in SUBJECTS
    for kind in get_args(UserCommand)
    if kind.__name__ == row.message
}


class Answer(ServiceMessage, frozen=True):
    """The answer to a request.

    Attributes:
        status: "ok", "created", "replayed", "accepted", or a `Code` value when refused.
        body: JSON for the caller: the API object, or ``{"detail", "errors"}`` of a refusal.
        position: journal sequence: a command's effect is stored at or before it, a read is as of
            it; 0: unknown.
        note: what the caller should know beside it, for a person; empty: nothing.
    """

    status: str
    body: bytes = b"null"
    position: int = 0
    note: str = ""


BEHIND = "behind"
"""Answer status of a follower that has not reached the requested position; the leader has."""


class Query(ServiceMessage, frozen=True):
    """A read. ``what`` names a view (jobs, job, tasks, task, attempts, tree, queue, workers, ...).

    ``at_least``: the journal sequence that the answer must include; an answer of the leader always
    does.
    """

    what: str
    arguments: dict[str, Any] = {}
    caller: Caller = Caller()
    at_least: int = 0
