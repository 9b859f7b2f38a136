"""Status table of deployments: scaling to the wanted number of routes, and deletion.

The handlers of Status Transitions report SUCCESS or FAILURE and nothing is retried: a failure is
judged against a limit of 0, so its cell is the row's ``give_up``, and the history shows it as
FAILURE.
Sources: docs/design/semantics.md#deployments-and-routes.
"""

from __future__ import annotations

from typing import TypeAlias

from iris_core.guard import guard
from iris_core.lifecycle import FAILS, SUCCEEDS, Rule, To
from iris_core.states import DeploymentLifecycle, SchedulingResult

D = DeploymentLifecycle
DeploymentRule: TypeAlias = Rule[DeploymentLifecycle, DeploymentLifecycle]

TERMINAL = frozenset({D.DESTROYED})
LIVE = frozenset({D.PENDING, D.CREATED, D.SCALING, D.READY, D.DEPLOYING})

CHECK_PENDING = DeploymentRule(
    name="CheckPendingDeployment",
    sources=frozenset({D.PENDING, D.CREATED}),
    outcomes=SUCCEEDS,
    success=To(D.SCALING),
)
SCALE = DeploymentRule(
    name="ScalingDeployment", sources=frozenset({D.SCALING}), outcomes=SUCCEEDS, success=To(D.READY)
)
CHECK_REPLICA = DeploymentRule(
    name="CheckReplicaDeployment",
    sources=frozenset({D.READY}),
    outcomes=SUCCEEDS,
    success=To(D.SCALING),
)
RECONCILE = DeploymentRule(
    name="ReconcileDeployment", sources=frozenset({D.READY}), outcomes=FAILS, give_up=To(D.SCALING)
)
DESTROYING = DeploymentRule(
    name="DestroyingDeployment",
    sources=frozenset({D.DESTROYING}),
    success=To(D.DESTROYED),
    give_up=To(D.DESTROYED),
)
HANDLERS: tuple[DeploymentRule, ...] = (CHECK_PENDING, SCALE, CHECK_REPLICA, RECONCILE, DESTROYING)
"""Status Transitions's five, in its order."""

ROLL_OUT = DeploymentRule(
    name="RollingDeployment",
    sources=frozenset({D.DEPLOYING}),
    success=To(D.READY),
    give_up=To(D.DEPLOYING),  # the new revision has failed: roll back to the last complete one
)
UPDATE = DeploymentRule(
    name="UpdateDeployment",
    sources=frozenset(
        {D.SCALING, D.READY, D.DEPLOYING}
    ),  # a further update during an update: the latest one applies
    outcomes=SUCCEEDS,
    success=To(D.DEPLOYING),
)
DESTROY = DeploymentRule(
    name="DestroyDeployment", sources=LIVE, outcomes=SUCCEEDS, success=To(D.DESTROYING)
)

TABLE: tuple[DeploymentRule, ...] = (*HANDLERS, ROLL_OUT, UPDATE, DESTROY)
"""The last three rows are additions: Status Transitions gives DEPLOYING no owner, and has no rows
for users' commands.
"""

RESULT_WORDS = {SchedulingResult.GIVE_UP: "FAILURE"}
"""The name of a result in a deployment's history, where Status Transitions uses another word."""

WAYS_OUT: dict[DeploymentLifecycle, DeploymentRule] = {
    D.PENDING: CHECK_PENDING,
    D.CREATED: CHECK_PENDING,
    D.SCALING: SCALE,
    D.READY: RECONCILE,
    D.DEPLOYING: ROLL_OUT,
    D.DESTROYING: DESTROYING,
}

guard("deployment", DeploymentLifecycle, TERMINAL, TABLE, ways_out=WAYS_OUT)
