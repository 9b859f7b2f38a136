"""Objects of the HTTP API about the fleet: pools, slices, and what a pool would do.

See also: `views`, about work. Stable: fields are only added.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from iris_core.spec.jobs import Attribute
from iris_core.views.jobs import ActorView, View


class SliceCountView(View, kw_only=True):
    """How many slices of a pool are in each status in which its provider may have them."""

    requested: int = 0
    creating: int = 0
    ready: int = 0
    draining: int = 0
    deleting: int = 0


class ReservationView(View, kw_only=True):
    """Capacity that was bought in advance, which pools share by its name."""

    name: str
    chips: int


class PoolView(View, kw_only=True):
    """A pool: its specification, and how it goes.

    Attributes:
        state: ok, paused, exhausted or stopped. reason: why it is not ok, and since: since when.
            until: when it tries again; None: it does not by itself, or need not.
        idle: slices without work. idle_since: since when the one without work for longest is.
            need: slices that it would still make for waiting work.
        boot_p50_s, boot_p90_s: from request to ready, of the newest slices; None before three.
        cost_per_hour: of its present slices.
        only: device or any; empty: device where its hosts have one, else any.
        version: grows with every change by a person. by: who has made the last one.
        removing: it goes with its last slice.
    """

    name: str
    provider: str
    options: dict[str, str | int | float | bool]
    hosts: int
    resources: dict[str, int]
    attributes: dict[str, Attribute]
    capacity: str
    min: int
    max: int
    buffer: int
    priority: int
    price: float
    idle_s: float
    boot_timeout_s: float
    create_rate: int
    delete_rate: int
    reservation: ReservationView | None
    only: str
    paused: bool
    state: str
    reason: str
    since: datetime | None = None
    until: datetime | None
    slices: SliceCountView
    idle: int
    idle_since: datetime | None = None
    need: int
    boot_p50_s: float | None
    boot_p90_s: float | None
    cost_per_hour: float
    warnings: list[str]
    version: int
    by: ActorView | None
    removing: bool


class SliceHostView(View, kw_only=True):
    """One host of a slice. ``state``: missing, healthy, degraded, draining, lost or mismatch.

    ``differs``: how it falls short of its pool, as one clause for each resource
    or attribute.
    """

    name: str
    state: str
    differs: list[str]


class SliceStepView(View, kw_only=True):
    """One change of a slice's status. ``was``: null of its request."""

    at: datetime | None
    was: str | None = msgspec.field(name="from")
    to: str
    cause: str
    by: ActorView | None


class SliceView(View, kw_only=True):
    """A slice: what a provider makes and deletes at once.

    Attributes:
        id: names it for good. name: of its slot, which a later slice has too.
        since: in its status. detail: what its provider said last.
        idle_since: since when it is ready without work. deadline_at: it is deleted then.
        cost: so far. outdated: its pool was changed since. overdue: its deletion takes too long.
    """

    id: str
    name: str
    pool: str
    status: str
    since: datetime | None
    cause: str
    detail: str
    hosts: list[SliceHostView]
    requested_at: datetime | None
    ready_at: datetime | None
    idle_since: datetime | None
    deadline_at: datetime | None
    cost: float
    outdated: bool
    overdue: bool
    steps: list[SliceStepView]


class PoolChangeView(View, kw_only=True):
    """One change of a slice of a pool, in the history of that pool. ``id``, ``slice``: which."""

    at: datetime | None
    slice: str
    id: str
    was: str | None = msgspec.field(name="from")
    to: str
    cause: str
    detail: str
    by: ActorView | None


class PoolPlanView(View, kw_only=True):
    """What a pool would do now: slices it would make and give up, waiting tasks that new ones would
    hold, and waiting tasks that are left over.
    """

    create: int
    delete: int
    tasks: int
    left: int


class PoolObstacleView(View, kw_only=True):
    """Why a pool that could hold waiting work makes nothing for it. ``code``: as in `why`."""

    pool: str
    code: str
    message: str
    until: datetime | None


class UnmetView(View, kw_only=True):
    """Waiting work for which no slice comes: so many tasks like those of ``example``."""

    example: str
    tasks: int
    pools: list[PoolObstacleView]


class FleetView(View, kw_only=True):
    """All pools together.

    Attributes:
        need: slices that would still be made. orphans: what providers list without a record.
        listed_at: when a provider was last listed; None: not since this leader began.
        dry_run: what is decided is not done.
        unmet: waiting work for which no slice comes. changes: the newest ones.
    """

    pools: list[PoolView]
    slices: SliceCountView
    idle: int
    need: int
    cost_per_hour: float
    orphans: int
    listed_at: datetime | None
    dry_run: bool
    unmet: list[UnmetView]
    changes: list[PoolChangeView]
