"""B15: what a fleet that makes and deletes its own hosts costs and how long its tasks wait, on a
day of load in the simulated cloud of the tests, beside an oracle and a plain rule.

The day has a tide, bursts, and spot hosts that are taken away. The oracle knows every task before it
comes: it starts each when Iris did, loses none, packs without waste, and has hosts boot just in time;
a host without work is kept only where that is cheaper than booting another. So nothing can cost less
at equal wait. The plain rule asks for a host for each pending task that has none coming, and deletes
what was idle as long as Iris does. In the detail: CPU of one round of decisions for a large fleet.
"""

from __future__ import annotations

import gc
import math
import random
import resource
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from benchmarks.result import Row
from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import Amount, ResourceRequest
from iris_core.states import SliceCause, SliceStatus, WorkerState
from iris_state.fleet import pools
from iris_state.fleet.facts import HostFacts
from iris_state.records.fleet.packing import PendingWork
from iris_state.records.fleet_changes import SliceMoved, SliceRequested
from tests.sim.fleet.cloud import CloudFaults, Instance
from tests.sim.fleet.world import FleetWorld, Work, cpu_pool

GOAL = 1.25
GOAL_ROUND_MS = 50.0
SEED = 15
DAY_S = 86_400
QUICK_S = 10_800
HOST_MILLIS = 4000
MOST = 40
IDLE_S = 120.0
BOOT_S = (60, 180)
PREEMPTED = 0.1
BURSTS_A_DAY = 12
POOLS = 20
SLICES_A_POOL = 50
KINDS = 200
TASKS = 50_000


class Arrival(NamedTuple):
    """One task of the day."""

    at_s: int
    cpu_millis: int
    runs_s: int


@dataclass(slots=True)
class Day:
    """What one way to run the day cost, in host-seconds, and the waits of its tasks, in seconds."""

    host_s: float
    waits_s: list[float]

    def wait_s(self, share: float) -> float:
        """The wait that this share of the tasks did not exceed."""
        return sorted(self.waits_s)[math.ceil(share * len(self.waits_s)) - 1]


def run(quick: bool = False) -> Row:
    """Cost of the day, of the oracle's at equal wait."""
    length_s = QUICK_S if quick else DAY_S
    arrivals = day_of(SEED, length_s)
    ours, plain = DayWorld(SEED), PlainWorld(SEED)
    figures = {}
    for name, world in (("iris", ours), ("plain_rule", plain)):
        found = world.live(arrivals)
        least_s = oracle_s(world.intervals, sum(BOOT_S) / 2)
        figures[name] = {
            "host_hours": round(found.host_s / 3600, 1),
            "of_oracle": round(found.host_s / least_s, 3),
            "wait_p50_s": found.wait_s(0.5),
            "wait_p95_s": found.wait_s(0.95),
            "wait_mean_s": round(sum(found.waits_s) / len(found.waits_s), 1),
        }
    return Row(
        row="B15",
        what=f"cost of {len(arrivals):,} tasks on hosts that the cluster makes, of an oracle's",
        value=figures["iris"]["of_oracle"],
        unit="of the oracle's",
        goal=GOAL,
        better="less",
        rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        detail={
            **figures,
            "round_ms": round(round_ms(), 1),
            "round_goal_ms": GOAL_ROUND_MS,
            "round": f"{POOLS * SLICES_A_POOL:,} slices in {POOLS} pools, {TASKS:,} pending tasks",
        },
    )


# ── a day ─────────────────────────────────────────────────────────────────────────────────────────


def day_of(seed: int, length_s: int) -> list[Arrival]:
    """Tasks by the second in which they come: a tide of twelve hours, and bursts."""
    rng = random.Random(seed)
    found = []
    for second in range(length_s):
        tide = 1 + 0.9 * math.sin(2 * math.pi * second / (DAY_S / 2))
        if rng.random() < 0.02 * tide:
            found.append(_task(rng, second))
        if rng.random() < BURSTS_A_DAY / DAY_S:
            found += [_task(rng, second) for _ in range(rng.randrange(20, 120))]
    return found


def _task(rng: random.Random, second: int) -> Arrival:
    runs_s = min(3600, max(5, round(rng.lognormvariate(5.0, 1.0))))
    return Arrival(second, rng.choice((500, 1000, 1000, 2000, 4000)), runs_s)


class DayWorld(FleetWorld):
    """The simulated fleet with the load of a day.

    Attributes:
        intervals: of each task that has ended, when it began and ended, in s, and its processors in
            thousandths.
    """

    def __init__(self, seed: int) -> None:
        faults = CloudFaults(
            boot_ms=(BOOT_S[0] * 1000, BOOT_S[1] * 1000), preempted=PREEMPTED, notice=0.5
        )
        super().__init__(seed, [_pool()], faults)
        self.intervals: list[tuple[float, float, int]] = []
        self._begun: dict[str, float] = {}

    def live(self, arrivals: list[Arrival]) -> Day:
        """Have all tasks run to their ends."""
        due = sorted(arrivals, reverse=True)
        second = 0
        while due or self.work:
            while due and due[-1].at_s <= second:
                task = due.pop()
                self.submit(f"/t{len(due)}", cpu_millis=task.cpu_millis, runs_ms=task.runs_s * 1000)
            self.step()
            self._file()
            second += 1
        self.run_until(lambda: not self.cloud.present, seconds=3600)
        host_s = sum(self._paid_ms(one) for one in self.cloud.destroyed) / 1000
        return Day(host_s, list(self._begun.values()))

    def _try(self, work: Work, free: dict[str, Amount]) -> None:
        super()._try(work, free)
        if work.hosts:
            self._begun.setdefault(work.name, (self.now_ms - work.submitted_ms) / 1000)

    def _file(self) -> None:
        """Keep of ended tasks only when they ran."""
        for one in self.work:
            if one.done:
                begun_s, ended_s = (one.ends_ms - one.runs_ms) / 1000, one.ends_ms / 1000
                self.intervals.append((begun_s, ended_s, one.resources.cpu_millis))
        self.work = [one for one in self.work if not one.done]

    @staticmethod
    def _paid_ms(one: Instance) -> int:
        """Of an instance: from its creation until it was deleted, or taken away."""
        ends = [at for at in (one.gone_ms, one.preempted_ms) if at]
        return min(ends) - one.created_ms


class PlainWorld(DayWorld):
    """The same with the plain rule in place of the decisions of Iris."""

    def _round(self) -> None:
        waiting = sum(1 for one in self.work if one.is_waiting)
        coming = sum(1 for one in self.fleet.slices.values() if one.is_coming)
        taken = {one.slot for one in self.fleet.slices.values() if one.is_open or not one.cleared}
        free = [slot for slot in range(MOST) if slot not in taken]
        for slot in free[: max(0, waiting - coming)]:
            number = self.fleet.next_number
            self.apply(SliceRequested(number=number, pool="spot", slot=slot, cause=SliceCause.NEED))
        for change in pools.steps(self.scene, []):
            self.apply(change)
        self.sightings.forget(self.fleet)


def _pool() -> PoolSpec:
    return cpu_pool(
        "spot", max=MOST, idle_s=IDLE_S, create_rate=MOST, delete_rate=MOST, capacity="spot"
    )


# ── the oracle ────────────────────────────────────────────────────────────────────────────────────


def oracle_s(intervals: list[tuple[float, float, int]], boot_s: float) -> float:
    """The least host-seconds for tasks that run then: as many hosts as their processors fill, each
    booted just in time, and kept without work where that costs less than booting it again.
    """
    steps: dict[float, int] = {}
    for begun_s, ended_s, cpu_millis in intervals:
        steps[begun_s] = steps.get(begun_s, 0) + cpu_millis
        steps[ended_s] = steps.get(ended_s, 0) - cpu_millis
    used = 0
    level = 0
    cost_s = 0.0
    idle_since: dict[int, float] = {}
    times = sorted(steps)
    for at_s, next_s in pairwise([*times, times[-1]]):
        used += steps[at_s]
        wanted = math.ceil(used / HOST_MILLIS)
        for host in range(level, wanted):
            gap_s = at_s - idle_since[host] if host in idle_since else math.inf
            cost_s += min(gap_s, boot_s)
        for host in range(wanted, level):
            idle_since[host] = at_s
        level = wanted
        cost_s += level * (next_s - at_s)
    return cost_s


# ── a round ───────────────────────────────────────────────────────────────────────────────────────


def round_ms() -> float:
    """CPU of one round of a large fleet whose pools are full and busy, in ms; the best of five."""
    world = FleetWorld(
        SEED, [cpu_pool(f"p{number}", max=60) for number in range(POOLS)], CloudFaults()
    )
    for pool in range(POOLS):
        for slot in range(SLICES_A_POOL):
            number = world.fleet.next_number
            cause = SliceCause.MIN
            world.apply(SliceRequested(number=number, pool=f"p{pool}", slot=slot, cause=cause))
            for status, why in (
                (SliceStatus.CREATING, SliceCause.ACCEPTED),
                (SliceStatus.READY, SliceCause.REGISTERED),
            ):
                world.apply(SliceMoved(number=number, status=status, handler="", cause=why))
    hosts = {
        name: HostFacts(WorkerState.HEALTHY, open=1)
        for one in world.fleet.slices.values()
        for name in one.hosts
    }
    work = [
        PendingWork(
            example=f"/c{number}",
            resources=ResourceRequest(cpu_millis=1000 + number),
            tasks=TASKS // KINDS,
            jobs=TASKS // KINDS,
        )
        for number in range(KINDS)
    ]
    scene = replace(world.scene, hosts=hosts)
    return min(_round_ms(scene, work) for _ in range(5))


def _round_ms(scene: pools.Scene, work: list[PendingWork]) -> float:
    gc.collect()
    began_s = time.process_time()
    for _ in pools.steps(scene, work):
        pass
    return (time.process_time() - began_s) * 1000
