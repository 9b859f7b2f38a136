"""The metrics endpoint and trace contexts."""

import time

import httpx
import pytest
from prometheus_client import Counter
from prometheus_client.parser import text_string_to_metric_families

from iris_service.observing import GuardedRegistry
from iris_service.telemetry import MetricsServer, ServiceCollector, new_registry
from tests.support.certificates import make_certificate


@pytest.fixture
async def served():
    registry = new_registry()
    Counter("iris_things", "Things.", registry=registry).inc(3)
    state = {"ready": False}
    server = MetricsServer(registry, lambda: state["ready"])
    await server.start("127.0.0.1:0")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        yield client, state
    await server.close()


async def test_the_metrics_page_is_what_prometheus_reads(served):
    client, _ = served
    page = await client.get("/metrics")
    values = {
        sample.name: sample.value
        for family in text_string_to_metric_families(page.text)
        for sample in family.samples
    }
    assert (page.status_code, values["iris_things_total"]) == (200, 3.0)
    assert values["process_resident_memory_bytes"] > 0


async def test_ready_follows_the_service_and_health_does_not(served):
    client, state = served
    before = [(await client.get(path)).status_code for path in ("/healthz", "/readyz")]
    state["ready"] = True
    after = [(await client.get(path)).status_code for path in ("/healthz", "/readyz")]
    assert (before, after) == ([200, 503], [200, 200])


async def test_other_paths_and_methods_are_refused(served):
    client, _ = served
    assert (
        (await client.get("/etc")).status_code,
        (await client.post("/metrics")).status_code,
    ) == (404, 405)


class Connected:
    connected, reconnects, certificate_expiry_s = True, 0, 12.0


def shown(registry: GuardedRegistry) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in registry.collect()
        if family.name in ("iris_certificate_expiry_timestamp_seconds", "iris_disk_free_bytes")
        for sample in family.samples
    }


def test_every_process_shows_what_may_run_out(tmp_path):
    cert, _ = make_certificate(tmp_path)
    registry = new_registry()
    paths = [str(cert), str(tmp_path / "missing.pem")]
    registry.register(ServiceCollector("state", Connected, [str(tmp_path), "/missing"], paths))
    expected = {(str(tmp_path),), (str(cert),), ("NATS server",)}
    found = shown(registry)
    while not found.keys() >= expected:  # threads of their own read files and disks
        found = shown(registry)
    assert set(found) == expected
    assert 86_400 < found[str(cert),] - time.time() < 3 * 86_400
