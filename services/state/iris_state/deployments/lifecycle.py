"""The handlers of deployments: their claims and the changes that follow. Creates and ends routes.

Reads the ledger only. Source: docs/design/semantics.md#deployments-and-routes,
    docs/design/serving.md#update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from iris_core.states import DeploymentLifecycle, Outcome, RouteStatus
from iris_core.tables import deployment as table
from iris_core.tables.deployment import DeploymentRule
from iris_state.decide.judging import judgement
from iris_state.deployments import routes
from iris_state.policy import Policy
from iris_state.records.changes import DeploymentChanged, DeploymentMoved, RolledOut, RouteCreated
from iris_state.records.claims import Step
from iris_state.records.deployments import pacing, rollout
from iris_state.records.deployments.records import Deployment, Rollout
from iris_state.records.deployments.rollout import Member, RolloutProgress, Target
from iris_state.records.ledger import Ledger

D = DeploymentLifecycle


def steps(ledger: Ledger, policy: Policy, deployment: Deployment, now_ms: int) -> Iterator[Step]:
    """One round of the handler for the status of a deployment."""
    yield from _HANDLERS[deployment.status](ledger, policy, deployment, now_ms)


def judged(
    deployment: Deployment, rule: DeploymentRule, claimed: Outcome, reason: str = ""
) -> Iterator[DeploymentMoved]:
    """The change that a claim causes; none if the row has no cell for it."""
    found = judgement(rule, deployment.status, claimed, reason)
    if found is not None and found.target is not None:
        yield DeploymentMoved(
            deployment.number, found.target, rule.name, found.result, reason=found.reason
        )


def wanted(deployment: Deployment) -> Target:
    """The bounds for creating and ending routes now."""
    known = deployment.rollout
    new = None
    if deployment.status is D.DEPLOYING:
        new = deployment.live_of_revision() if known.paused else known.pause_after
    return rollout.target(deployment.spec.update, deployment.spec.replicas, new)


def is_paused(deployment: Deployment) -> bool:
    """Whether an update is paused: by its owner, or because ``pause_after`` new routes are live."""
    known = deployment.rollout
    if known.paused:
        return True
    if deployment.status is not D.DEPLOYING or known.pause_after is None:
        return False
    return (
        known.pause_after < deployment.spec.replicas
        and deployment.live_of_revision() >= known.pause_after
    )


def waits_for_room(ledger: Ledger, deployment: Deployment, members: list[Member]) -> bool:
    """Whether some new routes are not available yet and all of those are pending in the queue."""
    lacking = [
        member
        for member in members
        if member.is_new
        and not member.available
        and member.status in (RouteStatus.PROVISIONING, RouteStatus.DEGRADED)
    ]
    return bool(lacking) and all(
        routes.waits_for_room(ledger, deployment.routes[m.number]) for m in lacking
    )


# ── the handlers, by the status they answer for ───────────────────────────────────────────────────


def _check_pending(
    ledger: Ledger, policy: Policy, deployment: Deployment, now_ms: int
) -> Iterator[Step]:
    yield from judged(deployment, table.CHECK_PENDING, Outcome.SUCCESS)


def _scaling(ledger: Ledger, policy: Policy, deployment: Deployment, now_ms: int) -> Iterator[Step]:
    """Create missing routes and end surplus ones until the wanted number is reached."""
    yield from _plan(deployment, now_ms)
    if len(deployment.live()) == deployment.spec.replicas:
        yield from judged(deployment, table.SCALE, Outcome.SUCCESS)


def _ready(ledger: Ledger, policy: Policy, deployment: Deployment, now_ms: int) -> Iterator[Step]:
    """CheckReplicaDeployment compares the wanted number with the previous one, ReconcileDeployment
    with the routes.
    """
    live = len(deployment.live())
    replicas = deployment.spec.replicas
    if deployment.reached != replicas:
        yield from judged(
            deployment,
            table.CHECK_REPLICA,
            Outcome.SUCCESS,
            f"{replicas} routes are wanted, not {deployment.reached}",
        )
    elif live != replicas:
        reason = f"{live} routes live, {replicas} are wanted"
        yield from judged(deployment, table.RECONCILE, Outcome.FAILURE, reason)
    else:
        yield from _note_stable(deployment, now_ms)


def _note_stable(deployment: Deployment, now_ms: int) -> Iterator[Step]:
    """The first revision is stable when all of its routes are available."""
    known = deployment.rollout
    members = deployment.members(now_ms)
    if (
        known.stable != deployment.revision
        and members
        and rollout.is_complete(wanted(deployment), members)
    ):
        yield _rolled(deployment, stable=deployment.revision)


def _deploying(
    ledger: Ledger, policy: Policy, deployment: Deployment, now_ms: int
) -> Iterator[Step]:
    """Replace old routes by new ones within the bounds, until only new ones are left."""
    known = deployment.rollout
    before = known.progress or _begun(deployment, now_ms)
    members = deployment.members(now_ms)
    stands = is_paused(deployment) or waits_for_room(ledger, deployment, members)
    progress = rollout.advance(before, members, stands, now_ms)
    if progress != known.progress:
        yield _rolled(deployment, progress=progress)
    if rollout.is_complete(
        rollout.target(deployment.spec.update, deployment.spec.replicas), members
    ):
        yield _rolled(deployment, stable=deployment.revision, progress=None, pause_after=None)
        yield from judged(deployment, table.ROLL_OUT, Outcome.SUCCESS)
        return
    failure = rollout.failure(progress, deployment.spec.update.progress_deadline_s, now_ms)
    if failure and not deployment.rollout.failed:
        yield from _fail(deployment, failure, now_ms)
    else:
        yield from _plan(deployment, now_ms)


def _begun(deployment: Deployment, now_ms: int) -> RolloutProgress:
    return RolloutProgress(now_ms, old=len(deployment.live()) - deployment.live_of_revision())


def _fail(deployment: Deployment, failure: str, now_ms: int) -> Iterator[Step]:
    """An update has failed: roll back to the last complete revision, if there is one and
    ``rollback`` allows it.
    """
    known = deployment.rollout
    failed = msgspec.structs.replace(known, failed=deployment.revision, failure=failure)
    back = deployment.revisions.get(known.stable)
    if back is None or back.number == deployment.revision or not deployment.spec.update.rollback:
        yield RolledOut(deployment.number, failed)
        return
    reason = f"revision {deployment.revision} has failed: {failure}; back to revision {back.number}"
    spec = msgspec.structs.replace(deployment.spec, template=back.template, port=back.port)
    yield DeploymentChanged(deployment.number, spec, back.number, by_owner=False)
    begun = msgspec.structs.replace(
        failed,
        progress=_begun(deployment, now_ms),
        pacing=pacing.RESTED,
        paused=False,
        pause_after=None,
    )
    yield RolledOut(deployment.number, begun)
    yield from judged(deployment, table.ROLL_OUT, Outcome.FAILURE, reason)


def _destroying(
    ledger: Ledger, policy: Policy, deployment: Deployment, now_ms: int
) -> Iterator[Step]:
    """End every route. Routes that do not end in time end later; the name becomes free before
    that.
    """
    for route in deployment.held():
        yield from routes.end(deployment, route, f"{deployment.name} is deleted")
    left = len(deployment.held())
    if not left:
        yield from judged(deployment, table.DESTROYING, Outcome.SUCCESS)
    elif now_ms >= destroyed_at(policy, deployment):
        reason = f"{left} routes have not ended in time"
        yield from judged(deployment, table.DESTROYING, Outcome.FAILURE, reason)


def destroyed_at(policy: Policy, deployment: Deployment) -> int:
    """When a deployment is destroyed even if some of its routes have not ended, ms."""
    spec = deployment.spec
    return deployment.since_ms + int(
        (spec.settle_s + spec.grace_s + policy.terminating_timeout_s) * 1000
    )


def _destroyed(
    ledger: Ledger, policy: Policy, deployment: Deployment, now_ms: int
) -> Iterator[Step]:
    return iter(())


_HANDLERS: dict[
    DeploymentLifecycle, Callable[[Ledger, Policy, Deployment, int], Iterator[Step]]
] = {
    D.PENDING: _check_pending,
    D.CREATED: _check_pending,
    D.SCALING: _scaling,
    D.READY: _ready,
    D.DEPLOYING: _deploying,
    D.DESTROYING: _destroying,
    D.DESTROYED: _destroyed,
}


# ── routes come and go ────────────────────────────────────────────────────────────────────────────


def _plan(deployment: Deployment, now_ms: int) -> Iterator[Step]:
    """The next step of the rollout; after a failed start it creates one route at a time."""
    known = deployment.rollout
    members = deployment.members(now_ms)
    if known.pacing.failures and _has_recovered(deployment, now_ms):
        yield _rolled(deployment, pacing=pacing.RESTED)
    plan = rollout.plan(wanted(deployment), members)
    for number in plan.end:
        yield from routes.end(deployment, deployment.routes[number], routes.NOT_WANTED)
    create = plan.create
    restore = plan.restore
    if deployment.rollout.pacing.failures:
        if not pacing.may_create(deployment.rollout.pacing, now_ms) or is_trying(deployment):
            return
        create, restore = min(create, 1), min(restore, 1 - min(create, 1))
    for at in range(create + restore):
        revision = deployment.revision if at < create else known.stable
        if revision in deployment.revisions:
            yield RouteCreated(deployment.number, deployment.next_route, revision)


def _has_recovered(deployment: Deployment, now_ms: int) -> bool:
    """Whether a route has become available since the last one failed to start."""
    failed_ms = deployment.rollout.pacing.times[-1]
    wait_ms = deployment.min_ready_ms
    return any(
        route.is_available(wait_ms, now_ms) and route.ready_ms + wait_ms > failed_ms
        for route in deployment.held()
    )


def is_trying(deployment: Deployment) -> bool:
    """Whether some route is starting and has not become healthy yet."""
    return any(not route.healthy_ms for route in deployment.live())


def _rolled(deployment: Deployment, **fields: object) -> RolledOut:
    moved: Rollout = msgspec.structs.replace(deployment.rollout, **fields)
    return RolledOut(deployment.number, moved)


def clocks(policy: Policy, deployment: Deployment) -> Iterator[int]:
    """The times at which a claim about a deployment may change without an event, ms."""
    known = deployment.rollout
    if known.pacing.failures:
        yield known.pacing.retry_ms
    if deployment.status is D.DEPLOYING and known.progress is not None:
        fails_ms = rollout.fails_at(known.progress, deployment.spec.update.progress_deadline_s)
        if fails_ms is not None:
            yield fails_ms
    if deployment.status is D.DESTROYING:
        yield destroyed_at(policy, deployment)
