"""One simulated fleet: decisions, two provisioners, a cloud, hosts and the work on them.

The work is placed first come, first served on hosts of slices that are ready. Everything that is
random follows from the seed. Invariants are checked after each step of a second.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from iris_core.placement.constraints import TPU_NAME
from iris_core.placement.pools import is_for_devices_only
from iris_core.spec.pools import PoolSpec, Reservation
from iris_core.spec.resources import Amount, Device, HostResources, ResourceRequest
from iris_core.states import SliceCause, SliceStatus, WorkerState
from iris_state.fleet import pools
from iris_state.fleet.facts import HostFacts
from iris_state.fleet.slices import Scene
from iris_state.policy import FleetPolicy
from iris_state.records.apply.fleet import apply_change
from iris_state.records.fleet.packing import PendingWork
from iris_state.records.fleet.records import Fleet, HostPool, Slice
from iris_state.records.fleet.sightings import ListSource, ProviderOrder, Sightings
from iris_state.records.fleet_changes import FleetChange, PoolSet, SliceMoved, SliceRequested
from tests.sim.fleet.cloud import Cloud, CloudFaults
from tests.sim.violation import Violation

STEP_MS = 1_000
LIST_MS = 20_000
ROUND_MS = 5_000
BOOT_OF_WORKER_MS = 2_000
LOST_MS = 30_000
STOP_MS = 5_000
START_MS = 1_000_000_000
POLICY = FleetPolicy()

S = SliceStatus
C = SliceCause
ABRUPT = frozenset(
    {C.DEADLINE, C.HOST_LOST, C.HOST_DEGRADED, C.PREEMPTED, C.GONE, C.SPOT_NOTICE, C.BOOT_FAILED}
)
"""Causes for which a slice is deleted whatever runs there."""


@dataclass(slots=True)
class Work:
    """Tasks of one job: single ones, or a gang on the hosts of one slice."""

    name: str
    resources: ResourceRequest
    runs_ms: int
    submitted_ms: int
    gang: int = 0
    hosts: list[str] = field(default_factory=list)
    ends_ms: int = 0
    stopping_ms: int = 0
    done: bool = False

    @property
    def is_waiting(self) -> bool:
        return not self.done and not self.hosts

    @property
    def runs(self) -> bool:
        return not self.done and bool(self.hosts)


class Host(NamedTuple):
    """One registered host, beside its facts."""

    name: str
    registered_ms: int
    amount: Amount


class Message(NamedTuple):
    """An order under way to a provisioner, or an answer under way back."""

    at_ms: int
    epoch: int
    order: ProviderOrder
    answer: tuple[str, str] | None = None


class FleetWorld:
    """See above.

    Attributes:
        faults: of the cloud. leaders: chance in each step that another leader begins.
        restores: chance that one begins from a backup of some minutes ago.
        open_work: the part of ``work`` that is not done. most_allowed: the largest ``max`` that each
            pool has had: a smaller one ends nothing that works.
    """

    def __init__(
        self,
        seed: int,
        specs: Sequence[PoolSpec],
        faults: CloudFaults,
        *,
        leaders: float = 0.0,
        restores: float = 0.0,
        quota: dict[str, int] | None = None,
        policy: FleetPolicy = POLICY,
    ) -> None:
        self.rng = random.Random(seed)
        self.now_ms = START_MS
        self.policy = policy
        self.fleet = Fleet()
        self.sightings = Sightings()
        self.cloud = Cloud(self.rng, faults, quota or {})
        self.work: list[Work] = []
        self.open_work: list[Work] = []
        self.hosts: dict[str, Host] = {}
        self.lost_ms: dict[str, int] = {}
        self.last_end_ms: dict[str, int] = {}
        self.epoch = 1
        self.wires: list[Message] = []
        self.lists: list[tuple[int, int, int, object]] = []
        self.leaders = leaders
        self.restores = restores
        self.backups: list[tuple[int, bytes]] = []
        self.unheard_until_ms = 0
        self.restored = False
        self.lists_lie = False
        self.refusals: dict[str, list[int]] = {}
        self.changes: list[tuple[int, FleetChange]] = []
        self.most_allowed: dict[str, int] = {}
        self.next_round_ms = 0
        self.next_list_ms = 0
        for spec in specs:
            self.apply(PoolSet(spec))

    # ── what people do ────────────────────────────────────────────────────────────────────────────

    def submit(
        self,
        name: str,
        *,
        cpu_millis: int = 1000,
        runs_ms: int = 60_000,
        gang: int = 0,
        device: Device | None = None,
    ) -> Work:
        resources = ResourceRequest(cpu_millis=cpu_millis, device=device)
        one = Work(name, resources, runs_ms, submitted_ms=self.now_ms, gang=gang)
        self.work.append(one)
        self.open_work.append(one)
        return one

    def set_pool(self, spec: PoolSpec, *, removing: bool = False) -> None:
        self.apply(PoolSet(spec, removing=removing))

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.step()

    def run_until(self, holds: object, seconds: int) -> int:
        """Steps until ``holds()``; returns how many seconds that took."""
        for number in range(seconds):
            if holds():  # type: ignore[operator]
                return number
            self.step()
        raise Violation(f"not after {seconds} s: {self.words()}")

    def step(self) -> None:
        """One second."""
        self.now_ms += STEP_MS
        self.cloud.advance(self.now_ms)
        self._fail_over()
        self._hosts_come_and_go()
        self._work_ends()
        self._deliver()
        if self.now_ms >= self.next_list_ms:
            self.next_list_ms = self.now_ms + LIST_MS
            self._ask_for_lists()
        if self.now_ms >= self.next_round_ms:
            self.next_round_ms = self.now_ms + ROUND_MS
            self._round()
        self._place()
        self._send()
        self._check()

    @property
    def scene(self) -> Scene:
        return Scene(self.fleet, self._facts(), self.sightings, self.policy, self.now_ms)

    def apply(self, change: FleetChange) -> None:
        self.changes.append((self.now_ms, change))
        if isinstance(change, SliceMoved):
            self._judge_move(change)
        elif isinstance(change, SliceRequested) and change.cause is C.NEED:
            self._judge_need(change.pool)
        elif isinstance(change, PoolSet):
            spec = change.spec
            self.most_allowed[spec.name] = max(spec.max, self.most_allowed.get(spec.name, 0))
        apply_change(self.fleet, change, self.now_ms)

    def drain(self, one: Slice, deadline_ms: int = 0) -> None:
        """An operator wants a slice gone."""
        for change in pools.give_back(one, C.OPERATOR, deadline_ms=deadline_ms):
            self.apply(change)

    def split(self, seconds: int) -> None:
        """No host is heard for so long; all of them run."""
        self.unheard_until_ms = self.now_ms + seconds * 1000

    def _round(self) -> None:
        for change in pools.steps(self.scene, self.pending()):
            self.apply(change)
        self.sightings.forget(self.fleet)

    def pending(self) -> list[PendingWork]:
        """Waiting work by kind, as the queue tells it."""
        kinds: dict[tuple[object, int], list[Work]] = {}
        for one in self.open_work:
            if one.is_waiting:
                kinds.setdefault((one.resources, one.gang), []).append(one)
        return [
            PendingWork(
                example=works[0].name,
                resources=works[0].resources,
                tasks=sum(one.gang or 1 for one in works),
                jobs=len(works),
                size=works[0].gang,
                group_by=TPU_NAME if works[0].gang else "",
            )
            for works in kinds.values()
        ]

    # ── leaders ───────────────────────────────────────────────────────────────────────────────────

    def _fail_over(self) -> None:
        if self.restores and self.rng.random() < 0.02:
            encoded = msgspec.msgpack.encode(
                [list(self.fleet.pools.values()), list(self.fleet.slices.values())]
            )
            self.backups = [*self.backups[-20:], (self.now_ms, encoded)]
        if self.rng.random() < self.leaders:
            self._lead()
        elif self.backups and self.rng.random() < self.restores:
            self.restored = True
            self._restore(self.rng.choice(self.backups)[1])
            self._lead()

    def _lead(self) -> None:
        """Another leader: it has the records and nothing else."""
        self.epoch += 1
        self.sightings = Sightings(began_ms=self.now_ms)

    def _restore(self, encoded: bytes) -> None:
        known_pools, known_slices = msgspec.msgpack.decode(
            encoded, type=tuple[list[HostPool], list[Slice]]
        )
        highest = self.fleet.next_number
        self.fleet = Fleet()
        for pool in known_pools:
            self.fleet.pools[pool.name] = pool
        for one in known_slices:
            self.fleet.add(one)
        # A restored journal begins a new epoch, from which numbers are told apart.
        self.fleet.next_number = max(self.fleet.next_number, highest)

    # ── provisioners ──────────────────────────────────────────────────────────────────────────────

    def _send(self) -> None:
        scene = self.scene
        due = self.sightings.due(
            pools.orders(scene, terminating_timeout_ms=60_000), now_ms=self.now_ms
        )
        for order in due:
            self.wires.append(Message(self._soon(), self.epoch, order))

    def _soon(self) -> int:
        return self.now_ms + self.rng.choice((1_000, 1_000, 2_000, 7_000))

    def _deliver(self) -> None:
        arrived = [message for message in self.wires if message.at_ms <= self.now_ms]
        self.wires = [message for message in self.wires if message.at_ms > self.now_ms]
        for message in arrived:
            if message.answer is not None:
                self._on_answer(message)
            elif message.epoch == self.epoch:
                self._call(message)
        lists = [found for found in self.lists if found[0] <= self.now_ms]
        self.lists = [found for found in self.lists if found[0] > self.now_ms]
        for _, epoch, began_ms, entries in lists:
            if epoch == self.epoch:
                for source in pools.sources(self.fleet.pools, self.fleet.slices.values()):
                    self.sightings.on_list(
                        source,
                        [one for one in entries if self._source_of(one.name) == source],  # type: ignore[attr-defined]
                        began_ms=began_ms,
                        fleet=self.fleet,
                        policy=self.policy,
                    )

    def _source_of(self, name: str) -> ListSource:
        pool = self.fleet.pools.get(name.rpartition("-")[0])
        return ListSource.of(pool.spec) if pool is not None else ListSource("process")

    def _call(self, message: Message) -> None:
        """A provisioner calls the cloud; the answer may be lost after it took effect."""
        if self.cloud.is_down(self.now_ms):
            return
        order = message.order
        if order.call == "create":
            self._judge_create(order)
            pool = order.name.rpartition("-")[0]
            spec = self.fleet.slices[order.number].spec if order.number else None
            hosts = spec.hosts if spec is not None else 1
            answer = self.cloud.create(order.name, order.label, pool, hosts, self.now_ms)
            if answer[0] == "exhausted":
                self._judge_refusal(pool)
        else:
            self._judge_delete(order)
            answer = self.cloud.delete(order.name, order.label, self.now_ms)
        faults = self.cloud.faults
        if self.rng.random() < faults.answer_lost:
            return
        for _ in range(1 + (self.rng.random() < faults.answer_twice)):
            self.wires.append(message._replace(at_ms=self._soon(), answer=answer))

    def _on_answer(self, message: Message) -> None:
        if message.epoch != self.epoch or message.answer is None:
            return
        answer, detail = message.answer
        for change in pools.on_answer(self.scene, message.order, answer, detail):  # type: ignore[arg-type]
            self.apply(change)

    def _ask_for_lists(self) -> None:
        if not self.cloud.is_down(self.now_ms):
            entries = self.cloud.list(self.now_ms)
            self.lists.append((self._soon(), self.epoch, self.now_ms, entries))

    # ── hosts and work ────────────────────────────────────────────────────────────────────────────

    def _hosts_come_and_go(self) -> None:
        alive = set()
        for one in self.cloud.instances.values():
            if not one.is_running(self.now_ms):
                continue
            for index in range(one.hosts):
                name = f"{one.name}-{index}"
                if index in one.dead or self.now_ms < one.boots_ms + BOOT_OF_WORKER_MS:
                    continue
                if self.now_ms < self.unheard_until_ms:
                    continue
                alive.add(name)
                if name not in self.hosts or name in self.lost_ms:
                    self.hosts[name] = Host(name, self.now_ms, self._amount(one.pool))
                    self.lost_ms.pop(name, None)
        for name in self.hosts:
            if name not in alive:
                self.lost_ms.setdefault(name, self.now_ms + LOST_MS)

    def _amount(self, pool: str) -> Amount:
        found = self.fleet.pools.get(pool)
        return found.spec.resources.amount if found is not None else Amount(cpu_millis=4000)

    def _is_lost(self, name: str) -> bool:
        return self.lost_ms.get(name, 1 << 60) <= self.now_ms

    def _facts(self) -> dict[str, HostFacts]:
        held: dict[str, int] = {}
        for one in self.open_work:
            if one.runs:
                for name in one.hosts:
                    held[name] = held.get(name, 0) + 1
        notices = {
            f"{one.name}-{index}": one.preempted_ms
            for one in self.cloud.instances.values()
            if one.notice_ms and self.now_ms >= one.notice_ms and one.is_running(self.now_ms)
            for index in range(one.hosts)
        }
        return {
            name: HostFacts(
                state=WorkerState.LOST if self._is_lost(name) else WorkerState.HEALTHY,
                open=held.get(name, 0),
                last_end_ms=self.last_end_ms.get(name, 0),
                notice_ms=notices.get(name, 0),
            )
            for name in self.hosts
        }

    def _work_ends(self) -> None:
        for one in self.open_work:
            if not one.runs:
                continue
            if any(self._is_lost(name) for name in one.hosts):
                self._requeue(one)
            elif any(name in self.lost_ms for name in one.hosts):
                continue
            elif one.stopping_ms and self.now_ms >= one.stopping_ms:
                self._requeue(one)
            elif self.now_ms >= one.ends_ms:
                one.done = True
                self._free(one)
        self.open_work = [one for one in self.open_work if not one.done]

    def _requeue(self, one: Work) -> None:
        self._free(one)
        one.stopping_ms = 0

    def _free(self, one: Work) -> None:
        for name in one.hosts:
            self.last_end_ms[name] = self.now_ms
        one.hosts = []

    def _place(self) -> None:
        """Stop what is on slices that are given up, and place waiting work on ready ones."""
        free: dict[str, Amount] = {}
        for one in self.fleet.slices.values():
            for name in one.hosts:
                if one.status is S.READY and name in self.hosts and name not in self.lost_ms:
                    free[name] = self.hosts[name].amount
        giving_up = {
            name
            for one in self.fleet.slices.values()
            if one.status is S.DELETING
            for name in one.hosts
        }
        for work in self.open_work:
            if work.runs:
                for name in work.hosts:
                    if name in free:
                        free[name] = free[name] - work.resources.amount
                if not work.stopping_ms and giving_up & set(work.hosts):
                    work.stopping_ms = self.now_ms + STOP_MS
        for work in self.open_work:
            if work.is_waiting:
                self._try(work, free)

    def _try(self, work: Work, free: dict[str, Amount]) -> None:
        amount = work.resources.amount
        if work.gang:
            fits = [name for name, has in free.items() if amount.fits(has)]
            by_slice: dict[str, list[str]] = {}
            for name in fits:
                by_slice.setdefault(name.rpartition("-")[0], []).append(name)
            chosen = next((n for n in by_slice.values() if len(n) >= work.gang), [])[: work.gang]
        else:
            chosen = [name for name, has in free.items() if amount.fits(has)][:1]
        for name in chosen:
            free[name] = free[name] - amount
        if chosen:
            work.hosts = chosen
            work.ends_ms = self.now_ms + work.runs_ms

    # ── invariants ────────────────────────────────────────────────────────────────────────────────

    def _check(self) -> None:
        for name, pool in self.fleet.pools.items():
            present = sum(1 for one in self.cloud.present if one.rpartition("-")[0] == name)
            if present > max(pool.spec.max, self.most_allowed[name]):
                raise Violation(f"{name} has {present} slices of {pool.spec.max}: {self.words()}")

    def _judge_create(self, order: ProviderOrder) -> None:
        if order.number not in self.fleet.slices:
            raise Violation(f"{order.name} is created without a record")

    def _judge_delete(self, order: ProviderOrder) -> None:
        """Nobody deletes what works, but at a deadline or after a loss."""
        one = self.cloud.instances.get(order.name)
        if one is None or one.label != order.label or not one.is_running(self.now_ms):
            return
        names = {f"{one.name}-{index}" for index in range(one.hosts)}
        record = self.fleet.slices.get(order.number)
        if record is not None and record.cause in ABRUPT:
            return
        for work in self.open_work:
            alive = [name for name in work.hosts if name in names and name not in self.lost_ms]
            if work.runs and alive:
                raise Violation(f"{order.name} is deleted while {work.name} runs: {self.words()}")

    def _judge_move(self, change: SliceMoved) -> None:
        """Nothing that runs is gone, and a part of a pool at most is given up for lost hosts."""
        one = self.fleet.slices[change.number]
        if change.status is S.DRAINING and change.cause is C.IDLE:
            self._judge_rate(one)
        if change.status is S.DELETING and change.cause is C.GONE and not self.lists_lie:
            known = self.cloud.instances.get(one.name)
            if known is not None and known.label == one.label and known.is_running(self.now_ms):
                raise Violation(f"{one.name} is given up as gone and runs: {self.words()}")
        is_lost = change.cause is C.HOST_LOST and one.status is S.READY
        if change.status is S.DELETING and is_lost and not self.restored:
            recent = [
                at_ms
                for at_ms, other in self.changes
                if isinstance(other, SliceMoved)
                and other.cause is C.HOST_LOST
                and other.status is S.DELETING
                and other.handler == "CheckSlice"
                and self._pool_of(other.number) == one.pool
                and at_ms > self.now_ms - 600_000
            ]
            most = max(1, int(self.most_allowed[one.pool] * self.policy.delete_fraction))
            if len(recent) > most:
                raise Violation(f"{len(recent)} slices of {one.pool} given up: {self.words()}")

    def _judge_rate(self, one: Slice) -> None:
        recent = sum(
            1
            for at_ms, other in self.changes
            if isinstance(other, SliceMoved)
            and other.cause is C.IDLE
            and other.status is S.DRAINING
            and self._pool_of(other.number) == one.pool
            and at_ms > self.now_ms - 60_000
        )
        if recent > one.spec.delete_rate and not self.restored:
            raise Violation(f"{recent} slices of {one.pool} go in a minute: {self.words()}")

    def _pool_of(self, number: int) -> str:
        found = self.fleet.slices.get(number)
        return found.pool if found is not None else ""

    def _judge_need(self, pool: str) -> None:
        """Each slice that is asked for holds something that waits: one creation for one need."""
        has_devices = self._has_devices(pool)
        waiting = sum(
            1
            for one in self.open_work
            if one.is_waiting and bool(one.resources.device) == has_devices
        )
        alike = [name for name in self.fleet.pools if self._has_devices(name) == has_devices]
        coming = sum(1 for one in self.fleet.slices.values() if one.is_coming and one.pool in alike)
        specs = [self.fleet.pools[name].spec for name in alike]
        kept = sum(spec.min + spec.buffer for spec in specs)
        if coming >= waiting + kept:
            raise Violation(f"{coming} slices come for {waiting} tasks: {self.words()}")

    def _has_devices(self, pool: str) -> bool:
        return is_for_devices_only(self.fleet.pools[pool].spec)

    def _judge_refusal(self, pool: str) -> None:
        """A pool without capacity is not asked again and again."""
        times = [at for at in self.refusals.get(pool, []) if at > self.now_ms - 600_000]
        self.refusals[pool] = [*times, self.now_ms]
        if len(times) > self.most_allowed[pool] + 200:
            raise Violation(f"{pool} was refused {len(times)} times in ten minutes")

    def rest(self) -> None:
        """Nothing goes wrong any more: what the provider has is what the ledger has."""
        self.cloud.faults = CloudFaults()
        self.leaders = self.restores = 0.0
        self.run_until(self._comes_to_rest, seconds=9_000)

    def _comes_to_rest(self) -> bool:
        self._resume_stopped()
        return self._is_at_rest()

    def _resume_stopped(self) -> None:
        """An admin looks after an alert: what does not come back is given up."""
        for pool in list(self.fleet.pools.values()):
            if pool.growth.stopped and self.rng.random() < 0.002:
                self.set_pool(pool.spec)

    def _is_at_rest(self) -> bool:
        ledger = {one.name: one.label for one in self.fleet.slices.values() if one.is_open}
        is_waiting = any(not one.done for one in self.open_work)
        settled = all(one.status is S.READY for one in self.fleet.slices.values() if one.is_open)
        kept = sum(pool.spec.min + pool.spec.buffer for pool in self.fleet.pools.values())
        is_small = len(self.cloud.present) <= kept
        return not is_waiting and settled and is_small and ledger == self.cloud.present

    def words(self) -> str:
        """The state of everything, for a finding."""
        records = {
            one.name: f"{one.number}:{one.status}:{one.cause}"
            for one in self.fleet.slices.values()
            if one.is_open
        }
        growth = {name: pool.growth for name, pool in self.fleet.pools.items()}
        waiting = sum(1 for one in self.open_work if one.is_waiting)
        running = sum(1 for one in self.open_work if one.runs)
        return (
            f"{self.now_ms - START_MS} ms, {waiting} wait, {running} run, {records=},"
            f" cloud={self.cloud.present}, {growth=}"
        )


def cpu_pool(name: str = "cpu", **given: object) -> PoolSpec:
    """A pool of hosts with four processors."""
    resources = HostResources(cpu_millis=4000)
    defaults = {"provider": "process", "max": 8, "idle_s": 60.0, "create_rate": 60}
    return PoolSpec(name=name, resources=resources, **{**defaults, **given})  # type: ignore[arg-type]


def tpu_pool(name: str = "v5e", chips: int = 0, **given: object) -> PoolSpec:
    """A pool of slices of four hosts with four chips each."""
    resources = HostResources(cpu_millis=8000, chips=4)
    attributes = {"device-type": "tpu", "device-variant": "v5litepod-16"}
    reservation = Reservation(name="all", chips=chips) if chips else None
    defaults = {"provider": "process", "max": 4, "idle_s": 60.0, "create_rate": 60, "hosts": 4}
    return PoolSpec(
        name=name,
        resources=resources,
        attributes=attributes,
        reservation=reservation,
        **{**defaults, **given},  # type: ignore[arg-type]
    )
