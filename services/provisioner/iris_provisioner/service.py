"""The provisioner's shell: carries out orders of the state service, and tells what came of them.

It decides nothing and keeps nothing: an order that is lost is given again, and what a provider has
is answered by its lists. Source: docs/design/fleet.md#orders-and-lists.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Hashable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from iris_bus.contract import Bus, Message
from iris_core import __version__, codec, subjects
from iris_core.limits import MESSAGE_BYTES, clipped
from iris_core.messages.state_provisioner import (
    FleetOrders,
    FoundSlice,
    ListAnswer,
    ListOrder,
    OrderAnswer,
    ProviderOptions,
    ProvisionerReport,
    SliceOrder,
)
from iris_core.spec.pools import MAX_SLICES
from iris_provisioner.metrics import ProvisionerMetrics
from iris_provisioner.providers.exec import ExecProvider
from iris_provisioner.providers.on_use import ClosableProvider, ProviderOnUse
from iris_provisioner.providers.process import ProcessProvider
from iris_provisioner.providers.provider import CallAnswer, ListFailed, SliceProvider
from iris_provisioner.providers.slot_keys import SlotKeys
from iris_provisioner.providers.tpu_vm import VmSettings
from iris_provisioner.settings import ProvisionerSettings
from iris_service.run import Service
from iris_service.wanted_keys import write_wanted

log = logging.getLogger(__name__)

_LIST_BYTES = MESSAGE_BYTES // 2
"""The rest of a message is for the other parts of a report."""
KEYS_AT_ONCE = 1_000
"""So many keys are wanted at a time; the others when these are there."""
REPORT_S = 2.0
"""How often it tells that it is there."""


class Provisioner:
    """One provisioner on one bus.

    Args:
        name: its id, by which orders name it. timeout_s: how long one call may take.
        wanted_keys: where it writes which hosts have no key, for what makes them; None: nobody does.
    """

    def __init__(
        self,
        bus: Bus,
        name: str,
        providers: Mapping[str, SliceProvider],
        keys: SlotKeys,
        *,
        programs: tuple[str, ...] = (),
        timeout_s: float = 120.0,
        wanted_keys: Path | None = None,
    ) -> None:
        self._bus = bus
        self._name = name
        self._providers = providers
        self._keys = keys
        self._programs = programs
        self._timeout_s = timeout_s
        self._wanted_keys = wanted_keys
        self._wanted: list[str] = []
        self._epoch = 0
        self._keyed: dict[str, int] = {}
        self._underway: dict[Hashable, asyncio.Task[None]] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._noted: dict[tuple[str, str], tuple[int, str, str]] = {}
        self.metrics = ProvisionerMetrics()

    async def run(self, stop: asyncio.Event) -> None:
        """Carry out orders until stopped; calls under way are then left to the next provisioner."""
        subscription = await self._bus.subscribe(subjects.FLEET_ORDERS, self._on_orders)
        try:
            while not stop.is_set():
                self._report()
                try:
                    async with asyncio.timeout(REPORT_S):
                        await stop.wait()
                except TimeoutError:
                    continue
        finally:
            await subscription.close()
            for task in list(self._underway.values()):
                task.cancel()
            await asyncio.gather(*self._underway.values(), return_exceptions=True)

    def _on_orders(self, message: Message) -> None:
        try:
            orders = codec.unpack(message.data, FleetOrders)
        except codec.Undecodable as error:
            log.warning("orders that cannot be read: %s", error)
            return
        if orders.provisioner != self._name or orders.epoch < self._epoch:
            return
        self._epoch = orders.epoch
        self._count_keys(orders.slots)
        for order in orders.orders:
            self._begin((order.call, order.slice, order.label), self._carry_out(order))
        for asked in orders.lists:
            key = (asked.provider, tuple(sorted(asked.options.items())))
            self._begin(("list", *key), self._list(asked))

    def _begin(self, key: Hashable, work: Coroutine[Any, Any, None]) -> None:
        """Do something unless it is being done."""
        if key in self._underway:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._underway[key] = task
        task.add_done_callback(lambda _: self._underway.pop(key, None))

    def _count_keys(self, slots: Mapping[str, tuple[int, int]]) -> None:
        counted = {name: self._keys.keyed(name, *size) for name, size in slots.items()}
        found = {name: MAX_SLICES if n is None else n for name, n in counted.items()}
        if found != self._keyed:
            self._keyed = found
            self._report()
        if self._wanted_keys is None:
            return
        wanted = list(islice(self._keys.lacking(slots), KEYS_AT_ONCE))
        if wanted != self._wanted:
            try:
                write_wanted(self._wanted_keys, wanted)
            except OSError as error:
                log.warning("keys of %d hosts cannot be asked for: %s", len(wanted), error)
            else:
                self._wanted = wanted

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────

    async def _carry_out(self, order: SliceOrder) -> None:
        """One order; those about one slice one after the other."""
        turn = self._turns.setdefault(order.slice, asyncio.Lock())
        async with turn:
            answer = await self._call(order)
        if not turn.locked():
            self._turns.pop(order.slice, None)
        self._note(order, answer)
        answered = OrderAnswer(
            order.call,
            order.slice,
            order.label,
            order.number,
            answer=answer.answer,
            detail=answer.detail,
            retry_after_s=answer.retry_after_s,
        )
        self._report(answers=(answered,))

    def _note(self, order: SliceOrder, answer: CallAnswer) -> None:
        """Log what came of an order, and of the same order given again only when that differs."""
        key = (order.call, order.slice)
        noted = (order.label, answer.answer, answer.detail)
        if answer.answer == "accepted":
            self._noted.pop(key, None)
            log.info("%s of %s: accepted", *key)
        elif self._noted.get(key) != noted:
            self._noted[key] = noted
            log.warning("%s of %s: %s: %s", *key, answer.answer, answer.detail)

    async def _call(self, order: SliceOrder) -> CallAnswer:
        began = time.monotonic()
        provider = self._providers.get(order.provider)
        if provider is None:
            answer = CallAnswer("refused", f"this provisioner has no provider {order.provider}")
        else:
            call = provider.create if order.call == "create" else provider.delete
            try:
                async with asyncio.timeout(2 * self._timeout_s):
                    answer = await call(order, self._epoch)
            except Exception as error:
                log.exception("%s of %s raised", order.call, order.slice)
                answer = CallAnswer("failed", clipped(repr(error)))
        seconds = time.monotonic() - began
        self.metrics.called(order.provider, order.call, answer.answer, seconds)
        return answer

    async def _list(self, asked: ListOrder) -> None:
        began = time.monotonic()
        found: tuple[FoundSlice, ...] = ()
        error = ""
        try:
            found = await self._found(asked.provider, asked.options)
            _check_size(found)
        except ListFailed as failed:
            found = ()
            error = clipped(str(failed)) or "failed"
            log.warning("the list of %s failed: %s", asked.provider, error)
        seconds = time.monotonic() - began
        answer = "failed" if error else "accepted"
        self.metrics.called(asked.provider, "list", answer, seconds)
        listed = ListAnswer(
            asked.provider, asked.options, asked.asked_ms, slices=found, error=error
        )
        self._report(lists=(listed,))

    async def _found(self, name: str, options: ProviderOptions) -> tuple[FoundSlice, ...]:
        provider = self._providers.get(name)
        if provider is None:
            raise ListFailed(f"this provisioner has no provider {name}")
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                return await provider.listed(options)
        except ListFailed:
            raise
        except Exception as error:
            log.exception("the list of %s raised", name)
            raise ListFailed(repr(error)) from error

    def _report(
        self, answers: tuple[OrderAnswer, ...] = (), lists: tuple[ListAnswer, ...] = ()
    ) -> None:
        report = ProvisionerReport(
            provisioner=self._name,
            epoch=self._epoch,
            programs=self._programs,
            keys=self._source_of_keys(),
            keyed=self._keyed,
            answers=answers,
            lists=lists,
        )
        self._bus.publish(subjects.FLEET_REPORTS, codec.pack(report))

    def _source_of_keys(self) -> str:
        if not self._keys.are_needed:
            return "none"
        return "given" if self._wanted_keys is None else "made"


def _check_size(found: tuple[FoundSlice, ...]) -> None:
    """Raises ListFailed for a list that no message can hold: half of one would say that the rest
    is gone.
    """
    size = len(codec.pack(found))
    if size > _LIST_BYTES:
        raise ListFailed(
            f"{len(found):,} slices are {size:,} bytes, and a list may have {_LIST_BYTES:,}"
        )


async def main(service: Service[ProvisionerSettings]) -> None:
    """Run the provisioner until it is stopped."""
    settings = service.settings
    connection = await service.connect()
    keys = SlotKeys(settings.keys)
    common = {
        "worker.gateway_url": settings.gateway_url,
        "nats.url": service.nats.url,
        "run.cluster": service.run.cluster,
        **{f"worker.{name}": value for name, _, value in map(_pair, settings.worker)},
    }
    processes = ProcessProvider(settings.directory, keys, common, service.file)
    programs = ExecProvider(
        settings.by_name,
        keys,
        service.run.cluster,
        {"nats_url": service.nats.url, "gateway_url": settings.gateway_url},
        timeout_s=service.fleet.call_timeout_s,
    )
    tpus = ProviderOnUse("tpu", "gcp", lambda: _tpus(service, keys))
    provisioner = Provisioner(
        connection.bus,
        service.id,
        {"process": processes, "exec": programs, "tpu": tpus},
        keys,
        programs=tuple(sorted(settings.by_name)),
        timeout_s=service.fleet.call_timeout_s,
        wanted_keys=Path(settings.wanted_keys) if settings.wanted_keys else None,
    )
    await service.serve_metrics(provisioner.metrics.registry)
    service.spawn(processes.run())
    try:
        await provisioner.run(service.stop)
    finally:
        await tpus.close()
        programs.close()
        await connection.close()


def _tpus(service: Service[ProvisionerSettings], keys: SlotKeys) -> ClosableProvider:
    """The provider ``tpu``. Raises ModuleNotFoundError without the extra ``gcp``."""
    from iris_provisioner.providers.tpu import TpuProvider

    settings = service.settings
    return TpuProvider(
        settings.tpu_endpoint,
        keys,
        service.run.cluster,
        VmSettings(
            nats_url=service.nats.url,
            gateway_url=settings.gateway_url,
            cluster=service.run.cluster,
            tls_ca=service.nats.tls_ca,
            version=__version__,
        ),
        timeout_s=service.fleet.call_timeout_s,
    )


def _pair(text: str) -> tuple[str, str, str]:
    return text.partition("=")
