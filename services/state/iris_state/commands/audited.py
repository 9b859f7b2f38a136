"""Describes commands for the audit: what each is done to, as of before it is executed.

A submission is its own record, which names its actor; it is in the audit when it replaces a live
job, or is made for somebody else. Source: docs/adr/0055-changes-record-their-actor.md.
"""

from __future__ import annotations

from typing import Any

from iris_core import codec
from iris_core.access.actor import actor_of
from iris_core.admission.actions import (
    CreateDeployment,
    DrainSlice,
    RemovePool,
    SetPool,
    SetProject,
    WorkerAction,
)
from iris_core.admission.amendments import changes_in_words, patched_job
from iris_core.limits import clipped
from iris_core.messages.gateway_state import (
    AdminCommand,
    AmendJob,
    CancelJob,
    DeployCommand,
    FleetCommand,
    GrowJob,
    HoldQueue,
    ProjectCommand,
    RequeueTasks,
    RerunJob,
    SubmitJob,
    UserCommand,
)
from iris_core.quota import QUOTA_LIMITS
from iris_core.spec import projects
from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import RESOURCE
from iris_core.states import PriorityBand, display_name
from iris_core.units import counted
from iris_state.commands.execute import ANONYMOUS, owner
from iris_state.records.changes import Audited
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger
from iris_state.records.projects_in_words import changes_in_words as changes_of_project
from iris_state.records.queue_holds import QueueHold


def _job(command: UserCommand, action: str, job: Job | None, detail: str) -> Audited | None:
    if job is None:
        return None
    return Audited(
        actor_of(command.caller),
        action,
        "job",
        job.id,
        name=job.name,
        owner=job.user,
        detail=clipped(detail),
    )


def _target(
    ledger: Ledger, command: UserCommand, action: str, target: str, reason: str
) -> Audited | None:
    """Of a job or a task."""
    task = ledger.find_task(target)
    job, which = (task[0], f"task {task[1]}") if task is not None else (ledger.find_job(target), "")
    return _job(command, action, job, ": ".join(filter(None, (which, reason))))


def of_cancel(ledger: Ledger, command: CancelJob) -> Audited | None:
    reason = ": ".join(filter(None, ("at once" if command.now else "", command.reason)))
    return _target(ledger, command, "cancel", command.job, reason=reason)


def of_rerun(ledger: Ledger, command: RerunJob) -> Audited | None:
    parts = [f"as j{ledger.next_number}", f"tasks {command.tasks}" if command.tasks else ""]
    parts += ["what did not succeed"] if command.failed_only else []
    parts += [
        f"{RESOURCE[name].word} {RESOURCE[name].unit.show(value)}"
        for name, value in command.resources.items()
    ]
    parts += [f"other variables: {', '.join(sorted(command.env))}"] if command.env else []
    return _job(command, "rerun", ledger.find_job(command.job), ", ".join(filter(None, parts)))


def of_amendment(ledger: Ledger, command: AmendJob) -> Audited | None:
    job = ledger.find_job(command.job)
    action = "change"
    if command.hold is not None:
        action = "hold" if command.hold else "release"
    parts = [command.reason, "what runs is stopped" if command.stop else ""]
    parts += ["waits for no other job"] if command.drop_after else []
    if job is not None and command.patch:
        parts += changes_in_words(job.spec, patched_job(job.spec, command.patch))
    return _job(command, action, job, "; ".join(filter(None, parts)))


def of_requeue(ledger: Ledger, command: RequeueTasks) -> Audited | None:
    return _target(ledger, command, "requeue", command.target, reason=command.reason)


def of_growth(ledger: Ledger, command: GrowJob) -> Audited | None:
    """As of a submission: of somebody else's job only."""
    job = ledger.find_job(command.job)
    if job is None or job.user == command.caller.user:
        return None
    what = f"{counted(command.count, 'call')} after {command.offset}" if command.count else ""
    return _job(
        command,
        "close" if command.close else "grow",
        job,
        ": ".join(filter(None, (what, command.reason))),
    )


def of_submission(ledger: Ledger, command: SubmitJob) -> Audited | None:
    user = owner(ledger, command)
    name = command.spec.name
    made = f"j{ledger.next_number}"
    job = ledger.job_of(user, name) if command.if_exists == "replace" else None
    if job is not None and not job.is_terminal:
        return _job(command, "replace", job, f"by {made}")
    if user == (command.caller.user or ANONYMOUS):
        return None
    return Audited(
        actor_of(command.caller), "submit", "job", made, name=name, owner=user, detail=f"for {user}"
    )


def of_admin(ledger: Ledger, command: AdminCommand) -> Audited:
    asked = command.asked
    target = command.target
    if isinstance(asked, WorkerAction):
        kind = "worker"
        user = ""
        detail = asked.reason
    else:
        kind = "user"
        user = target
        detail = ", ".join(
            _set_to(name, value) for name, value in sorted(command.arguments.items())
        )
    return Audited(
        actor_of(command.caller),
        asked.action,
        kind,
        target,
        name=target,
        owner=user,
        detail=clipped(detail),
    )


def _set_to(name: str, value: Any) -> str:
    """``max_running_cpu 0.5``, as the admin has set it."""
    unit = next((limit.unit for limit in QUOTA_LIMITS if limit.name == name), None)
    return f"{name} {unit.show(value) if unit is not None else display_name(PriorityBand(value))}"


def of_deployment(ledger: Ledger, command: DeployCommand) -> Audited | None:
    by = actor_of(command.caller)
    asked = command.asked
    if isinstance(asked, CreateDeployment):
        user = (
            (asked.spec.user if asked.spec is not None else "") or command.caller.user or ANONYMOUS
        )
        return Audited(
            by,
            asked.action,
            "deployment",
            f"d{ledger.next_deployment}",
            name=command.name,
            owner=user,
        )
    found = ledger.find_deployment(command.name)
    if found is None:
        return None
    detail = asked.detail.format(asked)
    return Audited(
        by, asked.action, "deployment", found.id, name=found.name, owner=found.user, detail=detail
    )


def of_queue_hold(ledger: Ledger, command: HoldQueue) -> Audited | None:
    wanted = QueueHold(ledger.next_hold, command.user, command.band, command.label)
    found = next((one for one in ledger.queue_holds.values() if one.id == command.hold), None)
    hold, action = (wanted, "hold") if not command.hold else (found, "release")
    if hold is None:
        return None
    by = actor_of(command.caller)
    detail = clipped(command.reason)
    return Audited(
        by, action, "queue", hold.id, name=clipped(hold.words), owner=hold.user, detail=detail
    )


def of_fleet(ledger: Ledger, command: FleetCommand) -> Audited | None:
    by = actor_of(command.caller)
    asked = command.asked
    details = [asked.reason]
    if isinstance(asked, DrainSlice):
        one = ledger.fleet.find(command.target)
        if one is None:
            return None
        if asked.deadline_s is not None:
            details.insert(0, f"within {asked.deadline_s:g} s")
        detail = clipped(": ".join(filter(None, details)))
        return Audited(by, "drain", "slice", one.id, name=one.name, owner="", detail=detail)
    pool = ledger.fleet.pools.get(command.target)
    if isinstance(asked, SetPool) and asked.spec is not None:
        details.insert(
            0, pool_changes_in_words(pool.spec if pool is not None else None, asked.spec)
        )
    elif pool is None:
        return None
    elif isinstance(asked, RemovePool) and asked.drain:
        details.insert(0, "with its last slice")
    name = clipped(command.target)
    detail = clipped("; ".join(filter(None, details)))
    return Audited(by, asked.action, "pool", name, name=name, owner="", detail=detail)


def of_project(ledger: Ledger, command: ProjectCommand) -> Audited:
    asked = command.asked
    path = projects.normal(command.path)
    known = ledger.projects.find(path)
    detail = ""
    if isinstance(asked, SetProject) and asked.spec is not None:
        before = known.spec if known is not None else projects.ProjectSpec()
        words = [*changes_of_project(before, asked.spec)]
        moved = [
            f"{user} had {ledger.projects.default_of[user]} as default"
            for user in asked.spec.default_for
            if ledger.projects.default_of.get(user, path) != path
        ]
        detail = "; ".join([*(["new"] if known is None else []), *words, *moved])
    return Audited(
        actor_of(command.caller),
        asked.action,
        "project",
        path,
        name=path,
        owner="",
        detail=clipped(detail),
    )


def pool_changes_in_words(before: PoolSpec | None, after: PoolSpec) -> str:
    """What another specification of a pool changes: ``max 8, was 4``."""
    if before is None:
        return f"new, of {after.provider}, max {after.max}"
    return ", ".join(
        f"{name} {_in_words(getattr(after, name))}, was {_in_words(getattr(before, name))}"
        for name in after.__struct_fields__
        if getattr(after, name) != getattr(before, name)
    )


def _in_words(value: Any) -> str:
    return value if isinstance(value, str) and value else codec.to_json(value).decode()
