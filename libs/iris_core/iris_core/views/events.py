"""The bodies of public events. Stable: fields are only added. See also: `views`, the objects of the HTTP API."""

from __future__ import annotations

import msgspec

from iris_core.views.jobs import View


class RecordEvent(View, kw_only=True):
    """What every event says: the state of a record, and the state before."""

    state: str
    previous: str | None
    at_ms: int
    seq: int


class CausedEvent(RecordEvent, kw_only=True):
    """One that a command may cause. ``by``: whose, as `ActorView.name`; left out without one."""

    by: str | msgspec.UnsetType = msgspec.UNSET


class TaskEvent(CausedEvent, kw_only=True):
    """Body of ``task.state.<state>``. ``job_id`` (``j35``) and ``task_id`` (``j35/42``) name them for good."""

    task: str
    attempt: int | None
    job: str
    cause: str | None
    exit_code: int | None
    worker: str | None
    job_id: str = ""
    task_id: str = ""


class JobEvent(CausedEvent, kw_only=True):
    """Body of ``job.state.<state>``."""

    job: str
    cause: str | None
    job_id: str = ""


class SessionEvent(CausedEvent, kw_only=True):
    """Body of ``session.state.<status>``."""

    session: str
    job: str
    cause: str | None
    job_id: str = ""


class DeploymentEvent(CausedEvent, kw_only=True):
    """Body of ``deployment.state.<status>``."""

    deployment: str
    revision: int


class RouteEvent(RecordEvent, kw_only=True):
    """Body of ``route.state.<status>``."""

    route: str
    deployment: str
    job: str
    revision: int
    worker: str | None
    reason: str | None
    job_id: str = ""
