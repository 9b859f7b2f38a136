"""The discovery endpoints of deployments."""

import asyncio

from iris_core import codec
from iris_core.spec.serving import DiscoveredRoute, Discovery
from iris_core.subjects import DISCOVERY_BUCKET
from tests.support.gateway import House


def chat(version: int, *ports: int) -> Discovery:
    return Discovery(
        "chat", version, tuple(DiscoveredRoute(f"r1-{port}", f"10.0.0.1:{port}") for port in ports)
    )


async def put(iris: House, value: Discovery, expected: int = 0) -> int:
    """Write a set, and return when the gateway has had the time to see it."""
    bucket = iris.memory.connect().key_value(DISCOVERY_BUCKET)
    revision = await bucket.put(value.deployment, codec.to_json(value), expected=expected)
    for _ in range(5):
        await asyncio.sleep(0)
    return revision


async def test_prometheus_gets_every_route_as_a_target(iris: House):
    assert (await iris.http.get("/v1/discovery/prometheus")).json() == []
    await put(iris, chat(1, 80, 81))
    answer = await iris.http.get("/v1/discovery/prometheus")
    labels = {"__meta_iris_deployment": "chat", "__meta_iris_state": "healthy"}
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == [
        {"targets": [f"10.0.0.1:{port}"], "labels": {**labels, "__meta_iris_route": f"r1-{port}"}}
        for port in (80, 81)
    ]


async def test_the_last_set_stays_while_the_bus_is_away(iris: House):
    await put(iris, chat(1, 80))
    iris.memory.away = True
    assert len((await iris.http.get("/v1/discovery/prometheus")).json()) == 1


async def test_a_value_that_cannot_be_read_leaves_the_others_alone(iris: House):
    await put(iris, chat(1, 80))
    await iris.memory.connect().key_value(DISCOVERY_BUCKET).put("broken", b"?", expected=0)
    await put(iris, Discovery("other", 1, (DiscoveredRoute("r", "10.0.0.2:1"),)))
    assert len((await iris.http.get("/v1/discovery/prometheus")).json()) == 2


async def test_a_deployments_set_is_answered_now_or_when_it_changes(iris: House):
    revision = await put(iris, chat(1, 80))
    assert (await iris.http.get("/v1/deployments/chat/discovery")).json()["version"] == 1
    waiting = asyncio.create_task(
        iris.http.get("/v1/deployments/chat/discovery", params={"after": 1})
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    await put(iris, chat(2), revision)
    answer = (await waiting).json()
    assert (answer["version"], answer["routes"]) == (2, [])


async def test_a_deployment_nobody_knows_is_not_found(iris: House):
    assert (await iris.http.get("/v1/deployments/nobody/discovery")).status_code == 404


async def test_who_waits_for_a_change_is_answered_when_the_gateway_stops(iris: House):
    await put(iris, chat(1, 80))
    waiting = asyncio.create_task(
        iris.http.get("/v1/deployments/chat/discovery", params={"after": 1})
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    iris.gateway.discovered.close()
    assert (await waiting).json()["version"] == 1
