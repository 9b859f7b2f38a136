"""Finds whole groups of workers for one class of gangs, and assigns tasks to workers within a
group.

Groups are ordered by: no worker to be avoided, most preferred, no accelerators that the gang does
not ask for, fewest spare hosts, name. Within a group tasks in order of index get workers in order
of ``tpu-worker-id``, one each, those with such accelerators last. A gang of several slices takes
the best groups of one domain, its first slice the first of them by name; of domains, the one with
the fewest spare groups.

Preferred levels of the topology come before all that: a gang is tried with all of them, as if they
were required, then without the innermost, and so on; what is left out then decides first, by the
fewest domains.
Source: docs/design/semantics.md#coscheduling.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import heapify, heappop, heappush, heapreplace

import numpy as np

from iris_scheduler.feasible.levels import domains_needed, in_domains, nearest
from iris_scheduler.mirror.capacity import CHIPS, Room, Slots, with_room
from iris_scheduler.mirror.classes import JobClass
from iris_scheduler.mirror.columns import Columns, Groups

GroupRank = tuple[bool, int, bool, int, int]
"""Whether the group holds a worker to avoid, its negated preference, whether it has accelerators
that the gang does not ask for, its spare hosts, its number.
"""

_FINE = 1024
"""A group's preference is the mean over its workers that are not LOST, in steps of 1/1024."""


class GroupCandidates:
    """The groups a class of gangs may still use in one cycle, of one way to group workers."""

    def __init__(
        self,
        room: Room,
        columns: Columns,
        kind: JobClass,
        groups: Groups,
        size: int,
        shunned: Collection[int] = (),
        last: Collection[int] = (),
    ) -> None:
        """Rank the groups.

        Args:
            groups: of `Columns.groupings`. size: how many workers a gang takes, over all its
                slices.
            shunned: workers that must not be used. last: workers to avoid: their groups come last.
        """
        self._room = room
        self._need = kind.need
        self._slices = kind.slices
        self._size = size // kind.slices
        self._groups = groups
        self._usable = columns.usable(kind)
        self._may = bytearray(self._usable.mask.tobytes())
        for slot in shunned:
            self._may[slot] = 0
        self._accelerated = columns.accelerated if not kind.need.amounts[CHIPS] else len(columns)
        self._wasteful = frozenset(self._groups.codes[self._accelerated :].tolist())
        self._late = frozenset(int(self._groups.codes[slot]) for slot in last)
        self._heap = self._rank(self._roomy()) if kind.slices == 1 and not groups.near else []
        self._caught_up = len(room.taken)
        self._spacious = any(entry[3] > 0 for entry in self._heap)

    def seat(self) -> list[int] | None:
        """Place one gang and return its workers, the first task's first. None when no group has
        enough free workers.
        """
        if self._slices > 1:
            return self._seat_slices()
        if self._groups.near:
            return self._seat_near()
        self._catch_up()
        while self._heap:
            entry = self._heap[0]
            free = self._free(entry[4])
            if len(free) - self._size != entry[3]:
                self._correct(entry, len(free))
                continue
            return self._take(entry, free)
        return None

    def _seat_near(self) -> list[int] | None:
        free = self._roomy()
        entries = self._rank(free)
        if not entries:
            return None
        groups = self._groups
        needed = domains_needed(
            groups.codes.take(free), groups.near[0].take(free), self._size, len(groups.names)
        )
        entry = min(entries, key=lambda entry: (needed[entry[4]], entry))
        inside = set(free[groups.codes.take(free) == entry[4]].tolist())
        return self._take(entry, [slot for slot in groups.members[entry[4]] if slot in inside])

    def _seat_slices(self) -> list[int] | None:
        by_domain: dict[int, list[GroupRank]] = {}
        for entry in sorted(self._rank(self._roomy())):
            by_domain.setdefault(int(self._groups.domains[entry[4]]), []).append(entry)
        enough = [entries for entries in by_domain.values() if len(entries) >= self._slices]
        if not enough:
            return None
        *_, chosen = min(map(self._domain_rank, enough))
        by_name = sorted(chosen, key=lambda entry: entry[4])
        return [slot for entry in by_name for slot in self._take(entry, self._free(entry[4]))]

    def _domain_rank(
        self, entries: list[GroupRank]
    ) -> tuple[int, bool, int, bool, int, list[GroupRank]]:
        """The rank of a domain with these groups, which ends with those to take: as of these, with
        its spare groups for spare hosts.
        """
        near = self._groups.near
        firsts = {self._groups.members[entry[4]][0]: entry for entry in entries}
        best = [firsts[slot] for slot in nearest(list(firsts), self._slices, near)]
        late, preference, wasteful, *_, taken = zip(*best, strict=True)
        domains = (
            len({int(near[0][self._groups.members[group][0]]) for group in taken}) if near else 1
        )
        return domains, any(late), sum(preference), any(wasteful), len(entries) - self._slices, best

    def _take(self, entry: GroupRank, free: list[int]) -> list[int]:
        """Take the workers of one slice from the free ones of a group."""
        seats = self._chosen(free) if entry[2] or self._groups.near else free[: self._size]
        for slot in seats:
            self._room.take(slot, self._need)
        return seats

    def _roomy(self) -> Slots:
        """The workers of all groups where a task fits now."""
        codes = self._groups.codes.take(self._usable.slots)
        grouped = self._usable.slots[codes >= 0]
        free = with_room(self._room.matrix, self._need, grouped)
        return free[np.frombuffer(self._may, np.bool_).take(free)]

    def _rank(self, free: Slots) -> list[GroupRank]:
        counts = np.bincount(self._groups.codes.take(free), minlength=len(self._groups.names))
        large = np.flatnonzero(counts >= self._size)
        pairs = zip(large.tolist(), counts[large].tolist(), strict=True)
        if self._usable.rank is None and not self._late:
            entries = [
                (False, 0, group in self._wasteful, count - self._size, group)
                for group, count in pairs
            ]
        else:
            entries = [self._entry(group, count) for group, count in pairs]
        heapify(entries)
        return entries

    def _entry(self, group: int, free: int) -> GroupRank:
        rank = self._usable.rank
        members = [slot for slot in self._groups.members[group] if self._may[slot]]
        preference = 0 if rank is None else int(rank[members].sum()) * _FINE // len(members)
        return (group in self._late, -preference, group in self._wasteful, free - self._size, group)

    def _free(self, group: int) -> list[int]:
        may = self._may
        room = self._room
        need = self._need
        return [slot for slot in self._groups.members[group] if may[slot] and room.fits(slot, need)]

    def _chosen(self, free: list[int]) -> list[int]:
        """Those in the fewest domains of preferred levels; without accelerators, and then
        others.
        """
        near = self._groups.near if self._slices == 1 else ()
        chosen = set(
            nearest(sorted(free, key=lambda slot: slot >= self._accelerated), self._size, near)
        )
        return in_domains([slot for slot in free if slot in chosen], near)

    def _correct(self, entry: GroupRank, free: int) -> None:
        """Re-rank the best entry, whose rank is out of date, or drop it."""
        if free >= self._size:
            heapreplace(self._heap, (*entry[:3], free - self._size, entry[4]))
        else:
            heappop(self._heap)

    def _catch_up(self) -> None:
        """Update the ranks of groups whose free capacity has shrunk: with fewer spare hosts a group
        may rank higher.
        """
        if self._caught_up == len(self._room.taken):
            return
        if self._spacious:
            spacious = {entry[4] for entry in self._heap if entry[3] > 0}
            touched = {
                int(self._groups.codes[slot]) for slot in self._room.taken[self._caught_up :]
            }
            for group in sorted(touched & spacious):
                free = len(self._free(group))
                if free >= self._size:
                    heappush(self._heap, self._entry(group, free))
        self._caught_up = len(self._room.taken)


class GangCandidates:
    """The groups a class of gangs may still use in one cycle, of each way to group workers."""

    def __init__(
        self,
        room: Room,
        columns: Columns,
        kind: JobClass,
        size: int,
        shunned: Collection[int] = (),
        last: Collection[int] = (),
    ) -> None:
        """As of `GroupCandidates`."""
        ways = columns.groupings(kind)
        self._ways = [
            GroupCandidates(room, columns, kind, groups, size=size, shunned=shunned, last=last)
            for groups in ways
        ]

    def seat(self) -> list[int] | None:
        """Place one gang, in as few domains of preferred levels as there is room for; as of
        `GroupCandidates`.
        """
        return next((seats for way in self._ways if (seats := way.seat()) is not None), None)
