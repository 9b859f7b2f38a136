"""Executes commands on deployments: create, update, scale, roll back, pause, resume, delete. Raises
`Refused`.

Source: docs/design/semantics.md#deployments-and-routes, docs/design/serving.md#update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from iris_core.access.rights import Verb, may
from iris_core.admission import actions
from iris_core.admission.deployments import patched, validate_deployment
from iris_core.errors import Code, Invalid, Mistake, Refused
from iris_core.messages.gateway_state import Caller, DeployCommand
from iris_core.spec.projects import ROOT, normal
from iris_core.spec.serving import MAX_ROUTES, DeploymentSpec
from iris_core.states import Outcome
from iris_core.tables import deployment as table
from iris_state.commands.execute import ANONYMOUS, check_may_act_for
from iris_state.decide import quota
from iris_state.decide.projects import project_of
from iris_state.deployments import lifecycle
from iris_state.policy import Policy
from iris_state.records.changes import DeploymentChanged, DeploymentCreated, RolledOut
from iris_state.records.claims import Step
from iris_state.records.deployments.pacing import RESTED
from iris_state.records.deployments.records import Deployment, Revision, Rollout
from iris_state.records.ledger import Ledger
from iris_state.records.targets import known_deployment


def on_deploy(ledger: Ledger, policy: Policy, command: DeployCommand) -> Iterator[Step]:
    """Execute a command, or raise Refused (Invalid lists every mistake)."""
    asked = command.asked
    if isinstance(asked, actions.CreateDeployment):
        yield from _create(ledger, policy, command, asked)
        return
    deployment = known_deployment(ledger, command.name)
    if not may(command.caller, Verb.REPEAT, deployment.user):
        words = f"{deployment.name} belongs to {deployment.user}; only its owner or an admin may {command.action} it"
        raise Refused(Code.FORBIDDEN, words)
    if asked.version not in (0, deployment.version):
        words = f"{deployment.name} has been changed since: it is at version {deployment.version}, not {asked.version}"
        raise Refused(Code.CHANGED, words)
    if not asked.when_ended and deployment.status not in table.LIVE:
        raise Refused(Code.CONFLICT, f"{deployment.name} is {deployment.status.value}")
    steps = list(_ACTIONS[type(asked)](deployment, asked))
    for step in steps:
        if isinstance(step, DeploymentChanged):
            _check_band(ledger, deployment, step.spec, command.caller)
    yield from steps


def _check_band(
    ledger: Ledger, deployment: Deployment, spec: DeploymentSpec, caller: Caller
) -> None:
    """Raises Refused for another band than the present one that the owner may not ask for: its
    routes would be refused one by one.
    """
    before, after = (
        one.template.job(f"/{deployment.name}/r1-1", deployment.user, deployment.spec.project)
        for one in (deployment.spec, spec)
    )
    if after.band != before.band:
        quota.check_band(ledger, after, deployment.user, caller)


def _wanted(deployment: Deployment, asked: actions.UpdateDeployment) -> DeploymentSpec | None:
    return patched(deployment.spec, asked.patch) if asked.patch else asked.spec


def _create(
    ledger: Ledger, policy: Policy, command: DeployCommand, asked: actions.CreateDeployment
) -> Iterator[Step]:
    spec = _checked(asked, asked.spec, command.name)
    user = spec.user or command.caller.user or ANONYMOUS
    check_may_act_for(command.caller, user, "create a deployment")
    known = ledger.deployment_named(spec.name)
    if known is not None and not known.is_terminal:
        raise Refused(Code.CONFLICT, f"{known.name} exists and is {known.status.value}")
    _check_number(ledger, policy, user)
    taken = _job_of_that_name(ledger, spec.name, user)
    if taken:
        words = f"{taken} is a job that has not ended, and the names below /{spec.name} would be this deployment's"
        raise Refused(Code.CONFLICT, words)
    project = project_of(ledger, spec.project, user, command.caller)
    first = spec.template.job(f"/{spec.name}/r1-1", user, project)
    quota.check(ledger, first, user, None, caller=command.caller)
    spec = msgspec.structs.replace(
        spec, user=user, project=project, replicas=_bounded(spec, spec.replicas)
    )
    yield DeploymentCreated(
        ledger.next_deployment, spec, user, command.request_id, traceparent=command.traceparent
    )


def _check_number(ledger: Ledger, policy: Policy, user: str) -> None:
    """Raises Refused when there are as many deployments as may be, of a user or of all."""
    if len(ledger.deployments) - len(ledger.destroyed) >= policy.max_deployments:
        raise Refused(
            Code.OVER_QUOTA, f"there are {policy.max_deployments} deployments, which is the limit"
        )
    most = policy.max_deployments_of_user
    live = (one for one in ledger.deployments.values() if not one.is_terminal)
    if most and sum(one.user == user for one in live) >= most:
        words = f"{user} has {most} deployments, which is the limit for one user"
        raise Refused(Code.OVER_QUOTA, f"{words} (max_deployments_of_user): delete one first")


def _checked(
    asked: actions.DeploymentAction, spec: DeploymentSpec | None, name: str
) -> DeploymentSpec:
    if spec is None:
        raise Refused(Code.INVALID, f"{asked.action} needs a specification")
    if spec.name != name:
        raise Refused(
            Code.INVALID, f"the specification is of {spec.name[:80]!r}, not of {name[:80]!r}"
        )
    mistakes = validate_deployment(spec)
    if mistakes:
        raise Invalid(mistakes)
    return spec


def _bounded(spec: DeploymentSpec, replicas: int) -> int:
    """The number of routes, as far as a scaling rule allows it."""
    return replicas if spec.scaling is None else spec.scaling.bounded(replicas)


def _job_of_that_name(ledger: Ledger, name: str, user: str) -> str:
    """A live job of the same owner in the namespace of a new deployment; empty when there is
    none.
    """
    root = f"/{name}"
    for found in ledger.names.irange(root, f"{root}0"):  # type: ignore[attr-defined]
        job = ledger.job_of(user, found) if f"{found}/".startswith(f"{root}/") else None
        if job is not None and not job.is_terminal:
            return str(found)
    return ""


def _update(deployment: Deployment, asked: actions.UpdateDeployment) -> Iterator[Step]:
    """Set a new specification; another template or port creates a new revision, and an update to
    it.
    """
    spec = _checked(asked, _wanted(deployment, asked), deployment.name)
    replicas = spec.replicas
    if spec.scaling is not None and deployment.spec.scaling is not None:
        if asked.patch and replicas != deployment.spec.replicas:
            raise _scaled_by_rule(deployment)
        replicas = deployment.spec.replicas
    spec = msgspec.structs.replace(
        spec,
        user=deployment.user,
        project=_same_project(deployment, spec),
        replicas=_bounded(spec, replicas),
    )
    known = deployment.revisions[deployment.revision]
    if (spec.template, spec.port) == (known.template, known.port):
        yield from _of_revision(deployment, spec)
    else:
        yield from _to_revision(deployment, spec, deployment.last_revision + 1)


def _same_project(deployment: Deployment, spec: DeploymentSpec) -> str:
    """The project of a deployment, which stays. Raises Invalid for another one."""
    kept = deployment.spec.project
    if spec.project and normal(spec.project) != (kept or ROOT):
        message = f"{deployment.name} is in project {kept or ROOT}, and stays there"
        hint = "leave project out; delete the deployment and create it in another project"
        raise Invalid(
            [Mistake(pointer="/project", code="unchangeable", message=message, hint=hint)]
        )
    return kept


def _to_revision(deployment: Deployment, spec: DeploymentSpec, revision: int) -> Iterator[Step]:
    yield DeploymentChanged(deployment.number, spec, revision)
    known = deployment.rollout
    begun = Rollout(stable=known.stable, paused=known.paused, pause_after=spec.update.pause_after)
    yield RolledOut(deployment.number, begun)
    yield from lifecycle.judged(
        deployment, table.UPDATE, Outcome.SUCCESS, f"to revision {revision}"
    )


def _of_revision(deployment: Deployment, spec: DeploymentSpec) -> Iterator[Step]:
    """Set a specification of the same revision, and reset failures, so that the deployment tries
    again.
    """
    rested: Rollout = msgspec.structs.replace(deployment.rollout, pacing=RESTED)
    if spec != deployment.spec or rested != deployment.rollout:
        yield DeploymentChanged(deployment.number, spec, deployment.revision)
    if rested != deployment.rollout:
        yield RolledOut(deployment.number, rested)


def _scale(deployment: Deployment, asked: actions.ScaleDeployment) -> Iterator[Step]:
    if not 0 <= asked.replicas <= MAX_ROUTES:
        raise Refused(
            Code.INVALID, f"a deployment has 0 to {MAX_ROUTES} routes, not {asked.replicas}"
        )
    if deployment.spec.scaling is not None:
        raise _scaled_by_rule(deployment)
    spec = msgspec.structs.replace(deployment.spec, replicas=asked.replicas)
    yield from _of_revision(deployment, spec)


def _scaled_by_rule(deployment: Deployment) -> Refused:
    words = f"the number of routes of {deployment.name} follows its scaling rule; change the rule's minimum and maximum"
    return Refused(Code.CONFLICT, f"{words}, or remove the rule first")


def _roll_back(deployment: Deployment, asked: actions.RollBackDeployment) -> Iterator[Step]:
    revision = _earlier(deployment, asked.revision)
    spec = msgspec.structs.replace(deployment.spec, template=revision.template, port=revision.port)
    yield from _to_revision(deployment, spec, revision.number)


def _earlier(deployment: Deployment, number: int) -> Revision:
    """The revision to roll back to: a number, or for 0 the last complete one, else the newest other
    than the target.
    """
    missing = f"it has no revision {number}" if number else "no earlier one"
    if not number:
        stable = deployment.rollout.stable
        wanted = deployment.revision
        number = (
            stable
            if stable not in (0, wanted)
            else max((n for n in deployment.revisions if n < wanted), default=0)
        )
    revision = deployment.revisions.get(number)
    if revision is None:
        known = ", ".join(map(str, sorted(deployment.revisions)))
        raise Refused(Code.NOT_FOUND, f"{deployment.name} keeps the revisions {known}: {missing}")
    if number == deployment.revision:
        raise Refused(Code.CONFLICT, f"{deployment.name} is set to revision {number} already")
    return revision


def _pause(deployment: Deployment, _: actions.PauseDeployment) -> Iterator[Step]:
    if not deployment.rollout.paused:
        paused = msgspec.structs.replace(deployment.rollout, paused=True)
        yield RolledOut(deployment.number, paused, by_owner=True)


def _resume(deployment: Deployment, _: actions.ResumeDeployment) -> Iterator[Step]:
    """Continue an update, and retry after failed starts; no route is touched by that alone."""
    known = deployment.rollout
    resumed = msgspec.structs.replace(known, paused=False, pause_after=None, pacing=RESTED)
    if resumed != known:
        yield RolledOut(deployment.number, resumed, by_owner=True)


def _delete(deployment: Deployment, _: actions.DeleteDeployment) -> Iterator[Step]:
    yield from lifecycle.judged(deployment, table.DESTROY, Outcome.SUCCESS)


_ACTIONS: dict[type[actions.DeploymentAction], Callable[[Deployment, Any], Iterator[Step]]] = {
    actions.UpdateDeployment: _update,
    actions.ScaleDeployment: _scale,
    actions.RollBackDeployment: _roll_back,
    actions.PauseDeployment: _pause,
    actions.ResumeDeployment: _resume,
    actions.DeleteDeployment: _delete,
}
