"""Figures of pools and slices for Prometheus: gauges of the records, sums of time, and what became of
requests.

Their number is bounded by that of pools. Source: docs/design/fleet.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from iris_core.states import SliceCause, SliceStatus
from iris_core.tables.slice import OPEN
from iris_service.telemetry import gauges
from iris_state.fleet.scene import scene_of
from iris_state.machine.machine import Machine
from iris_state.records.fleet_changes import SliceMoved
from iris_state.views.cluster.waiting import packed_work

S = SliceStatus
BOOTS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)
"""Buckets for boots, in seconds."""
REFUSALS = frozenset(
    {
        SliceCause.EXHAUSTED,
        SliceCause.REFUSED,
        SliceCause.CREATE_FAILED,
        SliceCause.NO_ANSWER,
        SliceCause.BOOT_FAILED,
        SliceCause.BOOT_TIMEOUT,
    }
)
"""Causes with which a request came to nothing."""
_HOUR_MS = 3_600_000


class FleetMetrics(Collector):
    """Gauges over the records, computed at each scrape; times and costs are summed from one scrape to
    the next.
    """

    def __init__(self, machine: Callable[[], Machine]) -> None:
        self._machine = machine
        self._refused = Tally[tuple[str, str]]()
        self._boots: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BOOTS) + 1))
        self._boot_s: dict[str, float] = defaultdict(float)
        self._used_s: dict[tuple[str, str], float] = {}
        self._cost: dict[str, float] = {}
        self._summed_ms = 0

    def moved(self, change: SliceMoved) -> None:
        """A judgement about a slice is durable."""
        one = self._machine().ledger.fleet.slices.get(change.number)
        if one is None:
            return
        if change.cause in REFUSALS and change.status in (S.FAILED, S.DELETING):
            self._refused[one.pool, change.cause.value] += 1
        if change.status is S.READY and change.cause is SliceCause.REGISTERED:
            seconds = (one.ready_ms - one.requested_ms) / 1000
            self._boots[one.pool][bisect_left(BOOTS, seconds)] += 1
            self._boot_s[one.pool] += seconds

    def collect(self) -> Iterable[Metric]:
        self._sum()
        yield from self._gauges()
        yield from self._sums()
        yield from self._requests()

    def _sum(self) -> None:
        """Add the time since the last scrape to what is summed."""
        now_ms = self._machine().last_ms
        passed_ms = max(0, now_ms - self._summed_ms) if self._summed_ms else 0
        self._summed_ms = now_ms
        scene = scene_of(self._machine().ledger)
        for pool in scene.fleet.pools:
            for use in ("busy", "idle"):
                self._used_s.setdefault((pool, use), 0.0)
            self._cost.setdefault(pool, 0.0)
            for one in scene.fleet.of_pool(pool):
                if one.status is S.READY:
                    use = "idle" if scene.idle_since_ms(one) else "busy"
                    self._used_s[pool, use] += passed_ms / 1000
                if one.is_open and one.asked_ms:
                    self._cost[pool] += one.spec.price * passed_ms / _HOUR_MS

    def _gauges(self) -> Iterator[Metric]:
        ledger = self._machine().ledger
        fleet = ledger.fleet
        slices = {(pool, status.value): 0 for pool in fleet.pools for status in S if status in OPEN}
        overdue = dict.fromkeys(fleet.pools, 0)
        for one in fleet.slices.values():
            if one.is_open and one.pool in overdue:
                slices[one.pool, one.status.value] += 1
                overdue[one.pool] += one.overdue
        yield gauges("iris_fleet_slices", "Slices of pools.", ["pool", "status"], slices)
        need = dict.fromkeys(fleet.pools, 0)
        if need:
            need |= packed_work(ledger).need.new
        words = "Slices that a pool would still make for waiting work."
        yield gauges("iris_fleet_need_slices", words, ["pool"], need)
        words = (
            "1 of a pool that makes nothing because of a refusal, or because too much of it fails."
        )
        halted = {
            name: int(bool(pool.growth.refused or pool.growth.stopped))
            for name, pool in fleet.pools.items()
        }
        yield gauges("iris_fleet_pool_paused", words, ["pool"], halted)
        words = "Slices whose deletion takes longer than it may."
        yield gauges("iris_fleet_slices_overdue", words, ["pool"], overdue)
        yield GaugeMetricFamily(
            "iris_fleet_orphans",
            "Slices that providers list and no record has.",
            value=sum(1 for _ in ledger.sightings.orphans(fleet)),
        )
        yield GaugeMetricFamily(
            "iris_fleet_dry_run",
            "1 with `[fleet] dry_run`: what pools need is told, and nothing is made.",
            value=int(ledger.fleet_policy.dry_run),
        )

    def _sums(self) -> Iterator[Metric]:
        words = "Time of ready slices, with and without work."
        used = CounterMetricFamily("iris_fleet_slice_seconds", words, labels=["pool", "use"])
        for labels, seconds in self._used_s.items():
            used.add_metric(labels, seconds)
        yield used
        words = "What slices have cost, in the unit of the pool's price."
        cost = CounterMetricFamily("iris_fleet_cost", words, labels=["pool"])
        for pool, sum_ in self._cost.items():
            cost.add_metric([pool], sum_)
        yield cost

    def _requests(self) -> Iterator[Metric]:
        words = "Requests for slices that came to nothing."
        refused = CounterMetricFamily("iris_fleet_refusals", words, labels=["pool", "cause"])
        for labels, count in self._refused.items():
            refused.add_metric(labels, count)
        yield refused
        words = "Time from the request for a slice until its hosts could be used."
        boots = HistogramMetricFamily("iris_fleet_boot_seconds", words, labels=["pool"])
        bounds = [*map(str, BOOTS), "+Inf"]
        for pool, counts in self._boots.items():
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            boots.add_metric([pool], buckets, sum_value=self._boot_s[pool])
        yield boots
