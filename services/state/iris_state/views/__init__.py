"""Views: the ledger's records as the objects of the HTTP API, encoded as JSON.

Reads only. One module per kind of object; each view is one line of `READS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from iris_core import codec
from iris_core.admission.actions import DrainSlice, ForgetWorker, SetQuota
from iris_core.errors import Code, Mistake, Refused
from iris_core.messages.gateway_state import (
    AdminCommand,
    Caller,
    FleetCommand,
    HoldQueue,
    ProjectCommand,
    Query,
)
from iris_core.spec.projects import normal
from iris_core.states import PriorityBand
from iris_core.views import queries as q
from iris_core.views.jobs import JobView, Page
from iris_state.records.deployments.records import Deployment
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger
from iris_state.records.targets import (
    known_deployment,
    known_job,
    known_pool,
    known_project,
    known_slice,
    known_task,
    note_of_owner,
    resolved_query,
)
from iris_state.views import deployments, privacy, task_scope
from iris_state.views.cluster import (
    audit,
    capacity,
    demand,
    hosts,
    pools,
    projects,
    shares,
    stored,
    usage,
    users,
)
from iris_state.views.cluster.pool_reasons import with_pools
from iris_state.views.cluster.users import quota_view
from iris_state.views.pages import Pieces, finished, whole
from iris_state.views.work import jobs, queue, sessions, tasks, why
from iris_state.views.work.history import latest
from iris_state.views.work.notices import shortened_grace


def refusal(detail: str, mistakes: Sequence[Mistake] = ()) -> bytes:
    """The body of an `Answer` with a refusal."""
    return codec.to_json({"detail": detail, "errors": list(mistakes)})


def job(ledger: Ledger, record: Job, caller: Caller) -> bytes:
    """The answer to a command about a job; it may be another user's."""
    return codec.to_json(privacy.shown(caller, jobs.job_view(ledger, record)))


def admitted(ledger: Ledger, record: Job, caller: Caller) -> bytes:
    """The answer to the submission that created a job."""
    view = jobs.job_view(ledger, record)
    view.warnings = [*capacity.warnings(ledger, record), *jobs.dropped_gates(ledger, record)]
    view.warnings += shortened_grace(
        ledger.grace_limits,
        record.name,
        record.spec.grace_ms(0),
        may_be_preempted=record.band is not PriorityBand.PRODUCTION,
    )
    return codec.to_json(privacy.shown(caller, view))


def whole_job(ledger: Ledger, record: Job) -> JobView:
    """A job, with what it takes longer to find out."""
    view = jobs.job_view(ledger, record)
    view.limits = capacity.not_held(ledger, record)
    if view.pending_reason is not None:
        view.pending_reason = with_pools(ledger, record, view.pending_reason)
    limits = ledger.grace_limits
    found = ledger.route_for(record.number)
    asked_ms = (
        record.spec.grace_ms(limits.unstated_ms)
        if found is None
        else int(found[0].spec.grace_s * 1000)
    )
    view.grace_s = limits.of(asked_ms, None) / 1000
    return view


def kept(ledger: Ledger, record: Job, caller: Caller) -> bytes:
    """The answer to a submission that created none, for a job of this name lives."""
    view = jobs.job_view(ledger, record)
    before = f"{record.name} ({record.id}) was submitted before"
    view.warnings = [f"{before}; it goes on as it is, and nothing of this request is applied"]
    return codec.to_json(privacy.shown(caller, view))


def deployment(ledger: Ledger, record: Deployment, caller: Caller) -> bytes:
    """The answer to a command about a deployment."""
    view = deployments.deployment_view(ledger, record)
    asked_ms = int(record.spec.grace_s * 1000)
    view.warnings = shortened_grace(ledger.grace_limits, record.name, asked_ms)
    return codec.to_json(privacy.shown(caller, view))


def admin(ledger: Ledger, command: AdminCommand) -> bytes:
    """The answer to an operator's command: its target as it is now."""
    asked = command.asked
    if isinstance(asked, SetQuota):
        return codec.to_json(quota_view(ledger, command.target))
    if isinstance(asked, ForgetWorker):
        return codec.to_json({"id": command.target, "state": "forgotten"})
    return codec.to_json(hosts.worker_view(ledger, ledger.workers[command.target]))


def queue_hold(ledger: Ledger, command: HoldQueue) -> bytes:
    """The answer to a hold on the queue, or to its release."""
    if command.hold:
        return codec.to_json({"id": command.hold, "state": "released"})
    return codec.to_json(queue.hold_view(ledger, ledger.next_hold - 1))


def fleet_change(ledger: Ledger, command: FleetCommand) -> bytes:
    """The answer to a command about the fleet: its pool or slice as it is now."""
    if isinstance(command.asked, DrainSlice):
        return codec.to_json(pools.slice_view(ledger, known_slice(ledger, command.target)))
    pool = ledger.fleet.pools.get(command.target)
    if pool is None:
        return codec.to_json({"name": command.target, "state": "removed"})
    return codec.to_json(pools.pool_view(ledger, pool))


def project_change(ledger: Ledger, command: ProjectCommand, defaults: Mapping[str, str]) -> bytes:
    """The answer to a command about a project: as it is now. ``defaults``: the default of each user
    before.
    """
    path = normal(command.path)
    project = ledger.projects.find(path)
    if project is None:
        return codec.to_json({"path": path, "state": "removed"})
    view = projects.project_view(ledger, project)
    view.warnings += [
        f"{user} has this default now, and no more {defaults[user]}"
        for user in project.spec.default_for
        if defaults.get(user, path) != path
    ]
    return codec.to_json(view)


def read(ledger: Ledger, query: Query) -> Pieces[bytes]:
    """Answer one query, in pieces. Raises Refused."""
    kind = KINDS.get(query.what)
    if kind is None:
        raise Refused(Code.NOT_FOUND, f"there is no view {query.what}")
    given = {name: value for name, value in query.arguments.items() if value not in ("", None)}
    try:
        asked = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(Code.INVALID, f"the query of {query.what} is not valid: {error}") from None
    asked = resolved_query(ledger, asked, query.caller)
    task_scope.allowed_query(ledger, asked, query.caller)
    own = READS_OF_A_CALLER.get(kind)

    def view(asked: Any) -> Any:
        return READS[kind](ledger, asked) if own is None else own(ledger, asked, query.caller)

    def shown(found: Any) -> Any:
        """What the caller may see; the items of a page are encoded at once, for it may be long."""
        seen = privacy.shown(query.caller, found)
        if isinstance(seen, Page):
            seen.items = [msgspec.Raw(codec.to_json(item)) for item in seen.items]
        return seen

    if not isinstance(asked, q.PageQuery):
        return codec.to_json(shown((yield from finished(view(asked)))))
    return codec.to_json((yield from whole(view, asked, shown)))


def note_of(ledger: Ledger, query: Query) -> str:
    """What is to be said beside the answer to a query; empty: nothing."""
    named = query.arguments.get("job") or query.arguments.get("task")
    return note_of_owner(ledger, named, query.caller) if isinstance(named, str) else ""


READS_OF_A_CALLER: dict[type[q.ViewQuery], Callable[[Ledger, Any, Caller], Any]] = {
    q.AuditQuery: audit.audit,
    q.UsageQuery: usage.usage,
    q.JobUsageQuery: usage.job_usage,
    q.StoredUsageQuery: stored.stored_usage,
    q.ClosedGateQuery: queue.closed_gate,
    q.MembershipsQuery: projects.memberships,
    q.SharesQuery: shares.shares,
}
"""Those of which every caller has another one."""
READS: dict[type[q.ViewQuery], Callable[[Ledger, Any], Any]] = {
    q.JobsQuery: jobs.jobs,
    q.NamedJobsQuery: jobs.named_jobs,
    q.JobQuery: lambda ledger, query: whole_job(ledger, known_job(ledger, query.job)),
    q.TasksQuery: tasks.tasks,
    q.TaskQuery: lambda ledger, query: tasks.task_view(ledger, *known_task(ledger, query.task)),
    q.TaskStatesQuery: tasks.task_states,
    q.AttemptsQuery: tasks.attempts,
    q.TreeQuery: jobs.tree,
    q.WhyQuery: why.why,
    q.HistoryQuery: jobs.history,
    q.LatestHistoryQuery: lambda ledger, query: latest(known_job(ledger, query.job), query.count),
    q.SessionsQuery: sessions.sessions,
    q.SessionQuery: sessions.session,
    q.QueueQuery: queue.queue,
    q.GatedJobsQuery: queue.gated,
    q.QueueHoldsQuery: queue.holds,
    q.WorkersQuery: hosts.workers,
    q.WorkerQuery: hosts.worker,
    q.SlicesQuery: hosts.slices,
    q.QuotaQuery: lambda ledger, query: quota_view(ledger, query.user),
    q.QuotasQuery: users.quotas,
    q.UsersQuery: users.users,
    q.OverviewQuery: lambda ledger, _: hosts.overview(ledger),
    q.LastHourQuery: hosts.last_hour,
    q.DemandQuery: lambda ledger, _: demand.demand(ledger),
    q.PoolsQuery: pools.pools,
    q.PoolQuery: lambda ledger, query: pools.pool_view(ledger, known_pool(ledger, query.pool)),
    q.PoolHistoryQuery: pools.history,
    q.PoolPlanQuery: pools.plan,
    q.FleetQuery: lambda ledger, _: pools.fleet(ledger),
    q.FleetSlicesQuery: pools.slices,
    q.FleetSliceQuery: lambda ledger, query: pools.slice_view(
        ledger, known_slice(ledger, query.slice)
    ),
    q.ProjectsQuery: projects.projects,
    q.ProjectQuery: lambda ledger, query: projects.project_view(
        ledger, known_project(ledger, query.project)
    ),
    q.DeadLettersQuery: hosts.dead_letters,
    q.DeploymentsQuery: deployments.deployments,
    q.DeploymentQuery: lambda ledger, query: deployments.deployment_view(
        ledger, known_deployment(ledger, query.deployment)
    ),
    q.DeploymentRoutesQuery: deployments.routes,
    q.DeploymentHistoryQuery: deployments.history,
    q.DeploymentRequestsQuery: deployments.requests,
    q.DeploymentWhyQuery: deployments.why,
}
KINDS: dict[str, type[q.ViewQuery]] = {
    q.view_name(kind): kind for kind in (*READS_OF_A_CALLER, *READS)
}
"""The struct of each view, by its name on the wire."""
