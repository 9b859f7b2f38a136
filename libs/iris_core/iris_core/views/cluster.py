"""Objects of the HTTP API about the cluster: hosts, processes, and the capacity that waiting work
lacks.

See also: `views`, about work. Stable: fields are only added.
"""

from __future__ import annotations

from datetime import datetime

from iris_core.spec.jobs import Attribute
from iris_core.views.jobs import ActorView, View


class SliceDemand(View, kw_only=True):
    """TPU slices that are missing, of one variant and of one place (``constraints``), and what
    waits for them.
    """

    variant: str
    constraints: list[str]
    slices: int
    hosts: int
    chips: int
    tasks: int
    jobs: int
    oldest_submitted_at: datetime | None


class HostDemand(View, kw_only=True):
    """Hosts of one shape that are missing, and what waits for them. ``attributes``: those that jobs
    ask about.
    """

    shape: dict[str, int]
    attributes: dict[str, Attribute]
    hosts: int
    tasks: int
    jobs: int
    oldest_submitted_at: datetime | None


class UnsatisfiableDemand(View, kw_only=True):
    """What no known host could hold, even an empty one, and the conditions that rule them out."""

    constraints: list[str]
    tasks: int
    jobs: int
    example: str
    oldest_submitted_at: datetime | None


class DemandView(View, kw_only=True):
    """Capacity that pending work lacks. ``not_counted``: tasks that wait for something else, by
    reason.

    ``truncated``: more jobs wait than were looked at.
    """

    slices: list[SliceDemand]
    hosts: list[HostDemand]
    unsatisfiable: list[UnsatisfiableDemand]
    not_counted: dict[str, int]
    truncated: bool


class WorkerView(View, kw_only=True):
    """A host with the first of the ``task_count`` attempts that are open on it.

    ``tasks``: their tasks by name, ``task_ids``: by id. ``version``: of its worker.
    ``last_heartbeat_at``: of a host that is LOST, when it was declared so. ``clock_ahead_ms``: its
    clock less the state service's when its last heartbeat arrived.
    ``by``: who has drained it, or marked it lost. ``warnings``: what of its configuration does not
    agree with the host. ``pool``, ``slice``: of a host of the fleet, by their names; empty: of none.
    ``given_up``: its slice is being deleted, and it goes with it.
    """

    id: str
    state: str
    attributes: dict[str, Attribute]
    total: dict[str, int]
    committed: dict[str, int]
    tasks: list[str]
    building: int
    last_heartbeat_at: datetime | None
    detail: str = ""
    task_count: int = 0
    registered_at: datetime | None = None
    version: str = ""
    clock_ahead_ms: int = 0
    task_ids: list[str] = []  # noqa: RUF012 - msgspec copies a default that is empty
    by: ActorView | None = None
    warnings: dict[str, str] = {}  # noqa: RUF012 - as above
    pool: str = ""
    slice: str = ""
    given_up: bool = False


class ProcessView(View, kw_only=True):
    """A process of a service. ``silent_s``: seconds since it answered last, 0 while it answers.

    ``tokens``: of a gateway: the same at all that accept the same tokens of a token_file; "none"
    without one. ``clock_ahead_s``: its clock less that of the gateway that was asked, None where
    it does not tell; an answer that was late makes it too small by at most a second.
    ``certificates``: by the path of each certificate of the process, when it expires.
    ``times_ahead_s``: of a state service: its times of records less its own clock, which was set
    when they differ.
    """

    service: str
    id: str
    version: str
    host: str
    pid: int
    started_at: datetime | None
    silent_s: float = 0.0
    tokens: str = ""
    clock_ahead_s: float | None = None
    certificates: dict[str, datetime] = {}  # noqa: RUF012 - msgspec copies a default that is empty
    times_ahead_s: float | None = None
