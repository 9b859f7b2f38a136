"""The metrics endpoint and trace contexts."""

import httpx
import pytest
from prometheus_client import Counter
from prometheus_client.parser import text_string_to_metric_families

from iris_bus.telemetry import MetricsServer, new_registry


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
        sample.name: sample.value for family in text_string_to_metric_families(page.text) for sample in family.samples
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
    assert ((await client.get("/etc")).status_code, (await client.post("/metrics")).status_code) == (404, 405)
