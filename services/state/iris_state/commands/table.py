"""Every kind of command, as one table: what it does, what its answer is, what the audit says of it,
and what the token of a task may do with it.

A new command is a struct in `iris_core.messages.gateway_state`, its subject in
`iris_core.subjects`, a row here, and an endpoint of the gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

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
from iris_core.spec.projects import normal
from iris_state import views
from iris_state.commands import amend, audited, execute, growth
from iris_state.commands.deployments import on_deploy
from iris_state.commands.fleet import on_fleet
from iris_state.commands.projects import on_project
from iris_state.commands.queue_holds import on_hold_queue
from iris_state.policy import Policy
from iris_state.records import targets
from iris_state.records.changes import Audited
from iris_state.records.claims import Step
from iris_state.records.ledger import Ledger
from iris_state.views import task_scope

StatusAndBody = tuple[str, bytes]
"""The status of an answer, and its body or the id of the record that it shows."""


class RoundOfCommand(Protocol):
    """What a command is executed on: the round of the machine."""

    ledger: Ledger
    policy: Policy

    @property
    def now_ms(self) -> int: ...

    def take(self, happenings: Iterable[Step]) -> None: ...

    def settle(self) -> None: ...

    def reconcile(self, number: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandKind:
    """What the state service does with one kind of command.

    Attributes:
        execute: carries it out, and returns its answer. Raises Refused.
        audit: what the audit says of it, before it is executed; None: nothing.
        scope: what the token of a task may do with it; None: nothing.
        target: its field that names a job or a task; empty: none.
    """

    execute: Callable[[RoundOfCommand, Any], StatusAndBody]
    audit: Callable[[Ledger, Any], Audited | None]
    scope: task_scope.Scope | None = None
    target: str = ""


def _submit(round_: RoundOfCommand, command: SubmitJob) -> StatusAndBody:
    ledger = round_.ledger
    before = execute.earlier(ledger, command)
    if before is not None:
        return "replayed", before.id.encode()
    user = execute.owner(ledger, command)
    live = ledger.job_of(user, command.spec.name)
    if command.if_exists == "keep" and live is not None and not live.is_terminal:
        execute.check_may_act_for(command.caller, user, "submit a job")
        return "ok", live.id.encode()
    for step in execute.on_submit(ledger, command, round_.now_ms):
        round_.take([step])
        round_.settle()
    return "created", ledger.jobs[ledger.next_number - 1].id.encode()


def _rerun(round_: RoundOfCommand, command: RerunJob) -> StatusAndBody:
    return _submit(round_, execute.rerun_of(round_.ledger, command))


def _cancel(round_: RoundOfCommand, command: CancelJob) -> StatusAndBody:
    round_.take(execute.on_cancel(round_.ledger, command))
    round_.settle()
    job, _ = targets.known_target(round_.ledger, command.job)
    return "accepted", job.id.encode()


def _requeue(round_: RoundOfCommand, command: RequeueTasks) -> StatusAndBody:
    job, index = targets.known_target(round_.ledger, command.target)
    round_.take(execute.on_requeue(round_.ledger, job, index, command))
    round_.settle()
    return "accepted", job.id.encode()


def _amend(round_: RoundOfCommand, command: AmendJob) -> StatusAndBody:
    round_.take(amend.on_amend(round_.ledger, command, round_.now_ms))
    round_.settle()
    return "accepted", targets.known_job(round_.ledger, command.job).id.encode()


def _grow(round_: RoundOfCommand, command: GrowJob) -> StatusAndBody:
    round_.take(growth.on_grow(round_.ledger, command))
    round_.settle()
    return "accepted", targets.known_job(round_.ledger, command.job).id.encode()


def _hold_queue(round_: RoundOfCommand, command: HoldQueue) -> StatusAndBody:
    round_.take(on_hold_queue(round_.ledger, command))
    return "accepted", views.queue_hold(round_.ledger, command)


def _administer(round_: RoundOfCommand, command: AdminCommand) -> StatusAndBody:
    round_.take(execute.on_admin(round_.ledger, command))
    return "accepted", views.admin(round_.ledger, command)


def _deploy(round_: RoundOfCommand, command: DeployCommand) -> StatusAndBody:
    round_.take(on_deploy(round_.ledger, round_.policy, command))
    round_.settle()
    deployment = targets.known_deployment(round_.ledger, command.name)
    round_.reconcile(deployment.number)
    return "created" if command.action == "create" else "accepted", deployment.id.encode()


def _change_fleet(round_: RoundOfCommand, command: FleetCommand) -> StatusAndBody:
    ledger = round_.ledger
    is_new = command.action == "set" and command.target not in ledger.fleet.pools
    round_.take(on_fleet(ledger, command, round_.now_ms))
    round_.settle()
    done = "created" if is_new else "accepted" if command.drain else "ok"
    return done, views.fleet_change(ledger, command)


def _change_project(round_: RoundOfCommand, command: ProjectCommand) -> StatusAndBody:
    ledger = round_.ledger
    before = dict(ledger.projects.default_of)
    is_new = ledger.projects.find(normal(command.path)) is None
    round_.take(on_project(ledger, command))
    return "created" if is_new else "ok", views.project_change(ledger, command, before)


COMMANDS: Mapping[type[UserCommand], CommandKind] = {
    SubmitJob: CommandKind(
        execute=_submit,
        audit=audited.of_submission,
        scope=task_scope.submits,
    ),
    RerunJob: CommandKind(
        execute=_rerun,
        audit=audited.of_rerun,
        scope=task_scope.reruns_below,
        target="job",
    ),
    CancelJob: CommandKind(
        execute=_cancel,
        audit=audited.of_cancel,
        scope=task_scope.reaches("job"),
        target="job",
    ),
    RequeueTasks: CommandKind(
        execute=_requeue,
        audit=audited.of_requeue,
        scope=task_scope.reaches("target"),
        target="target",
    ),
    AmendJob: CommandKind(
        execute=_amend,
        audit=audited.of_amendment,
        target="job",
    ),
    GrowJob: CommandKind(
        execute=_grow,
        audit=audited.of_growth,
        scope=task_scope.reaches("job"),
        target="job",
    ),
    HoldQueue: CommandKind(execute=_hold_queue, audit=audited.of_queue_hold),
    DeployCommand: CommandKind(execute=_deploy, audit=audited.of_deployment),
    FleetCommand: CommandKind(execute=_change_fleet, audit=audited.of_fleet),
    ProjectCommand: CommandKind(execute=_change_project, audit=audited.of_project),
    AdminCommand: CommandKind(execute=_administer, audit=audited.of_admin),
}
"""The row of each kind of command."""
