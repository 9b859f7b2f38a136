"""Public facts that are no change of a task's, job's or session's state, and the union of all.
Types only.

`effects.outbox` makes the events, one for each of these.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from iris_core.access.actor import Actor
from iris_core.messages.state_worker import GivenNotice
from iris_state.records.deployments.records import DeploymentFact
from iris_state.records.entities import Attempt, Fact, Job
from iris_state.records.queue_holds import QueueHold


class AmendmentFact(msgspec.Struct, frozen=True, gc=False):
    """A submitted job was changed. ``state``: of the job; ``changes``: in words."""

    job: Job
    state: str
    changes: tuple[str, ...]
    at_ms: int
    by: Actor | None = None
    entity: str = "job"
    tasks: int = 1


class HoldFact(msgspec.Struct, frozen=True, gc=False):
    """A hold on the queue began, or ended."""

    hold: QueueHold
    state: str
    previous: str | None
    at_ms: int
    by: Actor | None = None
    entity: str = "queue"
    tasks: int = 1


class NoticeFact(msgspec.Struct, frozen=True, gc=False):
    """An attempt was given a notice. ``state``: of its task."""

    job: Job
    task: int
    attempt: Attempt
    state: str
    notice: GivenNotice
    at_ms: int
    entity: str = "notice"
    tasks: int = 1


class SliceFact(msgspec.Struct, frozen=True, gc=False):
    """A slice entered a status."""

    name: str
    id: str
    pool: str
    state: str
    previous: str | None
    cause: str
    detail: str
    hosts: tuple[str, ...]
    at_ms: int
    by: Actor | None = None
    entity: str = "fleet"
    tasks: int = 1


class PoolFact(msgspec.Struct, frozen=True, gc=False):
    """Something happened to a pool, or to what its provider lists without a record, an orphan:
    ``state`` says what, ``kind`` to which of them.
    """

    pool: str
    state: str
    cause: str | None
    detail: str
    at_ms: int
    by: Actor | None = None
    kind: str = "pool"
    entity: str = "fleet"
    tasks: int = 1


class ProjectFact(msgspec.Struct, frozen=True, gc=False):
    """A project was set or removed. ``changes``: in words."""

    path: str
    state: str
    changes: tuple[str, ...]
    at_ms: int
    by: Actor | None = None
    entity: str = "project"
    tasks: int = 1


PublicFact: TypeAlias = (
    Fact
    | DeploymentFact
    | AmendmentFact
    | HoldFact
    | NoticeFact
    | SliceFact
    | PoolFact
    | ProjectFact
)
