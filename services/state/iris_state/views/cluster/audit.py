"""View of the audit: commands with their actors, newest first.

Admins read all of it; others what they did, and what was done to their own records.
"""

from __future__ import annotations

from iris_core.access.rights import Verb, may
from iris_core.messages.gateway_state import Caller
from iris_core.views.jobs import AuditView, Page, moment
from iris_core.views.queries import AuditQuery
from iris_state.records.audit import AuditEntry
from iris_state.records.changes import Audited
from iris_state.records.ledger import Ledger
from iris_state.views.actors import actor_view
from iris_state.views.pages import behind, page


def audit(ledger: Ledger, query: AuditQuery, caller: Caller) -> Page:
    """Commands ``by`` a user, done to ``of`` (a job, a worker, a deployment, or all that a user
    owns), since ``since_ms``.
    """
    names = _names(ledger, query.of, caller)

    def wanted(entry: AuditEntry) -> bool:
        done = entry.done
        if (
            not may_read(caller, done)
            or query.by not in ("", done.by.user)
            or entry.at_ms < query.since_ms
        ):
            return False
        return not query.of or not names.isdisjoint((done.record, done.name, done.owner))

    rows = ((entry.number, entry) for entry in ledger.audit.newest_first(behind(query.cursor)))
    return page(rows, _view, query, wanted)


def may_read(caller: Caller, done: Audited) -> bool:
    """Whether a caller has given this command, owns what it was done to, or is an admin."""
    owners = (done.by.user or None, done.owner or None)
    return any(may(caller, Verb.READ_AUDIT, owner) for owner in owners)


def _names(ledger: Ledger, of: str, caller: Caller) -> set[str]:
    """By what the audit knows a record: a job by its id and those above it, with which it is
    cancelled. Of jobs of one name the caller's own is meant.
    """
    job = ledger.job_of(caller.user, of) or ledger.find_job(of)
    if job is None:
        deployment = ledger.find_deployment(of)
        return {of} if deployment is None else {of, deployment.id}
    names = {of} if of == job.name else set()
    while job is not None:
        names.add(job.id)
        job = ledger.jobs.get(job.parent)
    return names


def _view(entry: AuditEntry) -> AuditView:
    done = entry.done
    by = actor_view(entry.done.by)
    assert by is not None, "every command has an actor"
    return AuditView(
        number=entry.number,
        at=moment(entry.at_ms),
        by=by,
        action=done.action,
        kind=done.kind,
        id=done.record,
        name=done.name,
        owner=done.owner or None,
        detail=done.detail,
        times=entry.times,
        first_at=moment(entry.first_ms or entry.at_ms),
    )
