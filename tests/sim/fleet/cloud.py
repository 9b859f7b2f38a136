"""A cloud that keeps to the contract of providers and otherwise fails as clouds do.

It runs out of capacity, boots slowly or not at all, takes slices away, answers late, twice or never,
lists what was a minute ago, and is down for an hour. Time is an argument.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from iris_state.records.fleet.sightings import ListedSlice, ListedStatus, ProviderAnswer

KEPT_MS = 180_000
"""So old may a list be."""


@dataclass(slots=True)
class Instance:
    """One slice as the cloud has it. ``dead``: hosts of it that have died alone."""

    name: str
    label: int
    pool: str
    hosts: int
    created_ms: int
    boots_ms: int
    fails: bool
    preempted_ms: int
    notice_ms: int
    status: ListedStatus = "creating"
    gone_ms: int = 0
    dead: set[int] = field(default_factory=set)

    def is_running(self, now_ms: int) -> bool:
        return self.status == "running" and not self.gone_ms


@dataclass(slots=True)
class CloudFaults:
    """Chances and times of what goes wrong; all 0: nothing does."""

    stockout_share: float = 0.0
    refused_chance: float = 0.0
    boot_ms: tuple[int, int] = (20_000, 60_000)
    boot_fails: float = 0.0
    preempted: float = 0.0
    notice: float = 0.0
    host_dies: float = 0.0
    answer_lost: float = 0.0
    answer_twice: float = 0.0
    create_fails: float = 0.0
    delete_fails: float = 0.0
    lag_ms: int = 0
    down: tuple[tuple[int, int], ...] = ()


class Cloud:
    """The instances with this cluster's label."""

    def __init__(self, rng: random.Random, faults: CloudFaults, quota: dict[str, int]) -> None:
        self._rng = rng
        self.faults = faults
        self.quota = quota
        self.instances: dict[str, Instance] = {}
        self.most: dict[str, int] = {}
        self.created: dict[str, int] = {}
        self.destroyed: list[Instance] = []
        self._stockouts: dict[str, tuple[int, bool]] = {}
        self._history: list[tuple[int, list[ListedSlice]]] = []

    def is_down(self, now_ms: int) -> bool:
        return any(begin <= now_ms < end for begin, end in self.faults.down)

    def is_out_of(self, pool: str, now_ms: int) -> bool:
        """Whether it has no capacity for a pool now; that comes and goes."""
        until_ms, is_out = self._stockouts.get(pool, (0, False))
        if now_ms >= until_ms:
            is_out = self._rng.random() < self.faults.stockout_share
            until_ms = now_ms + self._rng.randrange(60_000, 600_000)
            self._stockouts[pool] = (until_ms, is_out)
        return is_out

    # ── the three calls ───────────────────────────────────────────────────────────────────────────

    def create(
        self, name: str, label: int, pool: str, hosts: int, now_ms: int
    ) -> tuple[ProviderAnswer, str]:
        known = self.instances.get(name)
        if known is not None and not known.gone_ms:
            return "accepted", "it is there already"
        if self._rng.random() < self.faults.refused_chance:
            return "refused", "permission denied"
        if self._rng.random() < self.faults.create_fails:
            return "failed", "internal error"
        has = sum(1 for one in self.instances.values() if one.pool == pool and not one.gone_ms)
        if self.is_out_of(pool, now_ms) or has >= self.quota.get(pool, 1 << 30):
            return "exhausted", "no capacity"
        rng = self._rng
        faults = self.faults
        boots_ms = now_ms + rng.randrange(*faults.boot_ms)
        is_preempted = rng.random() < faults.preempted
        preempted_ms = boots_ms + rng.randrange(1_000, 900_000) if is_preempted else 0
        has_notice = is_preempted and rng.random() < faults.notice
        self.instances[name] = Instance(
            name=name,
            label=label,
            pool=pool,
            hosts=hosts,
            created_ms=now_ms,
            boots_ms=boots_ms,
            fails=rng.random() < faults.boot_fails,
            preempted_ms=preempted_ms,
            notice_ms=max(boots_ms, preempted_ms - 30_000) if has_notice else 0,
        )
        self.created[pool] = self.created.get(pool, 0) + 1
        return "accepted", ""

    def delete(self, name: str, label: int, now_ms: int) -> tuple[ProviderAnswer, str]:
        if self._rng.random() < self.faults.delete_fails:
            return "failed", "internal error"
        known = self.instances.get(name)
        if known is not None and known.label == label and not known.gone_ms:
            known.gone_ms = now_ms
            self.destroyed.append(known)
        return "accepted", ""

    def list(self, now_ms: int) -> list[ListedSlice]:
        """What is there, or was a little while ago."""
        lag_ms = self._rng.randrange(self.faults.lag_ms + 1) if self.faults.lag_ms else 0
        then = [entries for at_ms, entries in self._history if at_ms <= now_ms - lag_ms]
        return list(then[-1]) if then else []

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    def advance(self, now_ms: int) -> None:
        """Boot, fail and take away what is due, and note the list of this moment."""
        for one in self.instances.values():
            if one.gone_ms:
                continue
            if one.status == "creating" and now_ms >= one.boots_ms:
                one.status = "failed" if one.fails else "running"
            if one.status == "running":
                if one.preempted_ms and now_ms >= one.preempted_ms:
                    one.status = "preempted"
                elif self._rng.random() < self.faults.host_dies:
                    one.dead.add(self._rng.randrange(one.hosts))
        self.instances = {
            name: one
            for name, one in self.instances.items()
            if not one.gone_ms or now_ms - one.gone_ms < 10_000
        }
        for pool, count in self._counts().items():
            self.most[pool] = max(self.most.get(pool, 0), count)
        self._history.append((now_ms, list(self._entries(now_ms))))
        while self._history[0][0] < now_ms - KEPT_MS:
            self._history.pop(0)

    def _entries(self, now_ms: int) -> Iterator[ListedSlice]:
        for one in self.instances.values():
            status: ListedStatus = "deleting" if one.gone_ms else one.status
            yield ListedSlice(name=one.name, label=one.label, status=status)

    def _counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for one in self.instances.values():
            if not one.gone_ms:
                counts[one.pool] = counts.get(one.pool, 0) + 1
        return counts

    @property
    def present(self) -> dict[str, int]:
        """What is there and is not on its way out: labels by name."""
        return {one.name: one.label for one in self.instances.values() if not one.gone_ms}
