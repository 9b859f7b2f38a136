"""The methods of both clients about pools and slices: what is asked, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from iris import AsyncClient, Client
from iris.client.problems import Conflict, InvalidOption, Rejected
from iris_core.codec import to_builtins
from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import HostResources
from iris_core.views.fleet import (
    FleetView,
    PoolChangeView,
    PoolPlanView,
    PoolView,
    SliceCountView,
    SliceHostView,
    SliceView,
)
from tests.support.answers import Answers, Asked, Said, answering, problem

SPEC = PoolSpec(
    name="cpu",
    provider="process",
    max=4,
    resources=HostResources(cpu_millis=1000),
    options={"boot_s": 1},
)
FIELDS: dict[str, Any] = {
    key: getattr(SPEC, key) for key in SPEC.__struct_fields__ if key != "resources"
}
POOL = PoolView(
    **FIELDS,
    resources={"cpu_millis": 1000},
    state="ok",
    reason="",
    until=None,
    slices=SliceCountView(ready=2),
    idle=1,
    need=0,
    boot_p50_s=None,
    boot_p90_s=None,
    cost_per_hour=0.0,
    warnings=[],
    version=3,
    by=None,
    removing=False,
)
SLICE = SliceView(
    id="s17",
    name="cpu-0",
    pool="cpu",
    status="ready",
    since=None,
    cause="registered",
    detail="",
    hosts=[SliceHostView(name="cpu-0-0", state="healthy", differs=[])],
    requested_at=None,
    ready_at=None,
    idle_since=None,
    deadline_at=None,
    cost=0.0,
    outdated=False,
    overdue=False,
    steps=[],
)
CHANGE = PoolChangeView(
    at=None, slice="cpu-0", id="s17", was=None, to="requested", cause="need", detail="", by=None
)
PLAN = PoolPlanView(create=2, delete=0, tasks=5, left=1)
FLEET = FleetView(
    pools=[POOL],
    slices=SliceCountView(ready=2),
    idle=1,
    need=0,
    cost_per_hour=0.0,
    orphans=0,
    listed_at=None,
    dry_run=False,
    unmet=[],
    changes=[CHANGE],
)
PAGES = {"/v1/pools": POOL, "/v1/pools/cpu/history": CHANGE, "/v1/fleet/slices": SLICE}
ANSWERS: dict[str, Any] = {
    "GET /v1/pools/cpu": POOL,
    "GET /v1/fleet": FLEET,
    "GET /v1/fleet/slices/s17": SLICE,
    "PUT /v1/pools/cpu": POOL,
    "POST /v1/pools:plan": PLAN,
    "POST /v1/pools/cpu/pause": POOL,
    "POST /v1/pools/cpu/resume": POOL,
    "POST /v1/fleet/slices/cpu-0/drain": SLICE,
}


@pytest.fixture
def gateway() -> Iterator[Answers]:
    def answer(asked: Asked) -> Said:
        path = asked.path.partition("?")[0]
        if path in PAGES and asked.method == "GET":
            return Said(200, {"items": [to_builtins(PAGES[path])], "next_cursor": None})
        if asked.method == "DELETE":
            stays = "drain=true" in asked.path
            return Said(200, to_builtins(POOL) | {"removing": True} if stays else {"name": "cpu"})
        return Said(200, to_builtins(ANSWERS[f"{asked.method} {path}"]))

    with answering(answer) as answers:
        yield answers


CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], Any]] = {
    "pools": ((), {}, [POOL]),
    "pool": (("cpu",), {}, POOL),
    "set_pool": (("cpu",), {"max": 8}, POOL),
    "replace_pool": ((SPEC,), {"version": 3}, POOL),
    "plan_pool": ((SPEC,), {}, PLAN),
    "remove_pool": (("cpu",), {"drain": True}, False),
    "pause_pool": (("cpu",), {"reason": "repairs"}, POOL),
    "resume_pool": (("cpu",), {}, POOL),
    "pool_history": (("cpu",), {}, [CHANGE]),
    "fleet": ((), {}, FLEET),
    "fleet_slices": ((), {"pool": "cpu", "status": "ready"}, [SLICE]),
    "fleet_slice": (("s17",), {}, SLICE),
    "drain_slice": (("cpu-0",), {"deadline": "1m"}, SLICE),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_method_returns_what_the_gateway_answers(gateway: Answers, name: str) -> None:
    words, given, wanted = CALLS[name]
    with Client(gateway.url) as client:
        found = getattr(client, name)(*words, **given)
        assert (list(found) if isinstance(found, Iterator) else found) == wanted


@pytest.mark.parametrize("name", CALLS)
def test_a_coroutine_returns_the_same(gateway: Answers, name: str) -> None:
    words, given, wanted = CALLS[name]

    async def ask() -> Any:
        async with AsyncClient(gateway.url) as client:
            found = getattr(client, name)(*words, **given)
            return [one async for one in found] if hasattr(found, "__aiter__") else await found

    assert asyncio.run(ask()) == wanted


def test_set_changes_the_version_that_was_read(gateway: Answers) -> None:
    with Client(gateway.url) as client:
        client.set_pool("cpu", max=8, provider_options={"boot_s": None, "seed": 1})
    put = gateway.requests[-1]
    assert (put.method, put.headers["If-Match"]) == ("PUT", '"3"')
    assert (put.json["max"], put.json["options"]) == (8, {"seed": 1})
    assert put.json.keys() <= {*PoolSpec.__struct_fields__}


def test_a_pool_is_replaced_by_its_struct_or_its_object(gateway: Answers) -> None:
    with Client(gateway.url) as client:
        client.replace_pool(SPEC)
        client.replace_pool(to_builtins(SPEC))
        with pytest.raises(InvalidOption, match="a pool has a name"):
            client.replace_pool({"max": 1})
    first, second = gateway.requests
    assert first.json == second.json == to_builtins(SPEC)
    assert "If-Match" not in first.headers


def test_a_removed_pool_is_gone_or_waits_for_its_slices(gateway: Answers) -> None:
    with Client(gateway.url) as client:
        assert client.remove_pool("cpu")
        assert not client.remove_pool("cpu", drain=True)
    assert [one.path for one in gateway.requests] == ["/v1/pools/cpu", "/v1/pools/cpu?drain=true"]


def test_refusals_are_exceptions_with_the_mistakes(gateway: Answers) -> None:
    mistake = {"pointer": "/min", "code": "out_of_range", "message": "min 9 is more than max 4"}
    with Client(gateway.url) as client:
        gateway.answer = lambda _: problem(422, "invalid", "1 mistake", errors=[mistake])
        with pytest.raises(Rejected) as caught:
            client.replace_pool(SPEC)
        assert [one.pointer for one in caught.value.mistakes] == ["/min"]
        gateway.answer = lambda _: problem(409, "conflict", "cpu has 2 slices")
        with pytest.raises(Conflict, match="cpu has 2 slices"):
            client.remove_pool("cpu")
        with pytest.raises(TypeError, match="did you mean 'max'"):
            client.set_pool("cpu", maxx=1)  # type: ignore[call-arg]
        with pytest.raises(InvalidOption, match="deadline: "):
            client.drain_slice("cpu-0", deadline="soon")
