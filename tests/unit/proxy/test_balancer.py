"""Which waiting requests get a route when one has capacity."""

import asyncio
from collections.abc import Awaitable

import msgspec
import pytest

from iris_core.messages.proxy_state import DeploymentLoad, DeploymentRequests
from iris_core.spec.serving import LATENCY_MS, DiscoveredRoute, Discovery, ProxyPolicy
from iris_proxy.http.refusal import ProxyRefusal
from iris_proxy.routes.balancer import Balancer


def found(*ids: str, reason: str = "", **policy: object) -> Discovery:
    routes = tuple(DiscoveredRoute(each, f"{each}:80") for each in ids)
    return Discovery(
        "chat", 1, routes, reason, ProxyPolicy(**{"max_outstanding": 1, "queue_s": 30.0, **policy})
    )


def balancer(*ids: str, queue_requests: int = 2, **said: object) -> Balancer:
    return Balancer(found(*ids, **said), queue_requests)


async def refused(awaitable: Awaitable[object]) -> ProxyRefusal:
    with pytest.raises(ProxyRefusal) as refusal:
        await awaitable
    return refusal.value


async def begun(awaitable) -> asyncio.Task:
    """A task that has run as far as it can."""
    task = asyncio.create_task(awaitable)
    await asyncio.sleep(0)
    return task


async def test_without_a_route_the_reason_of_the_set_is_given_at_once():
    refusal = await refused(balancer(reason="draining").acquire())
    assert (refusal.status, refusal.code) == (503, "draining")


async def test_those_who_wait_are_served_in_their_order():
    chat = balancer("a")
    route = await chat.acquire()
    waiting = [await begun(chat.acquire()) for _ in range(2)]
    chat.release(route)
    assert await waiting[0] is route
    assert not waiting[1].done()
    chat.release(route)
    assert await waiting[1] is route


async def test_nobody_overtakes_those_who_wait():
    chat = balancer("a")
    route = await chat.acquire()
    first = await begun(chat.acquire())
    chat.release(route)  # it is the first one's already
    second = await begun(chat.acquire())
    assert await first is route
    assert not second.done()
    second.cancel()


async def test_a_new_route_serves_those_who_wait():
    chat = balancer("a")
    await chat.acquire()
    waiting = await begun(chat.acquire())
    chat.update(found("a", "b"))
    assert (await waiting).id == "b"


async def test_when_the_last_route_leaves_those_who_wait_are_told():
    chat = balancer("a")
    await chat.acquire()
    waiting = await begun(chat.acquire())
    chat.update(found(reason="draining"))
    assert (await refused(waiting)).code == "draining"


async def test_no_more_wait_than_may_and_none_longer_than_it_may():
    chat = balancer("a", queue_s=0.01)
    await chat.acquire()
    waiting = [await begun(chat.acquire()) for _ in range(2)]
    with pytest.raises(ProxyRefusal, match="as many wait as may"):
        await chat.acquire()
    for task in waiting:
        with pytest.raises(ProxyRefusal, match=r"none had room for 0\.01 s"):
            await task


async def test_who_leaves_the_line_takes_nothing_with_him():
    chat = balancer("a")
    route = await chat.acquire()
    early, late = await begun(chat.acquire()), await begun(chat.acquire())
    early.cancel()
    await asyncio.wait({early})
    chat.release(route)
    late.cancel()  # it was given the route, and does not know yet
    await asyncio.wait({late})
    assert route.outstanding == 0
    assert await chat.acquire() is route


# --- no route yet, by its scaling rule


def idle(**policy: object) -> Discovery:
    return msgspec.structs.replace(found(reason="no_healthy_route", **policy), minimum=0)


async def test_requests_for_a_deployment_scaled_to_none_wait_for_its_first_route():
    woken: list[int] = []
    chat = Balancer(idle(), 100, on_wake=lambda: woken.append(1))
    waiting = [await begun(chat.acquire()) for _ in range(3)]
    assert (woken, [task.done() for task in waiting]) == ([1], [False] * 3)
    chat.update(idle())  # nothing has come yet
    assert not waiting[0].done()
    chat.update(found("a", max_outstanding=2))
    assert (await waiting[0]).id == (await waiting[1]).id == "a"
    assert not waiting[2].done()  # a burst does not flood the first route
    chat.release(await waiting[0])
    assert (await waiting[2]).id == "a"


async def test_at_most_so_many_wait_for_the_first_route_and_so_long():
    chat = Balancer(idle(), 2, wake_s=0.01)
    waiting = [await begun(chat.acquire()) for _ in range(2)]
    for late in (chat.acquire(), *waiting):
        refusal = await refused(late)
        assert (refusal.status, refusal.code) == (503, "starting")
        assert "Retry-After" in dict(refusal.headers())


async def test_who_waits_for_the_first_route_of_what_is_deleted_is_told():
    chat = Balancer(idle(), 2)
    waiting = await begun(chat.acquire())
    chat.update(found(reason="draining"))
    assert (await refused(waiting)).code == "draining"


async def test_routing_by_key_refuses_at_once_without_a_healthy_route():
    chat = Balancer(msgspec.structs.replace(idle(), minimum=1), 2)
    with pytest.raises(ProxyRefusal, match="no route that can answer now"):
        await chat.acquire()


async def test_requests_are_reported_once_with_the_routes_they_were_sent_to():
    chat = balancer("a", "b", max_outstanding=1, queue_requests=0)
    assert chat.requests() is None
    routes = [await chat.acquire() for _ in range(2)]
    await refused(chat.acquire())
    assert chat.requests() == DeploymentRequests("chat", 3, {"a": 1, "b": 1})
    assert chat.requests() is None
    chat.release(routes[0])
    again = await chat.acquire()
    assert chat.requests() == DeploymentRequests("chat", 1, {again.id: 1})


async def test_answers_are_reported_once_with_their_errors_and_latency():
    line = balancer("r0")
    for status, waited_s in ((200, 0.0004), (200, 0.004), (500, 0.004), (503, None), (200, 100.0)):
        line.answered(status, waited_s)
    found = line.requests()
    assert found is not None
    latency = dict(zip((*LATENCY_MS, "more"), found.latency, strict=True))
    assert (found.arrived, found.answered, found.failed) == (0, 5, 2)
    assert {bound: count for bound, count in latency.items() if count} == {1: 1, 5: 2, "more": 1}
    assert line.requests() is None


async def test_what_is_reported_is_what_is_under_way_or_waits_and_how_many_came():
    chat = balancer("a", max_outstanding=1)
    assert chat.load() == DeploymentLoad("chat", 0, 0)
    route = await chat.acquire()
    waiting = await begun(chat.acquire())
    assert chat.load() == DeploymentLoad("chat", 2, 2)
    chat.update(found(reason="draining"))
    assert chat.load() == DeploymentLoad("chat", 1, 0)
    chat.release(route)
    assert chat.load() == DeploymentLoad("chat", 0, 0)
    with pytest.raises(ProxyRefusal):
        await waiting
