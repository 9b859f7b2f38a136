"""Reads: one request to the state service, whose JSON is passed on as it is.

Equal questions that wait at the same moment are asked once: whoever comes while one is under way shares the next,
so an answer is never older than its question. Not in this room: what the views hold.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from iris_bus.contract import Bus, NoResponders, Unavailable
from iris_core.codec import Undecodable, pack, unpack
from iris_core.messages import Answer, Caller, Query
from iris_core.subjects import STATE_QUERY
from iris_gateway.problem import Problem, refused

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.25


@dataclass(slots=True)
class _Flight:
    """Equal questions: the one under way, and the one that will be asked next with everybody who waits for it."""

    current: asyncio.Task[Answer]
    following: asyncio.Task[Answer] | None = field(default=None)


class Queries:
    """Questions to the leading state service.

    Args:
        timeout_s: of one request. patience_s: how long to go on asking while nobody leads.
    """

    def __init__(self, bus: Bus, *, timeout_s: float = 5.0, patience_s: float = 3.0) -> None:
        self._bus = bus
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._flights: dict[bytes, _Flight] = {}

    async def ask(self, what: str, caller: Caller, **arguments: object) -> bytes:
        """The JSON of one view. Raises Problem: not_found, invalid, unavailable."""
        question = pack(Query(what, arguments, caller))
        answer = await asyncio.shield(self._shared(question))
        if answer.status != "ok":
            raise refused(answer.status, answer.body)
        return answer.body

    def _shared(self, question: bytes) -> asyncio.Task[Answer]:
        flight = self._flights.get(question)
        if flight is None:
            task = asyncio.create_task(self._fly(question, None))
            self._flights[question] = _Flight(task)
            return task
        if flight.following is None:
            flight.following = asyncio.create_task(self._fly(question, flight.current))
        return flight.following

    async def _fly(self, question: bytes, before: asyncio.Task[Answer] | None) -> Answer:
        if before is not None:
            await asyncio.wait([before])
        try:
            return await self._persist(question)
        finally:
            self._landed(question)

    def _landed(self, question: bytes) -> None:
        flight = self._flights[question]
        if flight.following is None:
            del self._flights[question]
        else:
            self._flights[question] = _Flight(flight.following)

    async def _persist(self, question: bytes) -> Answer:
        pause = _FIRST_PAUSE_S
        try:
            async with asyncio.timeout(self._patience_s):
                while True:
                    try:
                        return await self._once(question)
                    except NoResponders:
                        await asyncio.sleep(pause)
                        pause = min(2 * pause, _LONGEST_PAUSE_S)
        except TimeoutError:
            raise Problem("unavailable", "the state service cannot be reached") from None

    async def _once(self, question: bytes) -> Answer:
        try:
            message = await self._bus.request(STATE_QUERY, question, timeout=self._timeout_s)
            return unpack(message.data, Answer)
        except NoResponders:
            raise
        except Unavailable:
            raise Problem("unavailable", "the state service has not answered") from None
        except Undecodable as error:
            raise Problem("internal", f"the state service's answer cannot be read: {error}") from None
