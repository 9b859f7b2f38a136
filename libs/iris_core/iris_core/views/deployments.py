"""The objects of the HTTP API about deployments and their routes. See also: `views`, the others."""

from __future__ import annotations

from datetime import datetime

import msgspec

from iris_core.placement.reasons import Reason
from iris_core.spec.serving import DeploymentSpec
from iris_core.views.jobs import ActorView, View


class RouteView(View, kw_only=True):
    """One replica of a deployment. ``job`` runs it; ``detail``: of its last failed probe, or why it
    has ended.

    ``discovered``: it is in the discovery set. ``available``: it has also been healthy for
    ``min_ready_s``. ``requests_per_s``: over the last ten seconds, retries included.
    """

    id: str
    deployment: str
    job: str
    status: str
    revision: int
    worker: str | None
    address: str | None
    since: datetime | None
    created_at: datetime | None
    ready: bool = True
    available: bool = False
    discovered: bool = False
    detail: str | None = None
    pending_reason: Reason | None = None
    requests_per_s: float = 0.0
    job_id: str = ""


class ConditionView(View, kw_only=True):
    """A condition of a deployment for its owner: a code, and a sentence."""

    code: str
    message: str


class UpdateView(View, kw_only=True):
    """An update in progress: the numbers of live routes of the target revision, of available ones,
    and of live routes of other revisions.

    ``failed_starts``: new routes that failed to start. It fails when these are as many as
    ``failed_starts_allowed`` (null: it does not fail for that), or at ``gives_up_at`` unless it
    makes progress (null: its clock is stopped, or it goes back to a revision, which does not fail).
    """

    revision: int
    new: int
    available: int
    old: int
    paused: bool
    waiting_for: str | None
    progress_at: datetime | None
    falls_back_from: int | None = None
    failed_starts: int = 0
    failed_starts_allowed: int | None = None
    gives_up_at: datetime | None = None


class ScalingView(View, kw_only=True):
    """What the scaling rule of a deployment knows and has decided.

    ``load``: what is measured, null while that is not known. ``held``: why the number stays though
    the load wants another, or is not known. ``last``: the last change by the rule.
    """

    load: float | None
    held: str | None
    last: str | None
    last_at: datetime | None


class DeploymentView(View, kw_only=True):
    """A deployment.

    ``ready``: healthy routes that get requests. ``version``: compared with ``If-Match``.
    ``revision`` is the target revision, ``stable_revision`` the last complete one. A listing leaves
    out ``routes``. ``requests_per_s``: to it, refused ones included, over the last ten seconds.
        ``changed_by``: who gave the last command that changed something. ``warnings`` are only in
        the answer to a command.
    """

    id: str
    name: str
    status: str
    user: str
    revision: int
    stable_revision: int | None
    replicas: int
    ready: int
    available: int
    live: int
    version: int
    spec: DeploymentSpec
    revisions: list[int]
    created_at: datetime | None
    since: datetime | None
    update: UpdateView | None
    conditions: list[ConditionView]
    routes: list[RouteView] = msgspec.field(default_factory=list)
    scaling: ScalingView | None = None
    requests_per_s: float = 0.0
    changed_by: ActorView | None = None
    warnings: list[str] = msgspec.field(default_factory=list)
