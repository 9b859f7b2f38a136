"""The bodies of public events. Stable: fields are only added. See also: `views`, the objects of the
HTTP API.
"""

from __future__ import annotations

import msgspec

from iris_core.spec.notify import NotifyRule
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


class EventOfTask(CausedEvent, kw_only=True):
    """One about a task. ``job_id`` (``j35``) and ``task_id`` (``j35/42``) name them for good.
    ``user``: the owner of its job.
    """

    task: str
    attempt: int | None
    job: str
    cause: str | None
    exit_code: int | None
    worker: str | None
    job_id: str = ""
    task_id: str = ""
    user: str = ""


class TaskEvent(EventOfTask, kw_only=True):
    """Body of ``task.state.<state>``. ``job_id`` (``j35``) and ``task_id`` (``j35/42``) name them
    for good.

    ``signal``: what ended the attempt's process, left out when none did.
    """

    signal: int | msgspec.UnsetType = msgspec.UNSET


class NoticeEvent(EventOfTask, kw_only=True):
    """Body of ``task.notice.<reason>``: an attempt was told that it will be stopped.

    The state is that of the task, which did not change. ``deadline_ms``: until when nothing further
    is done to the attempt; null: it may go on.
    """

    reason: str
    deadline_ms: int | None


class EventOfJob(CausedEvent, kw_only=True):
    """One about a job. ``user``: its owner."""

    job: str
    cause: str | None
    job_id: str
    user: str = ""


class JobEvent(EventOfJob, kw_only=True):
    """Body of ``job.state.<state>``.

    ``notify``: of the first one, who is to be told of the job; left out when nobody is.
    ``project``: left out when it is the root.
    """

    notify: tuple[NotifyRule, ...] | msgspec.UnsetType = msgspec.UNSET
    project: str | msgspec.UnsetType = msgspec.UNSET


class AmendmentEvent(EventOfJob, kw_only=True):
    """Body of ``job.spec.amended``: a submitted job was changed, held or released.

    The state is that of the job, which did not change. ``changes``: in words, such as ``band
        production, was batch``.
    """

    changes: list[str]


class SessionEvent(EventOfJob, kw_only=True):
    """Body of ``session.state.<status>``."""

    session: str


class HoldEvent(CausedEvent, kw_only=True):
    """Body of ``queue.state.held`` and ``queue.state.released``: a hold on a part of the queue,
    which has no job.

    ``user``, ``band``, ``label``: what a job must have to be held; empty: anything.
    """

    hold: str
    user: str
    band: str
    label: str
    reason: str


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


class SliceEvent(CausedEvent, kw_only=True):
    """Body of ``fleet.slice.<status>``: a slice entered a status.

    ``slice``: its name, ``slice_id`` (``s17``) names it for good; ``id`` is the event's own wherever
    events are listed. ``detail``: what its provider said last. ``hosts``: the names of its hosts.
    """

    slice: str
    slice_id: str
    pool: str
    cause: str
    detail: str
    hosts: list[str]


class PoolEvent(CausedEvent, kw_only=True):
    """Body of ``fleet.pool.<state>``: a pool was set, removed, paused or resumed, found exhausted,
    has recovered, or was stopped. Of ``fleet.orphan.<state>`` too: what its provider lists without
    a record was adopted, or is deleted.
    """

    pool: str
    cause: str | None
    detail: str


class ProjectEvent(CausedEvent, kw_only=True):
    """Body of ``project.state.set`` and ``project.state.removed``. ``changes``: in words, such as
    ``members ada, lin, was ada``.
    """

    project: str
    changes: list[str]
