"""Large clusters and queues for the benchmarks of the scheduler, deterministic; nothing is measured
here.
"""

from __future__ import annotations

from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import (
    Delta,
    FullSnapshot,
    Hold,
    JobRow,
    Plan,
    Queued,
    WorkerRow,
)
from iris_core.spec.jobs import TASKS, Attribute, Constraint
from iris_core.spec.resources import Amount, Device, ResourceRequest
from iris_core.states import ConstraintOp, PriorityBand, WorkerState
from iris_scheduler.mirror.mirror import Mirror

GIB = 1 << 30
NOW_MS = 1_700_000_000_000
ZONES = 8
RACKS = 40
SLICE = 4


def workers(count: int, tpu_share: float = 0.4) -> tuple[WorkerRow, ...]:
    """Hosts of two kinds: CPU hosts of 32 or 64 cores, and VMs of TPU slices of four."""
    slices = int(count * tpu_share) // SLICE
    hosts = [_vm(slice_number, member) for slice_number in range(slices) for member in range(SLICE)]
    return (*hosts, *(_cpu_host(number) for number in range(count - len(hosts))))


def _vm(slice_number: int, member: int) -> WorkerRow:
    attributes: dict[str, Attribute] = {
        "zone": f"zone-{slice_number % ZONES}",
        "generation": 3 + slice_number // ZONES % 4,
        "device-type": "tpu",
        "device-variant": "v5litepod-16",
        "tpu-name": f"slice-{slice_number:05d}",
        "tpu-worker-id": member,
    }
    total = Amount(112_000, 192 * GIB, 1000 * GIB, 4)
    return WorkerRow(f"slice-{slice_number:05d}-{member}", WorkerState.HEALTHY, attributes, total)


def _cpu_host(number: int) -> WorkerRow:
    attributes: dict[str, Attribute] = {
        "zone": f"zone-{number % ZONES}",
        "generation": 3 + number // ZONES % 4,
        "rack": f"rack-{number % RACKS}",
    }
    total = Amount(32_000 << (number % 2), (128 << (number % 2)) * GIB, 1000 * GIB, 0)
    return WorkerRow(f"host-{number:05d}", WorkerState.HEALTHY, attributes, total)


def resources(kind: int) -> ResourceRequest:
    """What the tasks of a class ask for: all four dimensions differ from class to class."""
    device = Device("tpu", "v5litepod-16", 1 + kind % 4) if kind % 4 == 0 else None
    return ResourceRequest(500 + 250 * (kind % 23), (1 + kind % 13) * GIB, (kind % 7) * GIB, device)


def constraints(kind: int) -> tuple[Constraint, ...]:
    """Two constraints: a place and an ordering."""
    zone = Constraint("zone", ConstraintOp.EQ, f"zone-{kind % ZONES}")
    if kind % 3 == 0:
        zone = Constraint("zone", ConstraintOp.NE, f"zone-{kind % ZONES}")
    return (zone, Constraint("generation", ConstraintOp.GE, 3 + kind % 3))


def job(number: int, kind: int, tasks: int) -> JobRow:
    """One job of a class; every twentieth class is a gang of a whole slice."""
    gang = kind % 20 == 0
    at_ms = NOW_MS - 100_000 + number
    return JobRow(
        job=number,
        name=f"/job-{number}",
        user=f"user-{number % 50}",
        band=PriorityBand.INTERACTIVE,
        depth=1 + number % 3,
        root_submitted_ms=at_ms - number % 1000,
        submitted_ms=at_ms,
        replicas=SLICE if gang else tasks,
        resources=ResourceRequest(1000 + kind, GIB, 0, Device("tpu", "v5litepod-16", 4))
        if gang
        else resources(kind),
        constraints=constraints(kind),
        group_by="tpu-name" if gang else "",
        spread="" if gang else TASKS,
    )


def queue(
    tasks: int, kinds: int, per_job: int, first: int = 1
) -> tuple[tuple[JobRow, ...], tuple[Queued, ...]]:
    """Jobs of ``kinds`` classes in turn until ``tasks`` tasks wait."""
    rows: list[JobRow] = []
    waiting = 0
    while waiting < tasks:
        number = first + len(rows)
        row = job(number, number * 7919 % kinds, min(per_job, tasks - waiting))
        rows.append(row)
        waiting += row.replicas
    return tuple(rows), tuple(
        Queued(row.job, ((0, row.replicas),), row.submitted_ms) for row in rows
    )


def snapshot(hosts: tuple[WorkerRow, ...], tasks: int, kinds: int, per_job: int) -> FullSnapshot:
    """A cluster with nothing on it and a queue."""
    rows, queued = queue(tasks, kinds, per_job)
    return FullSnapshot(1, NOW_MS, rows, hosts, queued=queued)


def accept(mirror: Mirror, made: Plan) -> None:
    """Let a mirror learn that its plan was taken."""
    opened = tuple(
        Hold(
            AttemptRef(placement.job, index, 0), made.workers[number], True, False, since_ms=NOW_MS
        )
        for placement in made.placements
        for index, number in zip(placement.indexes, placement.workers, strict=True)
    )
    mirror.apply(Delta(mirror.version + 1, NOW_MS, after=mirror.version, opened=opened))


def admit(mirror: Mirror, rows: tuple[JobRow, ...], queued: tuple[Queued, ...]) -> None:
    """Let a mirror learn of new jobs."""
    mirror.apply(Delta(mirror.version + 1, NOW_MS, after=mirror.version, jobs=rows, queued=queued))
