"""The single tasks that have waited so long that a host is reserved for them, unless they start.

Of each band and kind of device it is the first in the order of the queue that could start on a
worker that was empty, while there are smaller tasks that take what becomes free. Tasks that come
before it in that order still pass it.
Source: docs/design/semantics.md#order; docs/adr/0143-a-waiting-task-reserves-a-host.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sortedcontainers import SortedList

from iris_core.states import PriorityBand
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.mirror.capacity import fitting
from iris_scheduler.mirror.classes import Amounts, JobClass, SameAmounts, job_at


class Heads:
    """The jobs whose next task is due for a reservation, in one cycle.

    Args:
        may_start: whether another task of a job may start, by the limits of its job and its user.

    Attributes:
        jobs: all of them.
    """

    def __init__(self, cycle: Cycle, may_start: Callable[[int], bool]) -> None:
        self._cycle = cycle
        self._may_start = may_start
        self._fits: dict[JobClass, bool] = {}
        self._by_band: dict[PriorityBand, list[int]] = {}
        for (band, _), waiting in cycle.mirror.lines.items():
            place = self._first(waiting, cycle.mirror.smallest(band))
            if place is not None:
                self._by_band.setdefault(band, []).append(job_at(place))
        self.jobs = frozenset(job for jobs in self._by_band.values() for job in jobs)

    def of(self, band: PriorityBand) -> Sequence[int]:
        """Those of a band."""
        return self._by_band.get(band, ())

    def _first(self, waiting: Mapping[Amounts, SameAmounts], least: Sequence[int]) -> int | None:
        """The place of the first job that is due.

        ``least``: of each dimension the least that something asks for which may go before it.
        """
        if len(waiting) == 1 and not any(_exceeds(amounts, least) for amounts in waiting):
            return None
        best: int | None = None
        for amounts, line in sorted(waiting.items(), key=_first_of):
            if best is not None and line.first > best:
                break
            if not _exceeds(amounts, least):
                continue
            place, is_last = self._first_due(line.places)
            if place is not None and (best is None or place < best):
                best = place
            if is_last:
                break
        return best

    def _first_due(self, line: SortedList) -> tuple[int | None, bool]:
        """The place of the first job in a line that is due, and whether no later one can be."""
        cycle = self._cycle
        mirror = self._cycle.mirror
        delay_ms = cycle.settings.task_reservation_after_ms
        for place in line:
            job = job_at(place)
            if not self._fits_empty(mirror.kinds[job]):
                continue
            row = mirror.jobs[job]
            due_ms = mirror.since_ms[job] + delay_ms
            if due_ms < cycle.now_ms:
                if not cycle.is_paused(job) and self._may_start(job):
                    return int(place), False
                continue
            cycle.wake_at(due_ms + 1)
            if row.depth <= 1 and row.submitted_ms + delay_ms >= cycle.now_ms:
                return None, True
        return None, False

    def _fits_empty(self, kind: JobClass) -> bool:
        """Whether a task could start on a worker that was empty."""
        fits = self._fits.get(kind)
        if fits is None:
            slots = self._cycle.columns.usable(kind).slots
            fits = bool(fitting(self._cycle.mirror.hosts.totals(), kind.need, slots).any())
            self._fits[kind] = fits
        return fits


def _first_of(line: tuple[Amounts, SameAmounts]) -> int:
    return line[1].first


def _exceeds(amounts: Sequence[int], least: Sequence[int]) -> bool:
    """Whether something asks for less of something than these amounts."""
    return any(amount > smaller for amount, smaller in zip(amounts, least, strict=True))
