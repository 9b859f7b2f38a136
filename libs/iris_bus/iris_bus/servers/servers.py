"""Asks all NATS servers of a cluster about themselves, as the system account lets the asker.

Source: the system services of nats-server (``$SYS.REQ.SERVER.PING.*``).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from iris_bus.connection.connection import Link
from iris_bus.connection.headers import RawHeaders
from iris_bus.contract import ServerStorage, Unavailable

ANSWER_S = 2.0
_SILENCE_S = 0.3
"""No further server answers when none has for so long."""


async def ask_all(link: Link, service: str, body: bytes) -> list[tuple[dict[str, Any], float]]:
    """The answers of all servers, each with the time of this machine at which it was under way
    (Unix, s).

    Raises Unavailable when there is none.
    """
    answers: list[tuple[dict[str, Any], float]] = []
    arrival = asyncio.Event()
    begun = time.time()

    def take(subject: bytes, reply: bytes, data: bytes, headers: RawHeaders) -> None:
        if data:
            answers.append((msgspec.json.decode(data), (begun + time.time()) / 2))
            arrival.set()

    inbox = link.client.new_inbox()
    subscription = await link.subscribe(inbox, take)
    link.send(f"$SYS.REQ.SERVER.PING.{service}", body, inbox)
    wait_s = ANSWER_S
    while await _arrives(arrival, wait_s):
        wait_s = _SILENCE_S
    await link.unsubscribe(subscription)
    if not answers:
        raise Unavailable(f"no server answers {service}")
    return answers


async def _arrives(event: asyncio.Event, seconds: float) -> bool:
    event.clear()
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def storage(link: Link) -> dict[str, ServerStorage]:
    """By the name of each server that answers. Raises Unavailable."""
    return {
        answer["server"]["name"]: _storage(answer.get("data") or {})
        for answer, _ in await ask_all(link, "JSZ", b"")
    }


def _storage(data: dict[str, Any]) -> ServerStorage:
    limit = (data.get("config") or {}).get("max_storage", 0)
    return ServerStorage(data.get("storage", 0), data.get("reserved_storage", 0), max(limit, 0))
