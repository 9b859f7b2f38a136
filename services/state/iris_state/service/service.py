"""The process of one replica: follows until there is no leader, then leads until it is deposed, and
follows again.

Source: docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import uuid
from urllib.parse import urlsplit

from iris_bus.contract import (
    Connection,
    EventPublisher,
    Fenced,
    Full,
    Gap,
    RecordsLost,
    Unavailable,
)
from iris_core.messages.processes import ReplicaInfo
from iris_core.subjects import JOURNAL, RECORDS_LOST, STORES
from iris_service.boot import boot_id
from iris_service.process_settings import FleetSettings
from iris_service.run import Service, quiet_gc, return_freed_blocks
from iris_service.settings import BadSetting
from iris_service.tracing import Tracer
from iris_state.clock import Clock
from iris_state.policy import FleetPolicy, Policy
from iris_state.records.inputs import RoomMade
from iris_state.replication.leader import Leader
from iris_state.replication.metrics import Standing, StateMetrics
from iris_state.replication.replica import Replica
from iris_state.replication.standby import Standby
from iris_state.service.housekeeping import Housekeeper
from iris_state.service.store_watch import StoreWatch

log = logging.getLogger(__name__)

_PAUSE_S = 1.0


class StateService:
    """One replica, as follower or leader."""

    def __init__(self, replica: Replica, stop: asyncio.Event, tracer: Tracer | None = None) -> None:
        self.replica = replica
        self._stop = stop
        self._tracer = tracer
        self._standby: Standby | None = None
        self._leader: Leader | None = None
        self.metrics = StateMetrics(lambda: replica.machine, self._standing)

    @property
    def leads(self) -> bool:
        """Whether it leads and answers."""
        return self._leader is not None and self._leader.ready

    @property
    def ready(self) -> bool:
        """Whether it leads and answers, or follows closely enough to take over."""
        return (
            self.leads
            if self._leader is not None
            else self._standby is not None and self._standby.ready
        )

    def record(self, made: RoomMade) -> None:
        """Have the leader record what was deleted; nothing where this replica leads no more."""
        if self._leader is not None:
            self._leader.record(made)

    async def info(self) -> ReplicaInfo:
        """What this replica does; the leader adds what each store holds. Raises Unavailable."""
        standing = self._standing()
        machine = self.replica.machine
        stores = STORES if standing.leads else ()
        sizes = await asyncio.gather(*map(self.replica.connection.streams.size, stores))
        return ReplicaInfo(
            leads=standing.leads,
            epoch=machine.ledger.epoch,
            sequence=machine.sequence,
            behind=standing.behind,
            unpublished=standing.unpublished,
            stored_bytes=dict(zip(stores, sizes, strict=True)),
            times_ahead_s=standing.times_ahead_s,
        )

    def _standing(self) -> Standing:
        return Standing(
            leads=self.leads,
            behind=self._standby.behind
            if self._standby is not None and self._leader is None
            else 0,
            unpublished=self._leader.unpublished if self._leader is not None else 0,
            times_ahead_s=self.replica.clock.ahead_ms() / 1000,
        )

    async def run(self) -> None:
        """Follow and lead in turns until stopped. Who can lead no more, deposed or without the bus,
        follows again.

        Raises RecordsLost, DamagedCommit; Unavailable when the bus is away at the start.
        """
        publisher = self.replica.connection.publisher()
        await self._begin()
        while await self._wait_for_its_turn(publisher):
            try:
                await self._lead(publisher)
            except (Fenced, Full, Unavailable) as error:
                log.warning("this replica leads no more, and follows again: %s", error)
            await self._begin_again(publisher)  # behind the error, which holds the leader's records

    async def _begin(self) -> None:
        """Declare the streams, and read the records anew. Raises DamagedCommit, Unavailable."""
        await self.replica.connection.streams.ensure()
        await self.replica.recover()
        quiet_gc()

    async def _begin_again(self, publisher: EventPublisher) -> None:
        """Forget what was done as a leader, and begin like a new process does, unless it is to
        stop. Raises DamagedCommit.
        """
        self._leader = self._standby = None
        await publisher.close()
        while not self._stop.is_set():
            self.replica.forget()
            await self._pause()
            try:
                await self._begin()
            except Unavailable as error:
                log.error("the records cannot be read: %s", error)
            else:
                return

    async def _lead(self, publisher: EventPublisher) -> None:
        """Lead until stopped. Raises Fenced, Full, Unavailable, RecordsLost."""
        self._leader = Leader(
            self.replica, publisher, self.metrics, self._stop, tracer=self._tracer
        )
        try:
            await self._leader.run()
        except RecordsLost as error:
            sequence = self.replica.machine.sequence
            if await self.replica.settled_end(sequence + 1) > sequence:
                raise Fenced("another replica has written to the journal") from error
            await self.replica.connection.streams.annotate(JOURNAL.name, RECORDS_LOST, str(error))
            raise

    async def _refuse_lost_records(self) -> None:
        """Raises RecordsLost where an earlier leader has found the records lost, Unavailable."""
        streams = self.replica.connection.streams
        lost = (await streams.standing(JOURNAL.name)).notes.get(RECORDS_LOST, "")
        if lost and not self.replica.policy.begin_anew:
            raise RecordsLost(lost)
        if lost:
            await streams.annotate(JOURNAL.name, RECORDS_LOST, "")

    async def _wait_for_its_turn(self, publisher: EventPublisher) -> bool:
        """True when this replica leads, False when it is stopped."""
        standby = self._standby = Standby(self.replica, self._stop)
        behind = False
        while not self._stop.is_set():
            try:
                if behind:
                    await self.replica.recover()
                    behind = False
                await standby.wait()
                await self._refuse_lost_records()
                if not self._stop.is_set() and await self.replica.take_over(
                    publisher, standby.epoch
                ):
                    return True
            except Gap:
                behind = True
            except (Full, Unavailable) as error:
                log.error("nobody can lead: %s", error)
                await self._pause()
        return False

    async def _pause(self) -> None:
        """Wait a moment, or for the stop."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), _PAUSE_S)


async def main(service: Service[Policy]) -> None:
    """Be the state service until told to stop."""
    if urlsplit(service.settings.prometheus).scheme not in ("", "http", "https"):
        raise BadSetting("[state] prometheus: an address like http://prometheus:9090, or empty")
    return_freed_blocks()
    connection: Connection = await service.connect()
    name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    clock = Clock(boot=boot_id(), ignores_others=service.settings.take_clock)
    state = StateService(
        Replica(name, service.settings, connection, clock, fleet_policy(service.fleet)),
        service.stop,
        service.tracer,
    )
    service.replica_info = state.info
    service.spawn(Housekeeper(state.replica, lambda: state.leads, state.record).run())
    metrics = state.metrics
    watch = StoreWatch(
        connection.streams, metrics.stores, lambda: state.leads, metrics.registry.guard
    )
    service.spawn(watch.run())
    await service.serve_metrics(metrics.registry, lambda: state.ready)
    try:
        await state.run()
    finally:
        await connection.close()


def fleet_policy(settings: FleetSettings) -> FleetPolicy:
    """The section ``[fleet]`` as decisions read it."""
    return FleetPolicy(
        list_lag_ms=round(settings.list_lag_s * 1000),
        answer_timeout_ms=round(settings.answer_timeout_s * 1000),
        delete_timeout_ms=round(settings.delete_timeout_s * 1000),
        bad_host_ms=round(settings.bad_host_s * 1000),
        orphan_ms=round(settings.orphan_s * 1000),
        exhausted_first_ms=round(settings.exhausted_first_s * 1000),
        exhausted_longest_ms=round(settings.exhausted_longest_s * 1000),
        delete_fraction=settings.delete_fraction,
        max_price_per_hour=settings.max_price_per_hour,
        interval_ms=round(settings.interval_s * 1000),
        list_interval_ms=round(settings.list_interval_s * 1000),
        dry_run=settings.dry_run,
    )
