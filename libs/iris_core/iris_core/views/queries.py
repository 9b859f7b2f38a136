"""What the state service is asked: one struct for each view.

The struct's name is the name of the view on the wire (`JobsQuery` asks for ``jobs``), its fields
are the view's parameters. One with a description is a query parameter of the HTTP API, which the
gateway reads and documents by the field's type and limits; the others come from a path, or are set
by the gateway itself.

Out of scope: the content of views (`iris_core.views.jobs`). Source:
    docs/adr/0061-one-struct-for-each-query.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from iris_core.names import MAX_COMPONENT, MAX_LEVELS
from iris_core.spec.jobs import BANDS
from iris_core.spec.projects import PATH_PATTERN
from iris_core.states import (
    DeploymentLifecycle,
    JobState,
    SessionStatus,
    SliceStatus,
    TaskState,
    WorkerState,
    display_name,
)
from iris_core.views.jobs import JOB_ORDERS, JOBS_ORDERED, NEWEST_FIRST

MAX_LIMIT = 500
DEFAULT_LIMIT = 100
JOB_STATES = tuple(display_name(state) for state in JobState if state)
TASK_STATES = tuple(display_name(state) for state in TaskState if state)
SESSION_STATES = tuple(status.value.lower() for status in SessionStatus)
WORKER_STATES = tuple(state.value for state in WorkerState)
DEPLOYMENT_STATES = tuple(status.value for status in DeploymentLifecycle)
SLICE_STATES = tuple(status.value for status in SliceStatus)
USAGE_BY = ("user", "day", "label", "job", "project", "pool")
_LENGTH = MAX_LEVELS * (MAX_COMPONENT + 1)
"""Of the longest name of a job; other names are shorter."""


def about(
    text: str, *, one_of: Iterable[str] = (), example: str = "", hint: str = "", **limits: Any
) -> Meta:
    """The description of a parameter of HTTP. ``one_of`` is checked by the gateway only, so that a
    listing by a state that a replica does not know yet is empty there. ``hint``: what a refusal
        says beside the value.
    """
    schema: dict[str, Any] = {"enum": list(one_of)} if one_of else {}
    schema |= {"x-hint": hint} if hint else {}
    return Meta(
        description=text,
        examples=[example] if example else None,
        extra_json_schema=schema,
        **limits,
    )


def _view_of(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Query")).lower()


class ViewQuery(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="view",
    tag=_view_of,
):
    """The base of all.

    Attributes:
        for_tasks: the token of a task may ask it, about its own subtree.
    """

    for_tasks: ClassVar[bool] = False


class PageQuery(ViewQuery, frozen=True, kw_only=True):
    """The base of those that list."""

    limit: Annotated[int, about("Maximum number of items.", ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT
    cursor: Annotated[
        str,
        about("`next_cursor` of the page before.", max_length=1024, pattern="^[A-Za-z0-9_=-]+$"),
    ] = ""


def view_name(kind: type[ViewQuery]) -> str:
    """The view's name on the wire."""
    return str(kind.__struct_config__.tag)


def arguments_of(query: ViewQuery) -> dict[str, Any]:
    """The fields that differ from their defaults, as plain values."""
    arguments: dict[str, Any] = msgspec.to_builtins(query)
    del arguments["view"]
    return arguments


ProjectName = Annotated[
    str,
    about(
        "Only what is in this project, or in one below it.",
        max_length=520,
        pattern=PATH_PATTERN,
        example="/research/nlp",
    ),
]
OwnerName = Annotated[str, about("Only what this user owns.", min_length=1, max_length=128)]


class JobsQuery(PageQuery, frozen=True):
    """Jobs, newest first or by ``order``. ``since_ms``: submitted since then."""

    state: Annotated[str, about("Only jobs in this state.", one_of=JOB_STATES)] = ""
    user: OwnerName = ""
    band: Annotated[str, about("Only jobs of this band.", one_of=BANDS)] = ""
    name_prefix: Annotated[
        str,
        about(
            "Only jobs whose name begins with this.",
            pattern="^/[A-Za-z0-9._/-]{0,1023}$",
            example="/train",
        ),
    ] = ""
    label: Annotated[
        str,
        about(
            "Only jobs with this label, `key=value`.",
            max_length=512,
            pattern="=",
            example="team=vision",
        ),
    ] = ""
    project: ProjectName = ""
    parent: Annotated[str, about("Only the jobs right below this one.")] = ""
    order: Annotated[
        str,
        about(
            "Ascending, or behind `-` descending. "
            f"Any but `{NEWEST_FIRST}` lists the newest {JOBS_ORDERED:,} jobs only.",
            one_of=JOB_ORDERS,
        ),
    ] = NEWEST_FIRST
    without_routes: Annotated[bool, about("No jobs that are routes of deployments.")] = False
    since_ms: int = 0


class NamedJobsQuery(PageQuery, frozen=True):
    """The jobs with these names and ids that there are, in their order."""

    names: tuple[str, ...] = ()


class JobQuery(ViewQuery, frozen=True):
    """One job."""

    for_tasks = True
    job: str = ""


class TreeQuery(ViewQuery, frozen=True):
    """A job and its descendants."""

    for_tasks = True
    job: str = ""


class TasksQuery(PageQuery, frozen=True):
    """The tasks of a job, by index."""

    for_tasks = True
    job: str = ""
    state: Annotated[str, about("Only tasks in this state.", one_of=TASK_STATES)] = ""
    retried: Annotated[
        bool, about("Only tasks of which an attempt ended and another followed, or follows.")
    ] = False


class TaskQuery(ViewQuery, frozen=True):
    """One task."""

    for_tasks = True
    task: str = ""


class TaskStatesQuery(ViewQuery, frozen=True):
    """The state of every task of a job."""

    job: str = ""


class AttemptsQuery(PageQuery, frozen=True):
    """The attempts of a task, by number."""

    for_tasks = True
    task: str = ""


class WhyQuery(ViewQuery, frozen=True):
    """Why a job waits, or with ``task`` why that does."""

    for_tasks = True
    job: str = ""
    task: str = ""


class HistoryQuery(PageQuery, frozen=True):
    """Decisions about a job, oldest first; with ``task`` about that one and its gang."""

    for_tasks = True
    job: str = ""
    task: str = ""


class LatestHistoryQuery(ViewQuery, frozen=True):
    """The newest ``count`` decisions about a job, oldest first, and how many there are."""

    job: str = ""
    count: int = DEFAULT_LIMIT


class SessionsQuery(PageQuery, frozen=True):
    """Sessions, newest job first; of one ``job``, or ``gangs`` only."""

    for_tasks = True
    job: str = ""
    status: Annotated[str, about("Only sessions in this status.", one_of=SESSION_STATES)] = ""
    gangs: bool = False


class SessionQuery(ViewQuery, frozen=True):
    """One session."""

    session: str = msgspec.field(default="", name="id")


class QueueQuery(PageQuery, frozen=True):
    """What is pending, in scheduling order."""


class GatedJobsQuery(PageQuery, frozen=True):
    """Jobs with tasks outside the queue, since they wait for a job, a time, a retry or a release;
    oldest first.
    """


class QueueHoldsQuery(PageQuery, frozen=True):
    """The holds on the queue, oldest first."""


class ClosedGateQuery(ViewQuery, frozen=True):
    """In which project a job of ``spec``, a `JobSpec` as JSON, would be, and what it would wait for
    besides capacity.
    """

    spec: str = ""


class WorkersQuery(PageQuery, frozen=True):
    """Workers by id."""

    state: Annotated[str, about("Only workers in this state.", one_of=WORKER_STATES)] = ""
    without_slice: bool = False


class WorkerQuery(ViewQuery, frozen=True):
    """One worker."""

    worker: str = msgspec.field(default="", name="id")


class SlicesQuery(PageQuery, frozen=True):
    """Groups of workers. ``job``: only those on whose hosts it has an open attempt."""

    job: str = ""


class QuotaQuery(ViewQuery, frozen=True):
    """A user's limits and usage."""

    user: str = ""


class QuotasQuery(PageQuery, frozen=True):
    """Users with a quota, by name."""


class UsersQuery(PageQuery, frozen=True):
    """Users with a job on record, by name."""


class OverviewQuery(ViewQuery, frozen=True):
    """Figures of the whole cluster."""


class LastHourQuery(ViewQuery, frozen=True):
    """What happened in the last hour; of one ``worker``, else of all."""

    worker: str = ""


class DemandQuery(ViewQuery, frozen=True):
    """Capacity that pending work lacks."""


class DeadLettersQuery(PageQuery, frozen=True):
    """Commands that failed with an internal error."""


class DeploymentsQuery(PageQuery, frozen=True):
    """Deployments, newest first."""

    status: Annotated[
        str,
        about(
            "Only deployments in this status; without it all but destroyed ones.",
            one_of=DEPLOYMENT_STATES,
        ),
    ] = ""
    user: OwnerName = ""


class DeploymentQuery(ViewQuery, frozen=True):
    """One deployment."""

    deployment: str = ""


class DeploymentRoutesQuery(PageQuery, frozen=True):
    """The routes of a deployment."""

    deployment: str = ""


class DeploymentHistoryQuery(PageQuery, frozen=True):
    """Decisions about a deployment and its routes, oldest first."""

    deployment: str = ""


class DeploymentRequestsQuery(ViewQuery, frozen=True):
    """The requests of a deployment in the last hour, by minute."""

    deployment: str = ""


class DeploymentWhyQuery(ViewQuery, frozen=True):
    """Why a deployment has its status."""

    deployment: str = ""


class PoolsQuery(PageQuery, frozen=True):
    """Pools, by name."""


class PoolQuery(ViewQuery, frozen=True):
    """One pool."""

    pool: str = ""


class PoolHistoryQuery(PageQuery, frozen=True):
    """The changes of the slices of a pool, newest first."""

    pool: str = ""


class PoolPlanQuery(ViewQuery, frozen=True):
    """What a pool of ``spec``, a `PoolSpec` as JSON, would do now."""

    spec: str = ""


class FleetQuery(ViewQuery, frozen=True):
    """All pools together."""


class FleetSlicesQuery(PageQuery, frozen=True):
    """Slices, newest first; without a ``status`` those that have not ended."""

    pool: Annotated[str, about("Only slices of this pool.", min_length=1, max_length=40)] = ""
    status: Annotated[str, about("Only slices in this status.", one_of=SLICE_STATES)] = ""


class FleetSliceQuery(ViewQuery, frozen=True):
    """One slice, by its name or its id; by name the newest one."""

    slice: str = ""


class ProjectsQuery(PageQuery, frozen=True):
    """Projects, by path: each right before those below it."""


class ProjectQuery(ViewQuery, frozen=True):
    """One project."""

    project: str = ""


class SharesQuery(PageQuery, frozen=True):
    """Shares of projects and of their users: each project, its users, and then those below it."""

    project: ProjectName = ""


class MembershipsQuery(ViewQuery, frozen=True):
    """What the caller is in each of these projects. ``groups``: the caller's, as its token says;
    None: those that are known.
    """

    projects: tuple[str, ...] = ()
    groups: tuple[str, ...] | None = None


class AuditQuery(PageQuery, frozen=True):
    """Commands that changed something, newest first."""

    by: Annotated[str, about("Only commands of this user.", min_length=1, max_length=_LENGTH)] = ""
    of: Annotated[
        str,
        about(
            "Only what was done to this job (or those above it), worker or deployment, or to what this user owns.",
            min_length=1,
            max_length=_LENGTH,
        ),
    ] = ""
    since_ms: Annotated[int, about("Only since this time, or not longer ago than this: `7d`.")] = 0


class StoredUsageQuery(PageQuery, frozen=True):
    """What is stored of each user's jobs, by name."""

    user: OwnerName = ""


class JobUsageQuery(ViewQuery, frozen=True):
    """What a job has held and used."""

    for_tasks = True
    job: str = ""


class UsageQuery(PageQuery, frozen=True):
    """What attempts have held and used, summed ``by`` something."""

    by: Annotated[
        str,
        about(
            "What is summed: each user's, day's (of UTC), job's, project's, or `label`'s, the label `project` of jobs; "
            "by `pool` each user's on its hosts, and what idled there.",
            one_of=USAGE_BY,
        ),
    ] = USAGE_BY[0]
    user: OwnerName = ""
    project: ProjectName = ""
    label: Annotated[
        str,
        about(
            "Only jobs with this label, `key=value`: `project`, or any with `by=job`.",
            max_length=512,
            pattern="=",
            example="project=vision",
        ),
    ] = ""
    since_ms: Annotated[
        int,
        about(
            "Only since the day of this time, or since that many days: `30d`. With `by=job`: jobs that ran."
        ),
    ] = 0
