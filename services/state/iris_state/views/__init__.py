"""Views: the ledger's records as the objects of the HTTP API, encoded as JSON.

Reads only. One module per kind of object; each view is one line of `READS`. Source: docs/design/interfaces.md#http.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from iris_core import codec
from iris_core.errors import Code, Mistake, Refused
from iris_core.messages.gateway_state import AdminCommand, Caller, Query
from iris_state.commands import task_scope
from iris_state.deployments.records import Deployment
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger
from iris_state.views import deployments, privacy
from iris_state.views.cluster import audit, capacity, demand, hosts, users
from iris_state.views.cluster.users import quota_view
from iris_state.views.pages import found_job, found_task
from iris_state.views.work import jobs, queue, sessions, tasks


def refusal(detail: str, mistakes: Sequence[Mistake] = ()) -> bytes:
    """The body of an `Answer` with a refusal."""
    return codec.to_json({"detail": detail, "errors": list(mistakes)})


def job(ledger: Ledger, record: Job, caller: Caller) -> bytes:
    """The answer to a command about a job; with ``if_exists=keep`` it may be another user's."""
    return codec.to_json(privacy.shown(caller, jobs.job_view(ledger, record)))


def admitted(ledger: Ledger, record: Job, caller: Caller) -> bytes:
    """The answer to the submission that created a job."""
    view = jobs.job_view(ledger, record)
    view.warnings = capacity.warnings(ledger, record)
    return codec.to_json(privacy.shown(caller, view))


def deployment(ledger: Ledger, record: Deployment, caller: Caller) -> bytes:
    """The answer to a command about a deployment."""
    return codec.to_json(privacy.shown(caller, deployments.deployment_view(ledger, record)))


def admin(ledger: Ledger, command: AdminCommand) -> bytes:
    """The answer to an operator's command: its target as it is now."""
    if command.action == "set_quota":
        return codec.to_json(quota_view(ledger, command.target))
    if command.action == "forget":
        return codec.to_json({"id": command.target, "state": "forgotten"})
    return codec.to_json(hosts.worker_view(ledger, ledger.workers[command.target]))


def read(ledger: Ledger, query: Query) -> bytes:
    """Answer one query. Raises Refused."""
    if query.what not in READS and query.what not in OF_CALLER:
        raise Refused(Code.NOT_FOUND, f"there is no view {query.what}")
    task_scope.allowed_query(ledger, query)
    of_caller = OF_CALLER.get(query.what)
    view = of_caller(ledger, query) if of_caller is not None else READS[query.what](ledger, query.arguments)
    return codec.to_json(privacy.shown(query.caller, view))


READS: dict[str, Callable[[Ledger, dict[str, Any]], Any]] = {
    "jobs": jobs.jobs,
    "named_jobs": jobs.named_jobs,
    "job": lambda ledger, a: jobs.job_view(ledger, found_job(ledger, a)),
    "tasks": tasks.tasks,
    "task": lambda ledger, a: tasks.task_view(ledger, *found_task(ledger, a)),
    "task_states": tasks.task_states,
    "attempts": tasks.attempts,
    "tree": jobs.tree,
    "why": jobs.why,
    "history": jobs.history,
    "sessions": sessions.sessions,
    "session": sessions.session,
    "queue": queue.queue,
    "closed_gate": queue.closed_gate,
    "workers": hosts.workers,
    "worker": hosts.worker,
    "slices": hosts.slices,
    "quota": lambda ledger, a: quota_view(ledger, str(a.get("user", ""))),
    "quotas": users.quotas,
    "users": users.users,
    "overview": hosts.overview,
    "last_hour": hosts.last_hour,
    "demand": demand.demand,
    "dead_letters": hosts.dead_letters,
    "deployments": deployments.deployments,
    "deployment": lambda ledger, a: deployments.deployment_view(ledger, deployments.found_deployment(ledger, a)),
    "deployment_routes": deployments.routes,
    "deployment_history": deployments.history,
    "deployment_requests": deployments.requests,
    "deployment_why": deployments.why,
}

OF_CALLER: dict[str, Callable[[Ledger, Query], Any]] = {"audit": audit.audit}
"""Views of which every caller has another one."""
