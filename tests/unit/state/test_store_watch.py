"""What the servers say about the stores, as metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from iris_bus.contract import ServerStorage, StoreStanding, Unavailable
from iris_core.subjects import LAST_BACKUP, STORES
from iris_state.replication.store_metrics import StoreCollector
from iris_state.service.store_watch import StoreWatch
from tests.support.memory import Memory

JOURNAL = StoreStanding(
    bytes=5,
    wanted=3,
    declared=3,
    current=2,
    servers={"n0": True, "n1": False},
    notes={LAST_BACKUP: "7000"},
)
LOGS = StoreStanding(bytes=9, limit_bytes=10, wanted=3, declared=1, servers={"n1": True})


def scraped(collector: StoreCollector) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(collector)
    lines = generate_latest(registry).decode().splitlines()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


def test_copies_bytes_servers_and_the_last_backup_are_shown() -> None:
    collector = StoreCollector()
    collector.standings = {"IRIS_JOURNAL": JOURNAL, "IRIS_LOGS": LOGS}
    collector.storage = {"n0": ServerStorage(stored=4, reserved=6, limit=8)}
    assert scraped(collector) == {
        'iris_stored_bytes{store="IRIS_JOURNAL"}': 5,
        'iris_stored_bytes{store="IRIS_LOGS"}': 9,
        'iris_store_limit_bytes{store="IRIS_LOGS"}': 10,
        'iris_store_copies{kind="wanted",store="IRIS_JOURNAL"}': 3,
        'iris_store_copies{kind="declared",store="IRIS_JOURNAL"}': 3,
        'iris_store_copies{kind="current",store="IRIS_JOURNAL"}': 2,
        'iris_store_copies{kind="wanted",store="IRIS_LOGS"}': 3,
        'iris_store_copies{kind="declared",store="IRIS_LOGS"}': 1,
        'iris_store_copies{kind="current",store="IRIS_LOGS"}': 1,
        'iris_nats_server_up{server="n0"}': 1,
        'iris_nats_server_up{server="n1"}': 0,
        'iris_nats_server_storage_bytes{kind="stored",server="n0"}': 4,
        'iris_nats_server_storage_bytes{kind="reserved",server="n0"}': 6,
        'iris_nats_server_storage_bytes{kind="limit",server="n0"}': 8,
        "iris_last_backup_timestamp_seconds": 7,
    }


async def test_a_store_of_which_nobody_tells_has_no_current_copy() -> None:
    class Streams:
        async def storage(self) -> dict[str, ServerStorage]:
            raise Unavailable("the accounts are of an earlier release")

        async def standing(self, stream: str) -> StoreStanding:
            if stream == "IRIS_LOGS":
                raise Unavailable("no answer")
            return JOURNAL

    collector = StoreCollector()
    collector.standings = {"IRIS_LOGS": LOGS}
    await StoreWatch(Streams(), collector, lambda: True).look()  # type: ignore[arg-type]
    assert scraped(collector)['iris_store_copies{kind="wanted",store="IRIS_LOGS"}'] == 3
    assert scraped(collector)['iris_store_copies{kind="current",store="IRIS_LOGS"}'] == 0


async def test_every_store_is_looked_at() -> None:
    collector = StoreCollector()
    await StoreWatch(Memory().connect().streams, collector, lambda: True).look()
    assert set(collector.standings) == set(STORES)
