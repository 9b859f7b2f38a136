"""Evaluates the Prometheus queries of scaling rules, in a task beside the rounds of the leader.

The values are published as a load report, which this leader and its followers receive like those
of proxies. The address of Prometheus is a setting of the operator (``[state] prometheus``); a
deployment contains only the query.
Source: docs/design/serving.md#scale; https://prometheus.io/docs/prometheus/latest/querying/api/.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from iris_bus.contract import Bus
from iris_core import codec
from iris_core.codec import Undecodable
from iris_core.messages.proxy_state import LoadReport, QueriedLoad
from iris_core.subjects import LOADS
from iris_state.policy import Policy

if TYPE_CHECKING:
    from aiohttp import ClientSession

AT_ONCE = 8
"""Queries in progress, at most."""
ANSWER_BYTES = 64 << 10
"""Size of an answer that is read, at most."""


class LoadQueries:
    """The queries of one leader.

    Args:
        wanted: the query of each deployment, by name.
    """

    def __init__(self, bus: Bus, policy: Policy, wanted: Callable[[], Mapping[str, str]]) -> None:
        self._bus = bus
        self._policy = policy
        self._wanted = wanted
        self._some = asyncio.Semaphore(AT_ONCE)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._policy.prometheus_interval_s)
            wanted = self._wanted()
            if wanted:
                self._bus.publish(
                    LOADS, codec.pack(LoadReport("", queried=await self._ask_all(wanted)))
                )

    async def _ask_all(self, wanted: Mapping[str, str]) -> tuple[QueriedLoad, ...]:
        if not self._policy.prometheus:
            return tuple(
                QueriedLoad(name, error="[state] prometheus is not set") for name in wanted
            )
        from aiohttp import (
            ClientSession,
            ClientTimeout,
        )  # takes 0.1 s, so it is imported only when a query exists

        timeout = ClientTimeout(total=self._policy.prometheus_timeout_s)
        async with ClientSession(timeout=timeout) as session:
            asking = (self._ask(session, name, query) for name, query in wanted.items())
            return tuple(await asyncio.gather(*asking))

    async def _ask(self, session: ClientSession, name: str, query: str) -> QueriedLoad:
        """The value of one query, or why there is none."""
        from aiohttp import ClientError

        try:
            async with self._some:
                return QueriedLoad(name, await self._value(session, query))
        except TimeoutError:
            return QueriedLoad(
                name,
                error=f"Prometheus did not answer within {self._policy.prometheus_timeout_s:g} s",
            )
        except (ClientError, ValueError) as error:
            return QueriedLoad(name, error=str(error) or type(error).__name__)

    async def _value(self, session: ClientSession, query: str) -> float:
        """Raises ClientError, TimeoutError, ValueError."""
        url = f"{self._policy.prometheus.rstrip('/')}/api/v1/query"
        async with session.get(url, params={"query": query}, allow_redirects=False) as answer:
            body = b""
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > ANSWER_BYTES:
                    raise ValueError(
                        "the answer of Prometheus is too long: aggregate the query, for example by sum()"
                    )
            return value_of(body, answer.status)


class _Series(msgspec.Struct, frozen=True):
    value: tuple[float, str]


class _Result(msgspec.Struct, frozen=True):
    resultType: str = ""  # noqa: N815 - as Prometheus says it
    result: msgspec.Raw = msgspec.Raw(b"null")


class _Answer(msgspec.Struct, frozen=True):
    data: _Result = _Result()
    error: str = ""


def value_of(body: bytes, status: int) -> float:
    """The one value of an answer of Prometheus. Raises ValueError: it is an error, or not one
    value, or no number.
    """
    try:
        answer = codec.from_json(body, _Answer)
        found = _values(answer.data)
    except Undecodable as error:
        raise ValueError(f"Prometheus answered {status}, which cannot be read: {error}") from None
    if status != 200 or found is None:
        raise ValueError(answer.error or f"Prometheus answered {status}, and no scalar or vector")
    if len(found) != 1:
        raise ValueError(
            f"the query has {len(found)} results, not one: aggregate them, for example by sum()"
        )
    value = float(found[0])
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"the query gives {value}, which is not a load")
    return value


def _values(data: _Result) -> list[str] | None:
    """Raises Undecodable. None: neither a scalar nor a vector."""
    if data.resultType == "scalar":
        return [codec.from_json(bytes(data.result), tuple[float, str])[1]]
    if data.resultType == "vector":
        return [series.value[1] for series in codec.from_json(bytes(data.result), list[_Series])]
    return None
