"""Limits of users and groups through both clients."""

import asyncio
from collections.abc import Iterator

import pytest

from iris import AsyncClient, Client, InvalidOption
from iris.client.quotas import UserQuota
from iris_core.quota import QUOTA_LIMITS
from tests.support.answers import Answers, Asked, Said, answering


def stored(user: str, **changed: object) -> dict[str, object]:
    """As the gateway answers: unlimited but for one limit, which comes from a group."""
    limits = {limit.name: 0 for limit in QUOTA_LIMITS}
    known = {"user": user, **limits, "max_band": "production", "max_pending_tasks": 7}
    used = {"pending_tasks": 3, "sources": {"max_pending_tasks": "@ml"}, "groups": ["ml"]}
    return {**known, **used, **changed}


@pytest.fixture
def gateway() -> Iterator[Answers]:
    def answer(asked: Asked) -> Said:
        user = asked.path.rpartition("/")[2].replace("%40", "@")
        if asked.method == "PUT":
            return Said(200, stored(user, **asked.json))
        if user.partition("?")[0] == "quotas":
            return Said(200, {"items": [stored("@ml"), stored("ann")], "next_cursor": None})
        return Said(200, stored(user))

    with answering(answer) as answers:
        yield answers


def test_some_limits_of_a_group_are_set_and_the_others_stay(
    gateway: Answers,
):
    with Client(gateway.url, token="t") as client:
        found = client.set_quota("@ml", max_running_cpu=1.5, max_live_bytes="1GiB")
    sent = gateway.requests[-1]
    assert (sent.method, sent.json["max_running_cpu"]) == ("PUT", 1500)
    assert (sent.json["max_live_bytes"], sent.json["max_pending_tasks"]) == (1 << 30, 7)
    assert found.user == "@ml"
    assert found.limits["max_running_cpu"] == 1500


def test_limits_are_shown_with_their_use_and_their_source(gateway: Answers):
    with Client(gateway.url, token="t") as client:
        found = client.quota("ann")
        assert [one.user for one in client.quotas()] == ["@ml", "ann"]
    assert (found.limits["max_pending_tasks"], found.used["max_pending_tasks"]) == (7, 3)
    assert (found.sources, found.groups) == ({"max_pending_tasks": "@ml"}, ("ml",))


def test_the_asynchronous_client_does_the_same(gateway: Answers):
    async def use() -> tuple[UserQuota, UserQuota, list[str]]:
        async with AsyncClient(gateway.url, token="t") as client:
            put = await client.set_quota("@ml", max_band="batch")
            names = [one.user async for one in client.quotas()]
            return put, await client.quota("ann"), names

    put, read, names = asyncio.run(use())
    assert (put.user, put.max_band, read.user, names) == ("@ml", "batch", "ann", ["@ml", "ann"])


def test_every_mistake_is_named_and_nothing_is_sent(gateway: Answers):
    with Client(gateway.url, token="t") as client:
        with pytest.raises(InvalidOption) as refused:
            client.set_quota("@ml", max_running_cpu="many", max_pending_tasks="1.5")
        with pytest.raises(TypeError, match="did you mean 'max_running_cpu'"):
            client.set_quota("@ml", max_runing_cpu=1)
        with pytest.raises(ValueError, match="at least one"):
            client.set_quota("@ml")
    assert "max_running_cpu" in str(refused.value)
    assert "max_pending_tasks" in str(refused.value)
    assert gateway.requests == []
