"""Packs waiting work onto slices that are coming, and onto the fewest new ones. Pure.

Work goes to the room there is first, then to pools by priority, price and name. Tasks are packed
first fit; a gang takes whole slices of one pool or none. Source: docs/design/fleet.md#need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from iris_core.placement.constraints import TPU_NAME
from iris_core.placement.pools import is_eligible
from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import RESOURCES, Amount, times
from iris_state.records.fleet.packing import CoverFrom, FleetNeed, PendingWork, Unmet

FreeHosts = tuple[Amount, ...]
"""What is free on each host of a slice."""


@dataclass(slots=True)
class SliceGroup:
    """Slices of one specification that are free alike.

    ``names``: of those that are coming; empty for new ones, which have none yet.
    """

    spec: PoolSpec
    hosts: FreeHosts
    count: int
    names: list[str] = field(default_factory=list)

    def split(self, count: int) -> SliceGroup:
        """Take ``count`` of them out of the group."""
        taken = SliceGroup(self.spec, self.hosts, count, self.names[:count])
        self.count -= count
        self.names = self.names[count:]
        return taken


@dataclass(slots=True)
class Limit:
    """Something of which pools may take so much more: slots, chips of a reservation, money.

    ``obstacle``: what stands in the way when it is used up, as a code of `why`.
    """

    left: float
    obstacle: str


@dataclass(slots=True)
class PoolRoom:
    """What a pool can still make: within each limit, of which a slice takes so much. Pools may
    share limits. ``slots``: in which nothing is, lowest first.
    """

    spec: PoolSpec
    slots: list[int]
    limits: list[tuple[Limit, float]]

    @property
    def left(self) -> int:
        """Slices that it may still make."""
        return max(0, min(int(limit.left // each) for limit, each in self.limits))

    @property
    def obstacle(self) -> str:
        """What stands in the way of one more slice than it may make."""
        return min(self.limits, key=lambda found: found[0].left // found[1])[0].obstacle

    def take(self, count: int) -> None:
        for limit, each in self.limits:
            limit.left -= count * each


class AskedWork(NamedTuple):
    """One kind of waiting work, with what is read of it often. ``shape``: equal for work that may
    use the same hosts, whatever it takes.
    """

    work: PendingWork
    amount: Amount
    group_by: str
    shape: int


class Packing:
    """One pass over the waiting work.

    Args:
        coming: slices that are expected, or so new that the scheduler has not used them.
        rooms: the pools, in the order in which they are asked.
    """

    def __init__(self, coming: Iterable[SliceGroup], rooms: Sequence[PoolRoom]) -> None:
        self.need = FleetNeed()
        self._groups = list(coming)
        self._rooms = rooms
        self._eligible: dict[tuple[int, int], bool] = {}
        self._shapes: dict[object, int] = {}
        self._whole: dict[int, Amount] = {}

    def add(self, work: PendingWork) -> None:
        """Put one kind of work on slices."""
        group_by = "" if work.group_by == TPU_NAME else work.group_by
        shape = (work.constraints, work.resources.device, group_by)
        number = self._shapes.setdefault(shape, len(self._shapes))
        asked = AskedWork(work, work.resources.amount, group_by, number)
        if work.size:
            self._add_gangs(asked)
        else:
            self._add_tasks(asked)

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────

    def _add_tasks(self, asked: AskedWork) -> None:
        left = self._fill(self._groups, asked, asked.work.tasks)
        obstacles: dict[str, str] = {}
        for room in self._rooms:
            if not left:
                break
            if not self._could_hold(room.spec, asked):
                continue
            left = self._make_for_tasks(room, asked, left)
            if left:
                obstacles[room.spec.name] = room.obstacle
        if left:
            self.need.unmet.append(Unmet(work=asked.work, tasks=left, pools=obstacles))

    def _make_for_tasks(self, room: PoolRoom, asked: AskedWork, tasks: int) -> int:
        """Make as many slices as the tasks need and the pool may; returns what is left."""
        may_make = room.left
        if not may_make:
            return tasks
        each = room.spec.hosts * times(self._whole_of(room.spec), asked.amount)
        wanted = -(-tasks // each)
        group = self._make(room, min(wanted, may_make))
        return tasks if group is None else self._fill([group], asked, tasks)

    def _fill(self, groups: list[SliceGroup], asked: AskedWork, tasks: int) -> int:
        """Put tasks on the slices of some groups, one after the other; returns what is left."""
        amount = asked.amount
        for group in list(groups):
            if not tasks:
                break
            if not self._could_hold(group.spec, asked):
                continue
            each = sum(times(free, amount) for free in group.hosts)
            if not each:
                continue
            full = min(group.count, tasks // each)
            if full:
                self._use(group.split(full), asked, [times(free, amount) for free in group.hosts])
                tasks -= full * each
            if tasks and group.count:
                self._use(group.split(1), asked, _first_fit(group.hosts, amount, tasks))
                tasks -= min(tasks, each)
        self._drop_empty()
        return tasks

    # ── gangs ─────────────────────────────────────────────────────────────────────────────────────

    def _add_gangs(self, asked: AskedWork) -> None:
        work = asked.work
        for gang in range(work.jobs):
            obstacles = self._add_gang(asked)
            if obstacles is not None:
                tasks = work.size * (work.jobs - gang)
                self.need.unmet.append(Unmet(work=work, tasks=tasks, pools=obstacles))
                return

    def _add_gang(self, asked: AskedWork) -> dict[str, str] | None:
        """Put one gang on slices of one pool; None, or what stands in the way of each pool."""
        specs = {group.spec.name: group.spec for group in self._groups}
        for spec in specs.values():
            if self._could_hold(spec, asked) and self._seat(spec, asked, room=None):
                return None
        obstacles: dict[str, str] = {}
        for room in self._rooms:
            if self._could_hold(room.spec, asked):
                if self._seat(room.spec, asked, room):
                    return None
                obstacles[room.spec.name] = room.obstacle
        return obstacles

    def _seat(self, spec: PoolSpec, asked: AskedWork, room: PoolRoom | None) -> bool:
        """Seat a whole gang on slices of a pool, coming ones first, or nobody."""
        amount = asked.amount
        work = asked.work
        on_one_slice = work.group_by == TPU_NAME
        per_part = work.size // work.parts if on_one_slice else 1
        seats = work.parts if on_one_slice else work.size
        chosen: list[tuple[SliceGroup, int, int]] = []
        for group in self._groups:
            if group.spec.name != spec.name or not seats:
                continue
            fitting = sum(1 for free in group.hosts if amount.fits(free))
            each = fitting // per_part if not on_one_slice else int(fitting >= per_part)
            if each:
                slices = min(group.count, -(-seats // each))
                chosen.append((group, slices, min(seats, slices * each)))
                seats -= min(seats, slices * each)
        new = 0
        if seats:
            each = 1 if on_one_slice else spec.hosts
            fits = spec.hosts >= per_part and amount.fits(self._whole_of(spec))
            new = -(-seats // each) if fits else 0
            if room is None or not new or new > room.left:
                return False
        for group, slices, held in chosen:
            self._seat_on(group.split(slices), asked, held * per_part)
        if room is not None and new:
            made = self._make(room, new)
            assert made is not None
            self._seat_on(made.split(new), asked, seats * per_part)
        self._drop_empty()
        return True

    def _seat_on(self, group: SliceGroup, asked: AskedWork, tasks: int) -> None:
        """Put ``tasks`` on the hosts of whole slices, one on each host."""
        amount = asked.amount
        fitting = [int(amount.fits(free)) for free in group.hosts]
        each = sum(fitting)
        full = min(group.count, tasks // each)
        if full:
            self._use(group.split(full), asked, fitting)
        rest = tasks - full * each
        if rest and group.count:
            self._use(group.split(1), asked, _at_most(fitting, rest))
        if group.count:
            self._groups.append(group)

    # ── both ──────────────────────────────────────────────────────────────────────────────────────

    def _could_hold(self, spec: PoolSpec, asked: AskedWork) -> bool:
        """Whether an empty host of a slice could run a task of this work."""
        key = (id(spec), asked.shape)
        if key not in self._eligible:
            work = asked.work
            self._eligible[key] = is_eligible(
                spec, work.constraints, work.resources, asked.group_by
            )
        return self._eligible[key] and asked.amount.fits(self._whole_of(spec))

    def _whole_of(self, spec: PoolSpec) -> Amount:
        """What an empty host of a slice has."""
        if id(spec) not in self._whole:
            self._whole[id(spec)] = spec.resources.amount
        return self._whole[id(spec)]

    def _make(self, room: PoolRoom, count: int) -> SliceGroup | None:
        if count <= 0:
            return None
        room.take(count)
        new = self.need.new
        new[room.spec.name] = new.get(room.spec.name, 0) + count
        hosts = (self._whole_of(room.spec),) * room.spec.hosts
        group = SliceGroup(spec=room.spec, hosts=hosts, count=count)
        self._groups.append(group)
        return group

    def _use(self, group: SliceGroup, asked: AskedWork, tasks: Sequence[int]) -> None:
        """Take room on each slice of a group: so many tasks on each of its hosts."""
        amount = asked.amount
        self.need.used.update(group.names)
        name = group.names[0] if group.names else ""
        self.need.covered.setdefault(asked.work.example, CoverFrom(group.spec.name, name))
        hosts = zip(group.hosts, tasks, strict=True)
        group.hosts = tuple(free - amount * held for free, held in hosts)
        self._groups.append(group)

    def _drop_empty(self) -> None:
        self._groups = [group for group in self._groups if group.count]


def _first_fit(hosts: FreeHosts, amount: Amount, tasks: int) -> list[int]:
    """So many of ``tasks`` on each host, the first ones full."""
    held = []
    for free in hosts:
        here = min(tasks, times(free, amount))
        held.append(here)
        tasks -= here
    return held


def _at_most(fitting: Sequence[int], tasks: int) -> list[int]:
    """The first ``tasks`` of the hosts that fit."""
    held = []
    for fits in fitting:
        held.append(min(fits, tasks))
        tasks -= held[-1]
    return held


def pack(
    coming: Iterable[SliceGroup], rooms: Sequence[PoolRoom], work: Iterable[PendingWork]
) -> FleetNeed:
    """What the waiting work needs, in the order given; gangs first is the caller's matter.

    O(kinds of work x (groups of coming slices + pools)).
    """
    packing = Packing(coming, rooms)
    for one in work:
        packing.add(one)
    return packing.need


def by_size(work: Iterable[PendingWork]) -> list[PendingWork]:
    """First fit decreasing: gangs by size, then tasks by what they ask for, the scarcest resource
    first.
    """
    scarcest_first = sorted(RESOURCES, key=lambda resource: resource.scarcity)

    def size(one: PendingWork) -> tuple[int, ...]:
        amount = one.resources.amount
        return (one.size, *(getattr(amount, resource.name) for resource in scarcest_first))

    return sorted(work, key=size, reverse=True)


def in_order(pools: Mapping[str, PoolSpec]) -> list[PoolSpec]:
    """The pools in the order in which they are asked."""
    return sorted(pools.values(), key=lambda pool: (pool.priority, pool.price, pool.name))
