"""What only looks at a process ends nothing: each collector and each probe is made to fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import httpx
import pytest
from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from drawings.metrics import registries
from iris_service.certificate import read_certificate
from iris_service.observing import CollectorGuard, FileFact, GuardedCollector, GuardedRegistry
from iris_service.telemetry import MetricsServer, ServiceCollector, new_registry
from tests.support.certificates import make_certificate


class Raising(Collector):
    """A collector that yields one family and raises."""

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("iris_before", "Yielded before it raised.", value=1)
        raise AttributeError("'NoneType' object has no attribute '_get_extra_info'")


class Unwritable(Collector):
    """A collector whose value is no number."""

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("iris_unwritable", "Not a number.", value="much")  # type: ignore[arg-type]


class Broken:
    """A connection whose every fact raises."""

    @property
    def connected(self) -> bool:
        raise RuntimeError("closed")

    reconnects = certificate_expiry_s = connected


def failures(registry: GuardedRegistry) -> dict[str, int]:
    return dict(registry.guard.failures)


async def scraped(registry: GuardedRegistry, path: str = "/metrics") -> httpx.Response:
    def raises() -> bool:
        raise RuntimeError("its records are gone")

    server = MetricsServer(registry, raises)
    await server.start("127.0.0.1:0")
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
            return await client.get(path)
    finally:
        await server.close()


@pytest.mark.parametrize("service", sorted(registries()))
def test_each_collector_of_each_service_may_raise(service):
    count = len(list(registries()[service]._collector_to_names))
    for number in range(count):
        registry = registries()[service]
        broken = list(registry._collector_to_names)[number]
        if not isinstance(broken, GuardedCollector):
            continue
        others = {family.name for family in registry.collect()} - {
            family.name for family in broken.collect()
        }
        broken.source = Raising()
        page = generate_latest(registry).decode()
        assert "iris_before 1.0" in page
        assert f"# TYPE {max(others)}" in page
        assert list(failures(registry).values()) == [1]
    assert count > 1


async def test_a_failure_is_counted_at_each_scrape_and_logged_once(caplog):
    registry = GuardedRegistry()
    registry.register(Raising())
    pages = [await scraped(registry) for _ in range(3)]
    before = failures(registry)["Raising"]
    assert 'iris_collector_failures_total{collector="Raising"}' in pages[-1].text
    assert before >= 3
    logged = [record for record in caplog.records if "Raising failed" in record.message]
    assert len(logged) == 1


async def test_a_value_that_cannot_be_written_costs_its_own_family_only():
    registry = GuardedRegistry()
    registry.register(Unwritable())
    page = await scraped(registry)
    assert (page.status_code, "iris_unwritable" in page.text) == (200, False)
    assert failures(registry)["Unwritable"] >= 1


async def test_a_probe_that_raises_is_answered_not_ready():
    registry = new_registry()
    assert (await scraped(registry, "/readyz")).status_code == 503
    assert (await scraped(registry, "/healthz")).status_code == 200
    assert failures(registry) == {"ready": 1}


async def test_facts_of_a_broken_connection_leave_the_rest_of_the_page():
    registry = new_registry()
    registry.register(ServiceCollector("state", Broken))
    page = await scraped(registry)
    assert page.status_code == 200
    assert "iris_service_info" in page.text
    assert "process_resident_memory_bytes" in page.text


def test_a_disk_that_does_not_answer_delays_nobody():
    answers = threading.Event()

    def read() -> int:
        answers.wait()
        return 7

    fact = FileFact(read)
    began = time.thread_time()
    assert [fact.newest() for _ in range(1000)] == [None] * 1000
    assert time.thread_time() - began < 5  # the stuck reader is not waited for again
    answers.set()
    while (found := fact.newest()) is None:
        pass
    assert found == 7


def test_a_failure_that_ends_is_told_again_when_it_returns(caplog):
    guard = CollectorGuard()
    for fails in (True, True, False, True):
        with guard.surviving("thing"):
            if fails:
                raise ValueError("no")
    assert guard.failures == {"thing": 3}
    assert sum("thing failed" in record.message for record in caplog.records) == 2


def test_a_certificate_that_vanishes_while_it_is_read_changes_nothing(tmp_path):
    cert, key = make_certificate(tmp_path)
    shown = read_certificate("gateway", str(cert), str(key))
    assert shown is not None
    key.write_text("not a key")
    shown.look()
    cert.unlink()
    shown.look()
