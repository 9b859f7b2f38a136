"""What attempts have held and used: the sum of a job, and those of each user, project and day.

Only attempts whose end is known are in it; `views.cluster.usage` adds those that are open. A day of
UTC is kept as the bytes of a snapshot, but for the newest ones. Source:
docs/adr/0131-usage-is-summed-when-attempts-end.md. Out of scope: what an attempt adds
(`records.apply.usage`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from iris_core.spec.resources import Amount
from iris_core.states import Cause

DAY_MS = 86_400_000
KEPT_DAYS = 400
ROWS_OF_A_USER = 256
"""Sums of one user and day, at most; further projects of the day are summed as `OTHERS`."""
OTHERS = "(others)"
USEFUL = "useful"
"""The outcome of an attempt that did what its task is for. Any other outcome is why it did not."""
_OPENED = 2
_MOST = (1 << 63) - 1


class Used(msgspec.Struct, array_like=True, gc=False):
    """A sum over attempts.

    Attributes:
        attempts: how many. cpu: processors that they asked for, in thousandths, times ms. memory:
            asked for, MiB x ms.
        chips: devices asked for, ms by variant. cpu_ms: processor time that they used. peak: their
            peak of memory, MiB x ms.
    """

    attempts: int = 0
    cpu: int = 0
    memory: int = 0
    chips: dict[str, int] = {}
    cpu_ms: int = 0
    peak: int = 0

    def add(self, other: Used) -> None:
        """Add another sum."""
        self.attempts += other.attempts
        self.cpu += other.cpu
        self.memory += other.memory
        self.cpu_ms += other.cpu_ms
        self.peak += other.peak
        for variant, chip_ms in other.chips.items():
            self.chips[variant] = self.chips.get(variant, 0) + chip_ms


def count(
    sums: Iterable[Used],
    held_ms: int,
    amount: Amount,
    variant: str,
    cpu_ms: int,
    peak_bytes: int,
    attempts: int = 1,
) -> None:
    """Add an attempt, or a part of one, that held an amount for so long, to sums."""
    for used in sums:
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


_Row = tuple[str, str, Outcomes]
_Days = dict[str, dict[str, Outcomes]]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Row]).decode


class UsageDays:
    """Sums by day (days since 1970, UTC), user, project and outcome.

    Attributes:
        recent: sums of days that are open, by all four, so that one is found without a call of
            `of`.
        culprit: why a gang ended at a time, for its last one; so that its members do not each look
            for it.
    """

    def __init__(self) -> None:
        self.recent: dict[tuple[int, str, str, str], Used] = {}
        self.culprit: tuple[tuple[int, int], Cause | None] = ((0, 0), None)
        self._open: dict[int, _Days] = {}
        self._stored: dict[int, bytes] = {}

    def of(self, day: int, user: str, project: str, outcome: str) -> Used:
        """The sum that an attempt is added to. A new day ends those that are kept no longer."""
        key = (day, user, project, outcome)
        users = self._open.get(day)
        if users is None:
            users = self._opened(day)
        projects = users.setdefault(user, {})
        if project not in projects and sum(map(len, projects.values())) >= ROWS_OF_A_USER:
            project = OTHERS
        used = self.recent[key] = of_outcome(projects.setdefault(project, {}), outcome)
        return used

    def _opened(self, day: int) -> _Days:
        self.recent.clear()
        if day not in self._stored:
            for old in [one for one in (*self._open, *self._stored) if one <= day - KEPT_DAYS]:
                self._open.pop(old, None)
                self._stored.pop(old, None)
        users: _Days = {}
        for user, project, outcomes in _decode(self._stored.pop(day, b"\x90")):
            users.setdefault(user, {})[project] = outcomes
        self._open[day] = users
        return users

    def rows(self, first_day: int) -> Iterator[tuple[int, str, str, Outcomes]]:
        """Every sum since a day: day, user, project, and its outcomes, which are not to be
        changed.
        """
        for day in sorted({*self._open, *self._stored}):
            if day >= first_day:
                stored = self._stored.get(day)
                rows = _decode(stored) if stored is not None else _rows(self._open[day])
                yield from ((day, *row) for row in rows)

    def stored(self) -> list[tuple[int, bytes]]:
        """Every day as a snapshot holds it."""
        self.recent.clear()
        newest = sorted(self._open)[-_OPENED:]
        days = {day: _encode(_rows(users)) for day, users in self._open.items()}
        for day in [day for day in self._open if day not in newest]:
            del self._open[day]
            self._stored[day] = days[day]
        return sorted((self._stored | days).items())

    def restore(self, days: list[tuple[int, bytes]]) -> None:
        """Take the days of a snapshot."""
        self._stored = dict(days)


def _rows(users: _Days) -> list[_Row]:
    return [
        (user, project, users[user][project])
        for user in sorted(users)
        for project in sorted(users[user])
    ]
