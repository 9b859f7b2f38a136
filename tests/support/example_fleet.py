"""Pools of the example cluster: one that grows, one at its maximum, one without capacity, others that
are paused, stopped, large or empty.

Its records are made by the changes that a real cluster writes.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from iris_core.access.actor import Actor
from iris_core.placement.pools import host_attributes
from iris_core.placement.reasons import Reason, ReasonCode
from iris_core.spec.jobs import Coscheduling, JobSpec
from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import Device, HostResources, ResourceRequest
from iris_core.states import JobState, KernelStatus, SliceCause, SliceStatus, WorkerState
from iris_state.records import changes as c
from iris_state.records import fleet_changes as f
from iris_state.records.fleet.records import Growth
from iris_state.records.ledger import Ledger
from tests.support.example_cluster import happen
from tests.support.gateway import House

S, C = SliceStatus, SliceCause
CPU_POOL, LARGE_POOL, EMPTY_POOL = "cpu", "render", "h100"
FULL_POOL, EXHAUSTED_POOL = "v5e-reserved", "v5e-spot"
REFUSED_POOL = "v6e-with-a-rather-long-name-in-us-east5a"
STOPPED_POOL = "highmem"
PAUSED_POOL = "night-only"
POOLS = (
    *(CPU_POOL, LARGE_POOL, EMPTY_POOL, FULL_POOL, EXHAUSTED_POOL),
    *(REFUSED_POOL, STOPPED_POOL, PAUSED_POOL),
)
_MIA = Actor("mia", "admin")
_ON_WAY = (
    (S.CREATING, "RequestSlice", C.ACCEPTED),
    (S.READY, "BootSlice", C.REGISTERED),
    (S.DRAINING, "CheckSlice", C.IDLE),
    (S.DELETING, "DrainSlice", C.DRAINED),
    (S.DELETED, "DeleteSlice", C.NOT_LISTED),
)
_STOCKOUT = "there is no more capacity for v5litepod-16 in the zone eu-west4-b"
_FORBIDDEN = "the caller does not have the permission tpu.nodes.create in the project research"
_LOST = "3 of 4 slices look lost within ten minutes, which single faults do not explain"


def pool_of(name: str, most: int, **more: Any) -> PoolSpec:
    """A pool of the example, of one small host unless ``more`` says another."""
    small = HostResources(cpu_millis=16_000, memory_bytes=64 << 30)
    given = {"provider": "process", "resources": small, "price": 0.64, **more}
    return PoolSpec(name=name, max=most, **given)


def _tpu(name: str, most: int, variant: str, hosts: int, zone: str, **more: Any) -> PoolSpec:
    resources = HostResources(
        cpu_millis=112_000, memory_bytes=192 << 30, disk_bytes=1 << 40, chips=4
    )
    attributes: dict[str, str | int | float] = {
        "device-type": "tpu",
        "device-variant": variant,
        "zone": zone,
    }
    options = {"program": "cloud", "zone": zone}
    shape = {"hosts": hosts, "resources": resources, "attributes": attributes}
    return pool_of(name, most, provider="exec", options=options, **shape, **more)


class FleetStory:
    """Makes pools and slices of a ledger that a gateway shows."""

    def __init__(self, iris: House, ledger: Ledger, now_ms: int) -> None:
        self.iris = iris
        self.ledger = ledger
        self.now_ms = now_ms

    async def happen(self, ago_s: float, *changes: c.Change) -> None:
        await happen(self.iris, self.ledger, self.now_ms - round(1000 * ago_s), *changes)

    async def pool(self, spec: PoolSpec, ago_s: float = 86_400) -> None:
        await self.happen(ago_s, f.PoolSet(spec, by=_MIA))

    async def slices(
        self, pool: str, count: int, status: SliceStatus, ago_s: float, *, busy: bool = False
    ) -> None:
        """So many slices that got as far as ``status``, the last time ``ago_s``."""
        for _ in range(count):
            number = self.ledger.fleet.next_number
            slot = len([one for one in self.ledger.fleet.of_pool(pool) if not one.is_over])
            began_s = ago_s + 170 + number % 60
            await self.happen(began_s, f.SliceRequested(number, pool, slot, C.NEED))
            for to, handler, cause in () if status is S.REQUESTED else _ON_WAY:
                if to is S.READY:
                    await self._register(number, ago_s)
                at_s = began_s - 8 if to is S.CREATING else ago_s
                asked_ms = self.now_ms - round(1000 * began_s)
                moved = f.SliceMoved(number, to, handler, cause, asked_ms=asked_ms)
                await self.happen(at_s, moved)
                if to is status:
                    break
            if busy:
                await self._occupy(number, ago_s)

    async def _register(self, number: int, ago_s: float) -> None:
        one = self.ledger.fleet.slices[number]
        total = one.spec.resources.amount
        for index, name in enumerate(one.hosts):
            attributes = host_attributes(one.spec, one.slot, index)
            registered = c.WorkerRegistered(name, "i", attributes, total, version="0.1.0")
            await self.happen(ago_s, registered)
            self.ledger.presence[name].heartbeat_ms = self.now_ms - 300

    async def _occupy(self, number: int, ago_s: float) -> None:
        """One job on all hosts of a slice."""
        one = self.ledger.fleet.slices[number]
        hosts = list(one.hosts)
        job = 900_000 + number
        name = f"/lin/render-{number}"
        spec = JobSpec(
            name=name,
            user="lin",
            command=("python", "render.py"),
            replicas=len(hosts),
            resources=ResourceRequest(8000, 16 << 30),
        )
        at_ms = self.now_ms - round(1000 * ago_s)
        await self.happen(ago_s, c.JobAdmitted(job, name, spec, "lin", at_ms, at_ms))
        for index, host in enumerate(hosts):
            assigned = c.Assigned(job, index, 0, host)
            await self.happen(ago_s, assigned, c.Staged(job, index, 0, KernelStatus.RUNNING))
        await self.happen(ago_s, c.JobMoved(job, JobState.RUNNING))


async def show_fleet(iris: House, ledger: Ledger, now_ms: int) -> None:
    """Give the example cluster its pools."""
    story = FleetStory(iris, ledger, now_ms)
    await show_usual(story)
    await _hindered(story)
    await story.pool(pool_of(EMPTY_POOL, 3, price=2.5))
    await story.pool(pool_of(LARGE_POOL, 600, create_rate=60, price=0.05))
    await story.slices(LARGE_POOL, 380, S.READY, 4000, busy=True)
    await story.slices(LARGE_POOL, 20, S.CREATING, 40)
    await _waiting(story)
    ledger.sightings.listed_ms = now_ms - 12_000
    ledger.now_ms = now_ms


async def show_usual(story: FleetStory) -> None:
    """Pools that nothing hinders: a small one that shrinks, a full one, one that grows."""
    await story.pool(pool_of(CPU_POOL, 40, min=1, buffer=1))
    await story.slices(CPU_POOL, 3, S.DELETED, 5000)
    await story.slices(CPU_POOL, 11, S.READY, 3000, busy=True)
    await story.slices(CPU_POOL, 2, S.READY, 500)
    await story.slices(CPU_POOL, 1, S.DRAINING, 20)
    await story.slices(CPU_POOL, 1, S.DELETING, 90)
    full = _tpu(FULL_POOL, 4, "v5litepod-16", 4, "eu-west4-b", capacity="reserved", price=15.6)
    await story.pool(full)
    await story.slices(FULL_POOL, 4, S.READY, 40_000, busy=True)
    spot = _tpu(EXHAUSTED_POOL, 16, "v5litepod-16", 4, "eu-west4-b", capacity="spot", price=4.18)
    await story.pool(spot)
    await story.slices(EXHAUSTED_POOL, 6, S.READY, 9000, busy=True)
    await story.slices(EXHAUSTED_POOL, 1, S.CREATING, 60)
    await story.slices(EXHAUSTED_POOL, 1, S.REQUESTED, 2)


async def _waiting(story: FleetStory) -> None:
    """More gangs than slices come for."""
    resources = ResourceRequest(64_000, 96 << 30, 0, Device("tpu", "v5litepod-16", 4))
    for number in range(3):
        name = f"/mia/pretrain-on-all-the-text-{number}"
        gang = Coscheduling("tpu-name")
        spec = JobSpec(
            name=name,
            user="mia",
            command=("python", "train.py"),
            replicas=4,
            resources=resources,
            coscheduling=gang,
        )
        at_ms = story.now_ms - 360_000
        job = 910_000 + number
        await story.happen(360, c.JobAdmitted(job, name, spec, "mia", at_ms, at_ms))
        words = "no slice has 4 free hosts"
        story.ledger.reasons[job] = Reason(ReasonCode.GANG_NEEDS_GROUP, words)


async def _hindered(story: FleetStory) -> None:
    off_ms = story.now_ms + 180_000
    exhausted = replace(
        story.ledger.fleet.pools[EXHAUSTED_POOL].growth,
        put_off_ms=off_ms,
        wait_ms=240_000,
        cause=C.EXHAUSTED,
        detail=_STOCKOUT,
    )
    await story.happen(420, f.PoolGrowth(EXHAUSTED_POOL, exhausted))
    await story.pool(_tpu(REFUSED_POOL, 8, "v6e-8", 2, "us-east5-a", capacity="spot", price=4.55))
    await story.happen(5400, f.PoolGrowth(REFUSED_POOL, Growth(refused=_FORBIDDEN)))
    await story.pool(pool_of(STOPPED_POOL, 8))
    await story.slices(STOPPED_POOL, 4, S.READY, 2000, busy=True)
    for host in [one for one in story.ledger.workers if one.startswith(f"{STOPPED_POOL}-")][:3]:
        await story.happen(320, c.WorkerMoved(host, WorkerState.LOST, "no heartbeat for 20 s"))
    await story.happen(300, f.PoolGrowth(STOPPED_POOL, Growth(stopped=_LOST)))
    await story.pool(pool_of(PAUSED_POOL, 12))
    await story.slices(PAUSED_POOL, 2, S.READY, 1000)
    paused = pool_of(PAUSED_POOL, 12, paused=True)
    await story.happen(700, f.PoolSet(paused, by=_MIA, reason="only at night, from 22:00 on"))
