"""The reference scheduler: applies the rules task by task and worker by worker, without
optimisation.

What `plan` places must be exactly what this places. Reservations and eviction are not in it.
Sources: docs/design/semantics.md#coscheduling, docs/design/semantics.md#order,
docs/design/semantics.md#constraints-and-resources; the order of workers and groups as the scheduler
documents it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec.structs import astuple

from iris_core.messages.scheduler_state import FullSnapshot, JobRow, WorkerRow
from iris_core.placement import constraints
from iris_core.placement.priority import priority_key
from iris_core.placement.window import places_beyond
from iris_core.spec.jobs import Attribute
from iris_core.spec.resources import NOTHING
from iris_core.states import PriorityBand, WorkerState
from iris_scheduler.settings import SchedulerSettings

Amounts = list[int]
NONE = (*astuple(NOTHING), 0)
Way = tuple[tuple[str, ...], tuple[str, ...]]
"""The attributes by which workers are grouped, an empty one for any value, and the preferred ones
besides.
"""
LIMITS = ("max_running_cpu", "max_running_memory", "max_running_accelerators")


def ask_of(row: JobRow) -> Amounts:
    """CPU, memory, disk, chips and so on, and one place in the building window."""
    return [*astuple(row.resources.amount), 1]


def fits(ask: Amounts, room: Amounts) -> bool:
    return all(not wanted or wanted <= left for wanted, left in zip(ask, room, strict=True))


def plus(one: Amounts, other: Amounts, sign: int = 1) -> Amounts:
    return [a + sign * b for a, b in zip(one, other, strict=True)]


def ways(row: JobRow) -> list[Way]:
    """How workers may be grouped for a gang: with every level, then without the innermost preferred
    one, and so on.
    """
    device, by = (
        row.resources.device,
        [(one.key, one.mode) for one in row.levels] or [(row.group_by, "required")],
    )
    rest = [row.within, "device-variant" if device is not None and len(device.variants) > 1 else ""]
    found, near = [], list[str]()
    while True:
        keys = [key for key, _ in by if key not in near]
        found.append(((*(keys or [""]), *rest), tuple(near)))
        preferred = [key for key, mode in by if mode == "preferred" and key not in near]
        if not preferred:
            return found
        near.insert(0, preferred[0])


class SlowScheduler:
    """One cycle on one snapshot; `placed` is the answer, in the order of placing."""

    def __init__(self, snapshot: FullSnapshot, now_ms: int) -> None:
        self.now_ms = now_ms
        self.counted_since_ms = now_ms - SchedulerSettings().stop_timeout_ms
        self.rows = {row.job: row for row in snapshot.jobs}
        self.workers = {row.worker: row for row in snapshot.workers}
        there = [name for name, row in self.workers.items() if row.state is not WorkerState.LOST]
        self.order = sorted(there, key=lambda name: (self.workers[name].total.chips > 0, name))
        self.quotas = {quota.user: quota for quota in snapshot.quotas}
        self.waiting = {
            q.job: [i for start, stop in q.ranges for i in range(start, stop)]
            for q in snapshot.queued
        }
        self.free: dict[str, Amounts] = {}
        self.stopping: dict[str, Amounts] = {}
        self.running: dict[str, Amounts] = {}
        self.preparing = {name: Counter[str]() for name in self.workers}
        self.full_windows = set[str]()
        self._count_holds(snapshot)
        self.avoids = {(a.job, a.index, a.worker): a.until_ms for a in snapshot.avoid}
        self.nominations = self._good_promises(
            {(p.job, p.index): p.worker for p in snapshot.nominations}
        )
        self.placed: dict[tuple[int, int], str] = {}

    def _count_holds(self, snapshot: FullSnapshot) -> None:
        for name, row in self.workers.items():
            self.free[name] = [*astuple(row.total), row.max_building]
            self.stopping[name] = list(NONE)
        for hold in snapshot.holds:
            job = self.rows[hold.ref.job]
            held = [*ask_of(job)[:-1], int(hold.building)]
            self.running[job.user] = plus(self.running.get(job.user, list(NONE)), held)
            if hold.worker in self.workers:
                self.preparing[hold.worker][job.user] += hold.building
                self.free[hold.worker] = plus(self.free[hold.worker], held, -1)
                if hold.stopping and hold.stopping_ms >= self.counted_since_ms:
                    self.stopping[hold.worker] = plus(self.stopping[hold.worker], held)

    def plan(self) -> dict[tuple[int, int], str]:
        """The worker of every task that is placed: first as if all were one user's, then beyond
        the windows that are full, within the share of each user.
        """
        self._place_bands()
        self.full_windows = {name for name in self.workers if self._room(name)[-1] <= 0}
        self._place_bands()
        return self.placed

    def _place_bands(self) -> None:
        for band in PriorityBand:
            jobs = sorted(
                (self.rows[job] for job in self.waiting if self.rows[job].band is band),
                key=self._key,
            )
            gangs, singles = [j for j in jobs if j.group_by], [j for j in jobs if not j.group_by]
            later_gangs = [job for job in gangs if not self._gang(job, over_quota=False)]
            later = [job for job in singles if not self._singles(job, over_quota=False)]
            for job in later_gangs:
                self._gang(job, over_quota=True)
            for job in later:
                self._singles(job, over_quota=True)

    @staticmethod
    def _key(row: JobRow) -> tuple[int, ...]:
        return priority_key(
            row.band,
            row.depth,
            row.root_submitted_ms,
            row.submitted_ms,
            row.job,
            steps=row.steps,
        )

    # ── promises ──────────────────────────────────────────────────────────────────────────────────

    def _good_promises(self, nominations: dict[tuple[int, int], str]) -> dict[tuple[int, int], str]:
        good = {
            task: worker for task, worker in nominations.items() if self._may_ever(task, worker)
        }
        for name in self.workers:
            wanted = list(NONE)
            for (job, _), worker in good.items():
                if worker == name:
                    wanted = plus(wanted, ask_of(self.rows[job]))
            if not fits(wanted, plus(self.free[name], self.stopping[name])):
                good = {task: worker for task, worker in good.items() if worker != name}
        broken = {
            job for job, _ in nominations if self.rows[job].group_by and not self._whole(job, good)
        }
        return {task: worker for task, worker in good.items() if task[0] not in broken}

    def _may_ever(self, task: tuple[int, int], worker: str) -> bool:
        row = self.workers.get(worker)
        return (
            row is not None
            and task[1] in self.waiting.get(task[0], [])
            and self._takes(self.rows[task[0]], row)
        )

    def _whole(self, job: int, good: dict[tuple[int, int], str]) -> bool:
        """Whether all of a gang has good promises, on workers of one group for each slice, in one
        domain.
        """
        row, indexes = self.rows[job], self.waiting.get(job, [])
        required = ways(row)[-1]
        names = [good[job, index] for index in indexes if (job, index) in good]
        if not names or len(names) < len(indexes):
            return False
        size = len(names) // row.slices
        groups = [
            {self._group_of(required, name) for name in names[at : at + size]}
            for at in range(0, len(names), size)
        ]
        values = set().union(*groups)
        return (
            None not in values
            and sum(map(len, groups)) == len(values)
            and len({v[1:] for v in values if v}) == 1
        )

    def _group_of(self, way: Way, name: str) -> tuple[Attribute, ...] | None:
        """The group of a worker and its domain."""
        keys, attributes = way[0], self.workers[name].attributes
        values = tuple(attributes.get(key) if key else "" for key in keys)
        return None if None in values else values

    def room_of(self, name: str, user: str) -> Amounts:
        """What a worker has for a user to whom nothing is promised there."""
        room = self._room(name)
        if name in self.full_windows:
            size, by_user = self.workers[name].max_building, self.preparing[name]
            users = sum(bool(count) for of, count in by_user.items() if of != user) + 1
            room[-1] = places_beyond(size, size - room[-1], by_user[user], users)
        return room

    def _waits_for_promise(self, row: JobRow) -> bool:
        """Whether, in the second turn, something is promised to a task of a job still."""
        promised = {task for task in self.nominations if task[0] == row.job}
        return bool(self.full_windows) and bool(promised - self.placed.keys())

    def _room(self, name: str, *, without: tuple[int, int] | None = None) -> Amounts:
        """What a worker has for somebody to whom nothing is promised there, or for the one promised
        ``without``.
        """
        wanted = list(NONE)
        for task, worker in self.nominations.items():
            if worker == name and task != without and self.placed.get(task) != name:
                wanted = plus(wanted, ask_of(self.rows[task[0]]))
        lack = [max(0, w - s) for w, s in zip(wanted, self.stopping[name], strict=True)]
        return plus(self.free[name], list(NONE) if without else lack, -1)

    # ── placing ───────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _takes(row: JobRow, worker: WorkerRow) -> bool:
        return worker.state is WorkerState.HEALTHY and constraints.eligible(
            row.constraints, row.resources, worker.attributes
        )

    def _over_quota(self, row: JobRow, tasks: int) -> bool:
        quota = self.quotas.get(row.user)
        if quota is None:
            return False
        ask, running = ask_of(row), self.running.get(row.user, list(NONE))
        for limit, dimension in zip(
            (getattr(quota, name) for name in LIMITS), (0, 1, 3), strict=True
        ):
            if limit and ask[dimension] and running[dimension] + tasks * ask[dimension] > limit:
                return True
        return False

    def _put(self, row: JobRow, index: int, name: str) -> None:
        self.placed[row.job, index] = name
        self.preparing[name][row.user] += 1
        self.free[name] = plus(self.free[name], ask_of(row), -1)
        self.running[row.user] = plus(self.running.get(row.user, list(NONE)), ask_of(row))

    def _singles(self, row: JobRow, *, over_quota: bool) -> bool:
        """False when some tasks must let everyone else go first."""
        in_turn = True
        if self._waits_for_promise(row):
            return in_turn
        for index in self.waiting[row.job]:
            if (row.job, index) in self.placed:
                continue
            nominated = self.nominations.get((row.job, index))
            if nominated and fits(ask_of(row), self._room(nominated, without=(row.job, index))):
                self._put(row, index, nominated)
            elif not over_quota and self._over_quota(row, 1):
                in_turn = False
            else:
                self._single(row, index)
        return in_turn

    def _single(self, row: JobRow, index: int) -> None:
        candidates = []
        for place, name in enumerate(self.order):
            until_ms = self.avoids.get((row.job, index, name))
            delayed = until_ms is not None and until_ms > self.now_ms
            if (
                self._takes(row, self.workers[name])
                and not delayed
                and fits(ask_of(row), self.room_of(name, row.user))
            ):
                late = until_ms is not None
                preference = 0 if late else -_rank(row, self.workers[name])
                candidates.append((late, preference, place, name))
        if candidates:
            self._put(row, index, min(candidates)[3])

    def _gang(self, row: JobRow, *, over_quota: bool) -> bool:
        """False when it must let everyone else go first."""
        indexes = self.waiting[row.job]
        if (row.job, indexes[0]) in self.placed or self._waits_for_promise(row):
            return True
        if (row.job, indexes[0]) in self.nominations:
            places = {index: self.nominations[row.job, index] for index in indexes}
            if all(
                fits(ask_of(row), self._room(name, without=(row.job, i)))
                for i, name in places.items()
            ):
                for index, name in places.items():
                    self._put(row, index, name)
                return True
        if not over_quota and self._over_quota(row, len(indexes)):
            return False
        seats = self._group_for(row, len(indexes))
        for index, name in zip(indexes, seats, strict=False):
            self._put(row, index, name)
        return True

    def _group_for(self, row: JobRow, size: int) -> list[str]:
        avoided = [
            (worker, until) for (job, _, worker), until in self.avoids.items() if job == row.job
        ]
        delayed = {worker for worker, until_ms in avoided if until_ms > self.now_ms}
        late = {worker for worker, until_ms in avoided if until_ms <= self.now_ms}
        found = (
            self._group_of_a_way(row, size // row.slices, way, delayed, late) for way in ways(row)
        )
        return next((names for names in found if names), [])

    def _group_of_a_way(
        self, row: JobRow, size: int, way: Way, delayed: set[str], late: set[str]
    ) -> list[str]:
        near = way[1]
        groups: dict[tuple[Attribute, ...], list[str]] = {}
        for name in self.order:
            value = self._group_of(way, name)
            if value is not None:
                groups.setdefault(value, []).append(name)
        found = []
        for value, names in groups.items():
            usable = [name for name in names if self._may(row, name) and name not in delayed]
            free = [name for name in usable if self._takes(row, self.workers[name])]
            free = [name for name in free if fits(ask_of(row), self.room_of(name, row.user))]
            if len(free) >= size:
                ranks = [_rank(row, self.workers[name]) for name in usable]
                preference = -(sum(ranks) * 1024 // len(ranks))
                is_late = any(name in late for name in names)
                wasteful = not row.resources.amount.chips and any(
                    self.workers[name].total.chips for name in names
                )
                order = [(isinstance(one, str), one) for one in value]
                needed = (
                    self._domains(self._nearest(free, size, near), near) if row.slices == 1 else 0
                )
                found.append(
                    (
                        (needed, is_late, preference, wasteful, len(free) - size, order),
                        value[1:],
                        names,
                        free,
                    )
                )
        if row.slices == 1:
            if not found:
                return []
            rank, *_, free = min(found, key=lambda entry: entry[0])
            return self._seats(free, size, near, wasteful=rank[3])
        best: list[Any] = []
        for domain in sorted(
            {entry[1] for entry in found}, key=lambda one: [(isinstance(v, str), v) for v in one]
        ):
            here = sorted(
                (entry for entry in found if entry[1] == domain), key=lambda entry: entry[0]
            )
            if len(here) >= row.slices:
                firsts = {min(entry[2], key=self._seat): entry for entry in here}
                taken = [firsts[name] for name in self._nearest(list(firsts), row.slices, near)]
                ranks = [entry[0] for entry in taken]
                needed = self._domains(self._nearest(list(firsts), row.slices, near), near)
                is_late, preference, wasteful = (
                    any(r[1] for r in ranks),
                    sum(r[2] for r in ranks),
                    any(r[3] for r in ranks),
                )
                best.append(
                    (needed, is_late, preference, wasteful, len(here) - row.slices, ranks, taken)
                )
        if not best:
            return []
        *_, chosen = min(best, key=lambda entry: entry[:6])
        chosen.sort(key=lambda entry: entry[0][5])
        return [
            name
            for rank, *_, free in chosen
            for name in self._seats(free, size, (), wasteful=rank[3])
        ]

    def _domain_of(self, name: str, key: str) -> tuple[int, Any, str]:
        """The domain of a worker on a preferred level, which is one of its own where it has none;
        in order.
        """
        value = self.workers[name].attributes.get(key)
        return (
            (2, "", self.order.index(name)) if value is None else (isinstance(value, str), value, 0)
        )  # type: ignore[return-value]

    def _domains(self, names: list[str], near: tuple[str, ...]) -> int:
        return len({self._domain_of(name, near[0]) for name in names}) if near else 0

    def _nearest(self, names: list[str], wanted: int, near: tuple[str, ...]) -> list[str]:
        """So many of them, in the fewest domains: the largest first, and the last the smallest that
        is enough.
        """
        if not near:
            return names[:wanted]
        inside: dict[Any, list[str]] = {}
        for name in names:
            inside.setdefault(self._domain_of(name, near[0]), []).append(name)
        parts = {}
        while wanted and inside:
            enough = [domain for domain in inside if len(inside[domain]) >= wanted]
            most = max(map(len, inside.values()))
            domain = (
                min(enough, key=lambda one: (len(inside[one]), one))
                if enough
                else min(one for one in inside if len(inside[one]) == most)
            )
            parts[domain] = self._nearest(
                here := inside.pop(domain), min(wanted, len(here)), near[1:]
            )
            wanted -= len(parts[domain])
        return [name for domain in sorted(parts) for name in parts[domain]]

    def _seats(
        self, free: list[str], size: int, near: tuple[str, ...], *, wasteful: bool
    ) -> list[str]:
        free.sort(key=self._seat)
        if wasteful:
            free.sort(key=lambda name: self.workers[name].total.chips > 0)
        chosen = self._nearest(free, size, near)
        return sorted(
            chosen,
            key=lambda name: ([self._domain_of(name, key) for key in near], self._seat(name)),
        )

    def _may(self, row: JobRow, name: str) -> bool:
        return constraints.eligible(row.constraints, row.resources, self.workers[name].attributes)

    def _seat(self, name: str) -> tuple[bool, float, str]:
        number = self.workers[name].attributes.get("tpu-worker-id")
        return (number is None, float(number or 0), name)


def _rank(row: JobRow, worker: WorkerRow) -> int:
    """How many of the preferred constraints hold."""
    return sum(
        constraints.matches(one, worker.attributes)
        for one in constraints.preferred(row.constraints)
    )
