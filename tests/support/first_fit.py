"""The simplest scheduler: first fit in queue order, whole gangs, from a full snapshot only."""

from __future__ import annotations

from iris_core.messages.scheduler_state import (
    OCCUPIED,
    FullSnapshot,
    JobRow,
    Placement,
    Plan,
    WorkerRow,
)
from iris_core.placement import constraints
from iris_core.spec.resources import Amount
from iris_core.states import WorkerState


def plan(snapshot: FullSnapshot) -> Plan:
    """Place whatever fits, first come first; what does not fit is passed over."""
    room = _Room(snapshot)
    jobs = {row.job: row for row in snapshot.jobs}
    placements = []
    for queued in snapshot.queued:
        job = jobs[queued.job]
        indexes = [index for start, stop in queued.ranges for index in range(start, stop)]
        seats = room.gang(job, indexes) if job.group_by else room.singles(job, indexes)
        if seats:
            placements.append(
                Placement(job.job, tuple(seats), tuple(room.names.index(w) for w in seats.values()))
            )
    return Plan("first-fit", snapshot.version, tuple(room.names), tuple(placements))


class _Room:
    """What is left on each host while a plan is made."""

    def __init__(self, snapshot: FullSnapshot) -> None:
        self.hosts = {
            row.worker: row for row in snapshot.workers if row.state is WorkerState.HEALTHY
        }
        self.names = list(self.hosts)
        self.free: dict[str, Amount] = {name: row.total for name, row in self.hosts.items()}
        self.building = dict.fromkeys(self.hosts, 0)
        self.nominations = {(p.job, p.index): p.worker for p in snapshot.nominations}
        self.avoid = {
            (a.job, a.index, a.worker) for a in snapshot.avoid if a.until_ms > snapshot.at_ms
        }
        self.shut: set[str] = set()
        self.busy: set[str] = set()
        requested = {row.job: row.resources.amount for row in snapshot.jobs}
        for hold in snapshot.holds:
            if hold.worker in self.hosts:
                self.free[hold.worker] -= requested[hold.ref.job]
                self.building[hold.worker] += hold.building
                self.shut |= {hold.worker} if hold.alone else set()
                self.busy.add(hold.worker)

    def singles(self, job: JobRow, indexes: list[int]) -> dict[int, str]:
        seats = {}
        for index in indexes:
            nominated = self.nominations.get((job.job, index))
            for name in [nominated] if nominated else self.names:
                if self._fits(job, index, name):
                    seats[index] = name
                    self._take(job, name)
                    self.shut |= {name} if (job.job, index, OCCUPIED) in self.avoid else set()
                    break
        return seats

    def gang(self, job: JobRow, indexes: list[int]) -> dict[int, str]:
        """All members on the first groups with room, by ``tpu-worker-id``; nobody when there are
        too few.
        """
        if len(indexes) != job.replicas:
            return {}
        size, domains = job.replicas // job.slices, dict[object, dict[object, list[WorkerRow]]]()
        for row in self.hosts.values():
            domain = row.attributes.get(job.within) if job.within else ""
            if (
                job.group_by in row.attributes
                and domain is not None
                and self._fits(job, 0, row.worker)
            ):
                domains.setdefault(domain, {}).setdefault(row.attributes[job.group_by], []).append(
                    row
                )
        for _, groups in sorted(domains.items(), key=lambda domain: str(domain[0])):
            large = [
                rows
                for _, rows in sorted(groups.items(), key=lambda one: str(one[0]))
                if len(rows) >= size
            ]
            if len(large) >= job.slices:
                for rows in large:
                    rows.sort(key=lambda row: (row.attributes.get("tpu-worker-id", 0), row.worker))
                names = [row.worker for rows in large[: job.slices] for row in rows[:size]]
                for name in names:
                    self._take(job, name)
                return dict(zip(indexes, names, strict=True))
        return {}

    def _fits(self, job: JobRow, index: int, name: str) -> bool:
        row = self.hosts.get(name)
        return (
            row is not None
            and job.resources.amount.fits(self.free[name])
            and self.building[name] < row.max_building
            and (job.job, index, name) not in self.avoid
            and name not in self.shut
            and not (name in self.busy and (job.job, index, OCCUPIED) in self.avoid)
            and constraints.eligible(job.constraints, job.resources, row.attributes)
        )

    def _take(self, job: JobRow, name: str) -> None:
        self.free[name] -= job.resources.amount
        self.building[name] += 1
        self.busy.add(name)
