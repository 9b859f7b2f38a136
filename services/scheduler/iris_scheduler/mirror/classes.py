"""Scheduling classes: jobs with equal requests are examined once. One failed fit applies to the
whole class.

Source: docs/performance.md; docs/design/semantics.md#order for the order inside a class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from sortedcontainers import SortedList

from iris_core.messages.scheduler_state import JobRow
from iris_core.placement import constraints
from iris_core.placement.coscheduling import groupings
from iris_core.placement.priority import STEPS_BITS, PriorityKey, priority_key
from iris_core.spec.jobs import Constraint, Level
from iris_core.spec.resources import ResourceRequest
from iris_core.states import PriorityBand
from iris_scheduler.mirror.capacity import need_of

_TIME_BITS = 48
_JOB_BITS = 40
_TIME = (1 << _TIME_BITS) - 1
NO_JOB = (1 << _JOB_BITS) - 1
"""A job number that is never used; it sorts after all others."""


class ClassKey(NamedTuple):
    """What jobs of one class have in common; ``size`` is the number of tasks of a gang, 0 for other
    jobs.

    ``slices``, ``within``, ``levels``: of a gang, as in `JobRow`.
    """

    band: PriorityBand
    resources: ResourceRequest
    constraints: tuple[Constraint, ...]
    group_by: str
    size: int
    timeout_ms: int | None
    slices: int = 1
    within: str = ""
    levels: tuple[Level, ...] = ()


Shape = tuple[tuple[Constraint, ...], tuple[Constraint, ...], frozenset[str]]
"""What decides which workers a class may use: required, preferred, tolerated taints."""


Line = tuple[PriorityBand, str]
"""The jobs of one band that ask for one kind of device, empty for none."""

Amounts = tuple[int, ...]
"""What one task takes, all dimensions."""


def class_key(row: JobRow, size: int) -> ClassKey:
    if not row.group_by:
        return ClassKey(
            row.band, row.resources, row.constraints, "", size=0, timeout_ms=row.timeout_ms
        )
    return ClassKey(
        row.band,
        row.resources,
        row.constraints,
        row.group_by,
        size=size,
        timeout_ms=row.timeout_ms,
        slices=row.slices,
        within=row.within,
        levels=row.levels,
    )


Turn = tuple[PriorityBand, bool]
"""The classes of one band, of gangs or of single tasks; all of one are placed in turn."""


class Peers:
    """The classes of one turn that may use the same workers.

    Attributes:
        turn, shape: what they have in common. members: how many there are. waiting: those with a
            job that waits, in the order in which they began to.
    """

    __slots__ = ("members", "shape", "turn", "waiting")

    def __init__(self, turn: Turn, shape: Shape) -> None:
        self.turn = turn
        self.shape = shape
        self.members = 0
        self.waiting: dict[JobClass, None] = {}


@dataclass(frozen=True, slots=True, eq=False)
class UserLine:
    """The jobs of one user that wait in a class; ``waiting``: their places, see `place_of`."""

    kind: JobClass
    user: str
    waiting: SortedList

    @property
    def first(self) -> int:
        return int(self.waiting[0])


class JobClass:
    """One class and the jobs of it that wait.

    Attributes:
        size: how many tasks must be placed together; 0 when each is placed alone. slices: in how
            many groups.
        groupings: how workers may be grouped for a gang, best first; none for other jobs.
        line: where its jobs wait, if it is of single tasks.
        need: what one task takes. required, preferred: what its workers must and should satisfy.
        row: of its need in the matrix of all. peers: the classes that it is one of.
        waiting: the places of its waiting jobs, see `place_of`. first: the first of them, 0 without
            any.
    """

    __slots__ = (
        "_by_user",
        "_user",
        "band",
        "first",
        "groupings",
        "is_gang",
        "key",
        "line",
        "need",
        "peers",
        "preferred",
        "required",
        "row",
        "shape",
        "size",
        "slices",
        "tolerated",
        "waiting",
    )

    def __init__(self, key: ClassKey) -> None:
        self.key = key
        self.band = key.band
        self.size = key.size
        self.slices = key.slices
        self.is_gang = bool(key.group_by)
        levels = key.levels or (Level(key.group_by),)
        self.groupings = groupings(levels, key.within, key.resources) if self.is_gang else ()
        device = key.resources.device
        self.line: Line = (key.band, "" if device is None else device.kind)
        self.need = need_of(key.resources)
        self.row = -1
        self.required = constraints.required(key.constraints, key.resources)
        self.preferred = constraints.preferred(key.constraints)
        self.tolerated = constraints.tolerated(key.constraints, key.resources)
        self.shape: Shape = (self.required, self.preferred, self.tolerated)
        self.peers = Peers((self.band, self.is_gang), self.shape)
        self.waiting = SortedList()
        self.first = 0
        self._user = ""
        self._by_user: dict[str, SortedList] = {}

    def line_up(self, place: int, user: str) -> None:
        """A job of a user waits."""
        if not self.waiting:
            self._user = user
            self._by_user.clear()
        elif user != self._user and not self._by_user:
            self._by_user[self._user] = SortedList(self.waiting)
        self.waiting.add(place)
        if not self.first:
            self.peers.waiting[self] = None
        self.first = self.waiting[0]
        if self._by_user:
            if user not in self._by_user:
                self._by_user[user] = SortedList()
            self._by_user[user].add(place)

    def leave_line(self, place: int, user: str) -> None:
        """A job of a user waits no more, if it did."""
        self.waiting.discard(place)
        self.first = self.waiting[0] if self.waiting else 0
        if not self.first:
            self.peers.waiting.pop(self, None)
        own = self._by_user.get(user)
        if own is not None:
            own.discard(place)
            if not own:
                del self._by_user[user]

    def lines(self) -> Iterator[UserLine]:
        """Its waiting jobs by user; lists of single users are kept only once there are several."""
        if self._by_user:
            for user, waiting in self._by_user.items():
                yield UserLine(self, user, waiting)
        elif self.waiting:
            yield UserLine(self, self._user, self.waiting)


class SameAmounts:
    """The waiting jobs of single tasks that take the same amounts.

    Attributes:
        places: see `place_of`. first: the first of them.
    """

    __slots__ = ("first", "places")

    def __init__(self) -> None:
        self.places = SortedList()
        self.first = 0

    def add(self, place: int) -> None:
        self.places.add(place)
        self.first = self.places[0]

    def discard(self, place: int) -> None:
        self.places.discard(place)
        self.first = self.places[0] if self.places else 0


first_of: Callable[[JobClass | UserLine], int] = attrgetter("first")
"""The place of the first job that waits in a class, or in a line of one."""


def key_of(row: JobRow) -> PriorityKey:
    """The place of a job's first task in the queue."""
    return priority_key(
        row.band,
        row.depth,
        row.root_submitted_ms,
        row.submitted_ms,
        sequence=row.job,
        steps=row.steps,
    )


def place_of(row: JobRow) -> int:
    """The same key as one number, which sorts faster than a tuple and contains the job number."""
    depth_rank = max(0, 255 - row.depth)
    place = int(row.band) << 8 | depth_rank
    place = place << STEPS_BITS | row.steps
    place = place << _TIME_BITS | min(max(row.root_submitted_ms, 0), _TIME)
    place = place << _TIME_BITS | min(max(row.submitted_ms, 0), _TIME)
    return place << _JOB_BITS | row.job


def job_at(place: int) -> int:
    """The job number in a key of `place_of`."""
    return place & NO_JOB
