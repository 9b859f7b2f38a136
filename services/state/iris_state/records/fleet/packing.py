"""Waiting work, and what it needs of pools, as it was packed last. Unrecorded: each round of the
leader packs anew.

Source: docs/design/fleet.md#need.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from iris_core.spec.jobs import Constraint
from iris_core.spec.resources import ResourceRequest


class PendingWork(NamedTuple):
    """Waiting jobs that are alike, none of which fits on the hosts there are.

    Attributes:
        example: the job that is next in the queue.
        tasks: of all of the jobs together.
        size: of each job, as a gang: tasks that need a host each at once; 0: they are no gang.
        parts: groups of hosts of a gang that share ``group_by``.
    """

    example: str
    resources: ResourceRequest
    constraints: tuple[Constraint, ...] = ()
    tasks: int = 1
    jobs: int = 1
    size: int = 0
    parts: int = 1
    group_by: str = ""


class CoverFrom(NamedTuple):
    """A slice that waiting work will use: one that comes, by its name, or a new one of a pool."""

    pool: str
    slice: str = ""


@dataclass(slots=True)
class Unmet:
    """Waiting work that gets no slice, and each pool that could hold it with what stands in the
    way.
    """

    work: PendingWork
    tasks: int
    pools: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class FleetNeed:
    """What waiting work needs.

    Attributes:
        new: slices to make, by pool. used: names of coming slices that work will use.
        covered: for the example of each kind of work: what will hold it.
        unmet: what nothing will hold.
    """

    new: dict[str, int] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    covered: dict[str, CoverFrom] = field(default_factory=dict)
    unmet: list[Unmet] = field(default_factory=list)


class PackedWork(NamedTuple):
    """Waiting work, and what it needs."""

    work: list[PendingWork]
    need: FleetNeed
