"""How a deployment comes to have as many routes as it wants, and how it ends.

Status Transitions's handlers say SUCCESS or FAILURE and nothing is retried: a failure is judged against a limit of 0,
so its cell is the row's ``give_up``. Sources: docs/design/semantics.md#deployments-and-routes.
"""

from __future__ import annotations

from typing import TypeAlias

from iris_core.guard import guard
from iris_core.lifecycle import Rule, To
from iris_core.states import DeploymentLifecycle

D = DeploymentLifecycle
DeploymentRule: TypeAlias = Rule[DeploymentLifecycle, DeploymentLifecycle]

TERMINAL = frozenset({D.DESTROYED})
LIVE = frozenset({D.PENDING, D.CREATED, D.SCALING, D.READY, D.DEPLOYING})

CHECK_PENDING = DeploymentRule(
    name="CheckPendingDeployment", sources=frozenset({D.PENDING, D.CREATED}), success=To(D.SCALING)
)
SCALE = DeploymentRule(name="ScalingDeployment", sources=frozenset({D.SCALING}), success=To(D.READY))
CHECK_REPLICA = DeploymentRule(name="CheckReplicaDeployment", sources=frozenset({D.READY}), success=To(D.SCALING))
RECONCILE = DeploymentRule(name="ReconcileDeployment", sources=frozenset({D.READY}), give_up=To(D.SCALING))
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
    expired=To(D.READY),  # the new revision did not get healthy in time: the old one is kept
)
UPDATE = DeploymentRule(name="UpdateDeployment", sources=frozenset({D.SCALING, D.READY}), success=To(D.DEPLOYING))
DESTROY = DeploymentRule(name="DestroyDeployment", sources=LIVE, success=To(D.DESTROYING))

TABLE: tuple[DeploymentRule, ...] = (*HANDLERS, ROLL_OUT, UPDATE, DESTROY)
"""Status Transitions has DEPLOYING and gives it no owner, and no row for what people ask; the last three are those."""

WAYS_OUT: dict[DeploymentLifecycle, DeploymentRule] = {
    D.PENDING: CHECK_PENDING,
    D.CREATED: CHECK_PENDING,
    D.SCALING: SCALE,
    D.READY: RECONCILE,
    D.DEPLOYING: ROLL_OUT,
    D.DESTROYING: DESTROYING,
}

guard("deployment", DeploymentLifecycle, TERMINAL, TABLE, WAYS_OUT, clocked=frozenset({D.DEPLOYING}))
