"""What open attempts hold: sums of each job and group, from which what they have held until now
follows without looking at one attempt.

An attempt that holds an amount since a time has held amount x (now - since), so the sums of both
products are kept, by the day on which attempts began. Source:
docs/adr/0131-usage-is-summed-when-attempts-end.md#series. Out of scope: attempts that have ended
(`usage_days`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from iris_core.spec.resources import Amount
from iris_core.units import DAY_MS
from iris_state.records.entities import Attempt, AttemptKey, Job
from iris_state.records.indexes.usage_days import (
    KEPT_DAYS,
    SlicePart,
    UsageDays,
    UsageGroup,
    Used,
    cost_of,
    groups_of,
)


class OpenHold(NamedTuple):
    """An open attempt: since when it holds its place, and the pool of that."""

    began_ms: int
    place: SlicePart | None = None


class HeldSum:
    """Of the attempts that began on one day: how many, and what they hold; ``_began``: times since
    when, ms. ``devices``: how many chips. ``chips``: by host, the number and that product.
    ``rate``: what they cost in a millisecond. ``pooled``: those of them on hosts of pools.
    """

    __slots__ = (
        *("attempts", "chips", "cpu", "cpu_began", "devices", "memory", "memory_began"),
        *("pooled", "rate", "rate_began"),
    )

    def __init__(self) -> None:
        self.attempts = self.cpu = self.cpu_began = self.memory = self.memory_began = 0
        self.devices = self.rate = self.rate_began = 0
        self.chips: dict[str, list[int]] = {}
        self.pooled: HeldSum | None = None

    def add(self, amount: Amount, worker: str, opened: OpenHold, sign: int) -> None:
        """Add an attempt, or subtract it with ``sign`` -1."""
        began_ms, place = opened
        if place is not None:
            self.rate += sign * place.rate
            self.rate_began += sign * place.rate * began_ms
            self._in_pools().add(amount, worker, OpenHold(began_ms), sign)
            self._drop_empty()
        self.attempts += sign
        self.cpu += sign * amount.cpu_millis
        self.cpu_began += sign * amount.cpu_millis * began_ms
        self.memory += sign * amount.memory_bytes
        self.memory_began += sign * amount.memory_bytes * began_ms
        if amount.chips:
            self.devices += sign * amount.chips
            chips = self.chips.setdefault(worker, [0, 0])
            chips[0] += sign * amount.chips
            chips[1] += sign * amount.chips * began_ms
            if not chips[0]:
                del self.chips[worker]

    def merge(self, other: HeldSum, sign: int) -> None:
        """Add other attempts, or subtract them with ``sign`` -1."""
        self.attempts += sign * other.attempts
        self.cpu += sign * other.cpu
        self.cpu_began += sign * other.cpu_began
        self.memory += sign * other.memory
        self.memory_began += sign * other.memory_began
        self.devices += sign * other.devices
        self.rate += sign * other.rate
        self.rate_began += sign * other.rate_began
        if other.pooled is not None:
            self._in_pools().merge(other.pooled, sign)
            self._drop_empty()
        for worker, (number, began) in other.chips.items():
            chips = self.chips.setdefault(worker, [0, 0])
            chips[0] += sign * number
            chips[1] += sign * began
            if not chips[0]:
                del self.chips[worker]

    def _in_pools(self) -> HeldSum:
        if self.pooled is None:
            self.pooled = HeldSum()
        return self.pooled

    def _drop_empty(self) -> None:
        if self.pooled is not None and not self.pooled.attempts:
            self.pooled = None

    def until(self, end_ms: int, since_ms: int | None, variant: Callable[[str], str]) -> Used:
        """What they have held until a time: since a time, or each since it began."""

        def lasted(held: int, began: int) -> int:
            return max(held * end_ms - (began if since_ms is None else held * since_ms), 0)

        chips: dict[str, int] = {}
        for worker, (number, began) in self.chips.items():
            name = variant(worker)
            chips[name] = chips.get(name, 0) + lasted(number, began)
        memory = lasted(self.memory, self.memory_began) >> 20
        pooled = self.pooled.until(end_ms, since_ms, variant) if self.pooled is not None else None
        return Used(
            self.attempts,
            lasted(self.cpu, self.cpu_began),
            memory,
            chips,
            cost=cost_of(lasted(self.rate, self.rate_began)),
            pooled=pooled,
        )


_ByDay = dict[int, HeldSum]
_Held = int | UsageGroup
"""The number of a job, or a group."""


class RunningUsage:
    """What the open attempts of each job and group hold, by the day on which they began."""

    _is_by_pool = False
    """Whether the pool of an attempt's host stands in the place of the project."""

    def __init__(
        self,
        usage: UsageDays,
        groups: Callable[[str, str], Iterable[UsageGroup]] = groups_of,
    ) -> None:
        """``groups``: those of a user and a project."""
        self.usage = usage
        self._groups = groups
        self._held: dict[_Held, _ByDay] = {}
        self._project: dict[int, str] = {}
        self._opened: dict[AttemptKey, OpenHold] = {}

    def enter(
        self,
        job: Job,
        amount: Amount,
        index: int,
        attempt: Attempt,
        project: str,
        place: SlicePart | None = None,
    ) -> bool:
        """An attempt is open, or has begun to hold its place; False, and nothing has changed, where
        that was known.
        """
        began_ms = (
            attempt.assigned_ms
            if attempt.chain is None
            else attempt.building_ms or attempt.started_ms
        )
        key = (job.number, index, attempt.number)
        if not began_ms or key in self._opened:
            return False
        opened = self._opened[key] = OpenHold(began_ms, place)
        if job.number not in self._project:
            self._project[job.number] = project
        self._count(job, amount, attempt.worker, opened, sign=1)
        return True

    def leave(self, job: Job, amount: Amount, index: int, attempt: Attempt) -> SlicePart | None:
        """The end of an attempt is known; returns where in the fleet it was."""
        opened = self._opened.pop((job.number, index, attempt.number), None)
        if opened is None:
            return None
        self._count(job, amount, attempt.worker, opened, sign=-1)
        if job.number not in self._held:
            del self._project[job.number]
        return opened.place

    def place_of(self, key: AttemptKey) -> SlicePart | None:
        """Where in the fleet an open attempt was when it began."""
        opened = self._opened.get(key)
        return opened.place if opened is not None else None

    def _count(self, job: Job, amount: Amount, worker: str, opened: OpenHold, sign: int) -> None:
        day, place = opened.began_ms // DAY_MS, opened.place
        summed_as = self._project[job.number]
        if self._is_by_pool and place is not None:
            summed_as = place.pool
        every: tuple[_Held, ...] = (job.number, *self._groups(job.user, summed_as))
        for what in every:
            days = self._held.get(what)
            held = days.get(day) if days is not None else None
            if held is None:
                held = self._of(what, day)
            held.add(amount, worker, opened, sign)
            if not held.attempts:
                self._drop(what, day)

    def _of(self, what: _Held, day: int) -> HeldSum:
        days = self._held.get(what)
        if days is None:
            days = self._held[what] = {}
            if isinstance(what, tuple):
                self.usage.begin_running(what)
        held = days.get(day)
        if held is None:
            held = days[day] = HeldSum()
        return held

    def _drop(self, what: _Held, day: int) -> None:
        del self._held[what][day]
        if not self._held[what]:
            del self._held[what]
            if isinstance(what, tuple):
                self.usage.running.pop(what, None)

    def move(self, job: Job, project: str) -> None:
        """A job has another project now."""
        before = self._project.get(job.number, project)
        if before == project:
            return
        self._project[job.number] = project
        for day, held in self._held[job.number].items():
            for sign, of in ((-1, before), (1, project)):
                for what in groups_of(job.user, of)[::2]:
                    other = self._of(what, day)
                    other.merge(held, sign)
                    if not other.attempts:
                        self._drop(what, day)

    def sums(self) -> dict[_Held, dict[int, Used]]:
        """What attempts had held at the end of the day on which they began, for a recount."""
        return {
            what: {day: held.until((day + 1) * DAY_MS, None, str) for day, held in days.items()}
            for what, days in self._held.items()
        }

    def held_now(self, what: _Held) -> tuple[int, Amount]:
        """How many attempts of a job or a group are open, and what they hold together."""
        days = self._held.get(what, {}).values()
        amount = Amount(
            cpu_millis=sum(held.cpu for held in days),
            memory_bytes=sum(held.memory for held in days),
            chips=sum(held.devices for held in days),
        )
        return sum(held.attempts for held in days), amount

    def since(self, what: _Held, first: int, now_ms: int, variant: Callable[[str], str]) -> Used:
        """What the open attempts of a job or a group have held since a day."""
        total = Used()
        first = max(first, now_ms // DAY_MS - KEPT_DAYS + 1)
        for day, held in self._held.get(what, {}).items():
            total.add(held.until(now_ms, None if day >= first else first * DAY_MS, variant))
        return total

    def days(
        self, what: _Held, first: int, now_ms: int, variant: Callable[[str], str]
    ) -> Iterator[tuple[int, Used]]:
        """The same by day; an attempt counts on the last one."""
        by_day = self._held.get(what, {})
        last = now_ms // DAY_MS
        began = min(by_day, default=last + 1)
        for day in range(max(first, began, last - KEPT_DAYS + 1), last + 1):
            total = Used()
            for since, held in by_day.items():
                if since <= day:
                    end_ms = min((day + 1) * DAY_MS, now_ms)
                    total.add(held.until(end_ms, None if since == day else day * DAY_MS, variant))
            if day < last:
                total.attempts = 0
            yield day, total


class RunningInPools(RunningUsage):
    """The same of attempts on hosts of pools: by user, and in the place of the project by pool."""

    _is_by_pool = True
