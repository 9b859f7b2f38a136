"""What attempts have held and used: the sum of a job, and those of each user, project and day.

A read looks at what it returns: each group (a user, a project, a user's project, or all) has its own
sums by day (`usage_series`). Only attempts whose end is known are in it; `running_usage` has those
that are open. Sources: docs/adr/0131-usage-is-summed-when-attempts-end.md,
docs/adr/0131-usage-is-summed-when-attempts-end.md#series. Out of scope: what an attempt adds
(`records.apply.usage`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from sortedcontainers import SortedSet

from iris_core.spec.projects import within
from iris_core.spec.resources import Amount
from iris_core.states import Cause

KEPT_DAYS = 400
ROWS_OF_A_USER = 256
"""Sums of one user and day, at most; further projects of the day are summed as `OTHERS`."""
OTHERS = "(others)"
PROJECT = "project"
"""The label of a job by which usage is summed."""
USEFUL = "useful"
"""The outcome of an attempt that did what its task is for. Any other outcome is why it did not."""
BLOCK_DAYS = 16
"""Days of a block of a series."""
FOLDED_AT_ONCE = 20
"""Sums that are put into their series beside other work."""
MANY = 1 << 30
_OPENED = 2
"""The newest days, which are not in the series yet."""
_MOST = (1 << 63) - 1
COST = 10**9
"""Units of a sum's cost in one of a price."""
_RATE = 10**6
"""Units of a rate in one of a sum's cost, so that a cheap slice's small part for 1 ms is none of 0."""


class SlicePart(NamedTuple):
    """Where in the fleet an attempt runs: its pool, and what its part of the slice costs in a
    millisecond, see `rate_of`.
    """

    pool: str
    rate: int


def rate_of(price: float, share: float) -> int:
    """The rate of a part of something with a price for an hour."""
    return round(price * min(share, 1.0) * COST * _RATE / 3_600_000)


def cost_of(rate_ms: int) -> int:
    """The cost of a rate times milliseconds, for a sum."""
    return rate_ms // _RATE


def share_of(amount: Amount, whole: Amount) -> float:
    """The larger of the parts of processors and of devices that an amount is of a whole."""
    parts = ((amount.cpu_millis, whole.cpu_millis), (amount.chips, whole.chips))
    return max((part / all_ for part, all_ in parts if all_), default=0.0)


class Used(msgspec.Struct, array_like=True, gc=False):
    """A sum over attempts.

    Attributes:
        attempts: how many. cpu: processors that they asked for, in thousandths, times ms. memory:
            asked for, MiB x ms.
        chips: devices asked for, ms by variant. cpu_ms: processor time that they used. peak: their
            peak of memory, MiB x ms.
        cost: their parts of the prices of pools, in billionths. pooled: of all that, what was on
            hosts of pools; it has no cost of its own.
    """

    attempts: int = 0
    cpu: int = 0
    memory: int = 0
    chips: dict[str, int] = {}
    cpu_ms: int = 0
    peak: int = 0
    cost: int = 0
    pooled: Used | None = None

    def add(self, other: Used) -> None:
        """Add another sum."""
        self.attempts += other.attempts
        self.cpu += other.cpu
        self.memory += other.memory
        self.cpu_ms += other.cpu_ms
        self.peak += other.peak
        self.cost += other.cost
        for variant, chip_ms in other.chips.items():
            self.chips[variant] = self.chips.get(variant, 0) + chip_ms
        if other.pooled is not None:
            self.in_pools().add(other.pooled)

    def in_pools(self) -> Used:
        """The part of attempts on hosts of pools."""
        if self.pooled is None:
            self.pooled = Used()
        return self.pooled

    def less(self, other: Used | None) -> Used:
        """What is left of this sum without a part of it."""
        if other is None:
            return self
        chips = {
            variant: chip_ms - other.chips.get(variant, 0)
            for variant, chip_ms in self.chips.items()
        }
        pooled = self.pooled.less(other.pooled) if self.pooled is not None else None
        return Used(
            attempts=self.attempts - other.attempts,
            cpu=self.cpu - other.cpu,
            memory=self.memory - other.memory,
            chips={variant: chip_ms for variant, chip_ms in chips.items() if chip_ms},
            cpu_ms=self.cpu_ms - other.cpu_ms,
            peak=self.peak - other.peak,
            cost=self.cost - other.cost,
            pooled=pooled if pooled != Used() else None,
        )

    def clip(self) -> None:
        """Keep to what an encoded sum can hold: a host may say that it has anything."""
        self.attempts, self.cpu, self.memory, self.cpu_ms, self.peak, self.cost = (
            min(one, _MOST)
            for one in (
                *(self.attempts, self.cpu, self.memory),
                *(self.cpu_ms, self.peak, self.cost),
            )
        )
        self.chips = {variant: min(chip_ms, _MOST) for variant, chip_ms in self.chips.items()}
        if self.pooled is not None:
            self.pooled.clip()


def count(
    sums: Iterable[Used],
    held_ms: int,
    amount: Amount,
    variant: str,
    cpu_ms: int,
    peak_bytes: int,
    attempts: int = 1,
    place: SlicePart | None = None,
) -> None:
    """Add an attempt, or a part of one, that held an amount for so long, to sums. ``place``: on a
    host of a pool.
    """
    for used in sums:
        if place is not None:
            used.cost += cost_of(place.rate * held_ms)
            count(
                [used.in_pools()],
                held_ms,
                amount,
                variant,
                cpu_ms=cpu_ms,
                peak_bytes=peak_bytes,
                attempts=attempts,
            )
        used.attempts += attempts
        used.cpu += amount.cpu_millis * held_ms
        used.memory += amount.memory_bytes * held_ms >> 20
        used.cpu_ms += cpu_ms
        used.peak += peak_bytes * held_ms >> 20
        if amount.chips:
            used.chips[variant] = used.chips.get(variant, 0) + amount.chips * held_ms
        if (
            used.cpu > _MOST or used.memory > _MOST or used.peak > _MOST
        ):  # a host may say that it has anything
            used.cpu, used.memory, used.peak = (
                min(one, _MOST) for one in (used.cpu, used.memory, used.peak)
            )


Outcomes = dict[str, Used]
"""Sums by outcome."""


def of_outcome(outcomes: Outcomes, outcome: str) -> Used:
    """The sum of an outcome, a new one the first time."""
    used = outcomes.get(outcome)
    if used is None:
        used = outcomes[outcome] = Used()
    return used


UsageGroup = tuple[str | None, str | None]
"""A user and a project; None: all of them."""


def groups_of(user: str, project: str) -> tuple[UsageGroup, UsageGroup, UsageGroup, UsageGroup]:
    """The groups that an attempt of a user and a project is summed in."""
    return (user, project), (user, None), (None, project), (None, None)


def names_of_project(path: str) -> tuple[str, ...]:
    """What an attempt of a project is summed as, in the place of a user: the path alone, and, as
    ``path/``, each subtree that has it, but the root's.
    """
    return path, *(f"{above}/" for above in within(path))


def groups_of_project(user: str, path: str) -> tuple[UsageGroup, ...]:
    """The groups that an attempt of a user in a project is summed in, beside those of
    `groups_of`.
    """
    return tuple(group for name in names_of_project(path) for group in ((name, user), (name, None)))


def add_outcomes(sums: Outcomes, others: Outcomes) -> None:
    """Add sums by outcome to others."""
    for outcome, used in others.items():
        of_outcome(sums, outcome).add(used)


_Row = tuple[str, str, Outcomes]
_Entry = tuple[int, int, Outcomes]
"""A day, how many sums of projects and outcomes its user has on it (of a user's group), its sums."""
SeriesBlock = tuple[int, bytes, bytes]
"""Its number, the sums of all days before it, and its entries by day."""
StoredSeries = tuple[str | None, str | None, list[SeriesBlock]]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Row]).decode
_decode_entries = msgspec.msgpack.Decoder(list[_Entry]).decode
_decode_sums = msgspec.msgpack.Decoder(Outcomes).decode


class Series:
    """The sums of one group by day, in blocks of `BLOCK_DAYS` that are kept as bytes.

    The sum since a day is read from two blocks: that of the day, and the newest one.
    """

    def __init__(self, blocks: Iterable[SeriesBlock] = ()) -> None:
        self._blocks = {number: (before, entries) for number, before, entries in blocks}

    def stored(self) -> list[SeriesBlock]:
        """Its blocks for a snapshot."""
        return [(number, *block) for number, block in self._blocks.items()]

    def add(self, day: int, projects: int, sums: Outcomes) -> None:
        """Add sums to a day. ``projects``: see `_Entry`."""
        number = day // BLOCK_DAYS
        if number not in self._blocks:
            self._insert(number)
        before, data = self._blocks[number]
        entries = {entry[0]: entry for entry in _decode_entries(data)}
        _, _, known = entries.get(day, (day, 0, {}))
        add_outcomes(known, sums)
        entries[day] = (day, projects, known)
        ordered = [entries[one] for one in sorted(entries)]
        self._blocks[number] = before, _encode_sums(ordered, [entry[2] for entry in ordered])
        for later in [one for one in self._blocks if one > number]:
            before, data = self._blocks[later]
            total = _decode_sums(before)
            add_outcomes(total, sums)
            self._blocks[later] = _encode_sums(total, [total]), data

    def append(self, number: int, entries: list[_Entry]) -> None:
        """Add the entries of a block that is newer than the others."""
        self._insert(number)
        before, _ = self._blocks[number]
        self._blocks[number] = before, _encode_sums(entries, [entry[2] for entry in entries])

    def _insert(self, number: int) -> None:
        """Add an empty block."""
        later = min((one for one in self._blocks if one > number), default=None)
        total: Outcomes = {}
        if later is not None:  # earlier ones may have been deleted
            total = _decode_sums(self._blocks[later][0])
        elif self._blocks:
            before, data = self._blocks[max(self._blocks)]
            total = _decode_sums(before)
            for _, _, sums in _decode_entries(data):
                add_outcomes(total, sums)
        self._blocks[number] = _encode_sums(total, [total]), _encode([])
        self._blocks = {one: self._blocks[one] for one in sorted(self._blocks)}

    def expire(self, first: int) -> bool:
        """Delete the blocks with no day since ``first``; returns whether any is left."""
        for number in [one for one in self._blocks if (one + 1) * BLOCK_DAYS <= first]:
            del self._blocks[number]
        return bool(self._blocks)

    def entry(self, day: int) -> _Entry | None:
        """What is kept of a day."""
        block = self._blocks.get(day // BLOCK_DAYS)
        if block is None:
            return None
        return next((one for one in _decode_entries(block[1]) if one[0] == day), None)

    def days(self, first: int) -> Iterator[tuple[int, Outcomes]]:
        """The sums of each day since one, oldest first."""
        for number in [one for one in self._blocks if (one + 1) * BLOCK_DAYS > first]:
            for day, _, sums in _decode_entries(self._blocks[number][1]):
                if day >= first:
                    yield day, sums

    def since(self, first: int) -> Outcomes:
        """The sum of all days since one."""
        numbers = [one for one in self._blocks if (one + 1) * BLOCK_DAYS > first]
        if not numbers:
            return {}
        total, less = (_decode_sums(self._blocks[one][0]) for one in (numbers[-1], numbers[0]))
        for _, _, sums in _decode_entries(self._blocks[numbers[-1]][1]):
            add_outcomes(total, sums)
        for day, _, sums in _decode_entries(self._blocks[numbers[0]][1]):
            if day < first:
                add_outcomes(less, sums)
        return {
            outcome: left
            for outcome, used in total.items()
            if (left := used.less(less.get(outcome))) != Used()
        }


def _encode_sums(what: object, sums: Iterable[Outcomes]) -> bytes:
    """Encode something that holds sums; one that is larger than a message can say is clipped."""
    try:
        return _encode(what)
    except OverflowError:
        for used in (used for outcomes in sums for used in outcomes.values()):
            used.clip()
        return _encode(what)


class _Day:
    """What was added to a day since its sums were last put into the series.

    Attributes:
        sums: by group. projects: how many sums each user has on the day, with those in its series.
    """

    def __init__(self) -> None:
        self.sums: dict[UsageGroup, Outcomes] = {}
        self.projects: dict[str, int] = {}

    def counted(self, group: UsageGroup) -> int:
        """As an entry of a series holds it."""
        user, project = group
        return self.projects[user] if user is not None and project is None else 0


class UsageDays:
    """Sums by day (days since 1970, UTC), user, project and outcome, and of all users and projects.

    Attributes:
        recent: sums of days that are open, by all four, so that one is found without a call of
            `of`.
        culprit: why a gang ended at a time, for its last one; so that its members do not each look
            for it.
        users, projects: the names with any sum, by project, or user, or None for all.
        running: the groups of which something runs, which have names too.
        folding: sums of days that are over and not yet in their series.
    """

    def __init__(self) -> None:
        self.recent: dict[tuple[int, str, str, str], tuple[Used, ...]] = {}
        self.culprit: tuple[tuple[int, int], Cause | None] = ((0, 0), None)
        self.users: dict[str | None, SortedSet[str]] = {}
        self.projects: dict[str | None, SortedSet[str]] = {}
        self.running: dict[UsageGroup, None] = {}
        self._known: set[tuple[str, str]] = set()
        self._newest = 0
        self._open: dict[int, _Day] = {}
        self.folding: dict[int, _Day] = {}
        self._series: dict[UsageGroup, Series] = {}
        self._stored: dict[int, bytes] = {}

    # ── writing ───────────────────────────────────────────────────────────────────────────────────

    def of(self, day: int, user: str, project: str, outcome: str) -> tuple[Used, ...]:
        """The sums that an attempt is added to. A new day ends those that are kept no longer."""
        asked = (day, user, project, outcome)
        if day > self._newest:
            self._begin(day)
        opened = self._open.get(day)
        if opened is None:
            opened = self._open[day] = _Day()
        project = self._summed_as(opened, day, user, project, outcome=outcome)
        self._name(user, project)
        found = self.recent[asked] = tuple(
            of_outcome(opened.sums.setdefault(group, {}), outcome)
            for group in groups_of(user, project)
        )
        return found

    def _summed_as(self, opened: _Day, day: int, user: str, project: str, outcome: str) -> str:
        """The project, or `OTHERS` where its user has too many on the day; counts a new sum."""
        if day in self.folding:
            self.fold(groups=MANY)
        if user not in opened.projects:
            kept = self._entry((user, None), day)
            opened.projects[user] = kept[1] if kept is not None else 0
        if (
            opened.projects[user] >= ROWS_OF_A_USER
            and (user, project) not in opened.sums
            and self._entry((user, project), day) is None
        ):
            project = OTHERS
        if outcome not in opened.sums.get((user, project), {}):
            kept = self._entry((user, project), day)
            opened.projects[user] += kept is None or outcome not in kept[2]
        return project

    def _entry(self, group: UsageGroup, day: int) -> _Entry | None:
        series = self._series.get(group)
        return series.entry(day) if series is not None else None

    def begin_running(self, group: UsageGroup) -> None:
        """Something of a group runs: its names are listed before anything of it has ended."""
        self.running[group] = None
        self._name_group(group)

    def _name_group(self, group: UsageGroup) -> None:
        user, project = group
        if user is not None and project is not None:
            self._name(user, project)

    def _name(self, user: str, project: str) -> None:
        if (user, project) in self._known:
            return
        self._known.add((user, project))
        for names, of, one in (
            (self.users, project, user),
            (self.users, None, user),
            (self.projects, user, project),
            (self.projects, None, project),
        ):
            if of not in names:
                names[of] = SortedSet()
            names[of].add(one)

    def _begin(self, day: int) -> None:
        """A day is new: put those before yesterday into the series, and end what is too old."""
        self._newest = day
        self._close()
        for old in [one for one in (*self._open, *self._stored) if one <= day - KEPT_DAYS]:
            self._open.pop(old, None)
            self._stored.pop(old, None)
        ended = [
            group
            for group, series in self._series.items()
            if not series.expire(day - KEPT_DAYS + 1)
        ]
        for group in ended:
            del self._series[group]
        self._known = set()
        self.users = {}
        self.projects = {}
        self._name_all()

    def _name_all(self) -> None:
        opened = (group for _, day in self._unfolded() for group in day.sums)
        for group in (*self._series, *opened, *self.running):
            self._name_group(group)

    def _close(self) -> None:
        """Have what is open put into the series, but for the newest two days; see `fold`."""
        self.recent.clear()
        self.fold(groups=MANY)
        for day in sorted(one for one in self._open if one <= self._newest - _OPENED):
            opened = self._open.pop(day)
            self._stored[day] = self._encoded(day, opened)
            self.folding[day] = opened

    def fold(self, groups: int = FOLDED_AT_ONCE) -> int:
        """Put so many sums of days that are over into the series of their groups; how many were.

        A day of 1,000 users is 4,000 groups, 70 us each: so it is done beside other work.
        """
        folded = 0
        while self.folding and folded < groups:
            day, opened = next(iter(self.folding.items()))
            while opened.sums and folded < groups:
                group, sums = opened.sums.popitem()
                series = self._series.get(group)
                if series is None:
                    series = self._series[group] = Series()
                series.add(day, opened.counted(group), sums)
                folded += 1
            if not opened.sums:
                del self.folding[day]
        return folded

    def _encoded(self, day: int, opened: _Day) -> bytes:
        """A day as a snapshot holds it: what is stored of it, and what is open."""
        rows = {(user, project): sums for user, project, sums in self._rows(day)}
        for (user, project), sums in opened.sums.items():
            if user is not None and project is not None:
                add_outcomes(rows.setdefault((user, project), {}), sums)
        return _encode_sums([(*names, rows[names]) for names in sorted(rows)], rows.values())

    def _rows(self, day: int) -> list[_Row]:
        stored = self._stored.get(day)
        return _decode(stored) if stored is not None else []

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    def since(self, group: UsageGroup, first: int) -> Outcomes:
        """The sum of a group of all days since one."""
        first = max(first, self._newest - KEPT_DAYS + 1)
        series = self._series.get(group)
        found = series.since(first) if series is not None else {}
        for day, opened in self._unfolded():
            if day >= first and group in opened.sums:
                add_outcomes(found, opened.sums[group])
        return found

    def days(self, group: UsageGroup, first: int) -> dict[int, Outcomes]:
        """The sums of a group by day, since one, oldest first."""
        first = max(first, self._newest - KEPT_DAYS + 1)
        series = self._series.get(group)
        found = dict(series.days(first)) if series is not None else {}
        for day, opened in self._unfolded():
            if day >= first and group in opened.sums:
                add_outcomes(found.setdefault(day, {}), opened.sums[group])
        return {day: found[day] for day in sorted(found)}

    def _unfolded(self) -> Iterator[tuple[int, _Day]]:
        """The days of which something is not in the series."""
        yield from self.folding.items()
        yield from self._open.items()

    def names(self) -> list[tuple[str, str]]:
        """Each user with a project of it."""
        return sorted(self._known)

    # ── snapshots ─────────────────────────────────────────────────────────────────────────────────

    def stored(self) -> list[tuple[int, bytes]]:
        """Every day, oldest first."""
        self._close()
        self.fold(groups=MANY)
        newest = {day: self._encoded(day, opened) for day, opened in self._open.items()}
        return sorted((self._stored | newest).items())

    def stored_series(self) -> list[StoredSeries]:
        """The series; what is open is in them as well. After `stored`."""
        return [(*group, self._series[group].stored()) for group in _sorted(self._series)]

    def restore(self, days: list[tuple[int, bytes]], stored: list[StoredSeries]) -> None:
        """Take the days of a snapshot."""
        self._stored = dict(days)
        self._newest = max(self._stored, default=0)
        for day in [one for one in self._stored if one > self._newest - _OPENED]:
            self._open[day] = _opened(self._rows(day))
            del self._stored[day]
        self._series = {(user, project): Series(blocks) for user, project, blocks in stored}
        self._name_all()


def _opened(rows: list[_Row]) -> _Day:
    """A day of a snapshot, with the sums of all groups."""
    opened = _Day()
    for user, project, outcomes in rows:
        for group in groups_of(user, project):
            add_outcomes(opened.sums.setdefault(group, {}), outcomes)
        opened.projects[user] = opened.projects.get(user, 0) + len(outcomes)
    return opened


def _sorted(groups: Iterable[UsageGroup]) -> list[UsageGroup]:
    return sorted(groups, key=lambda group: [(name is not None, name or "") for name in group])
