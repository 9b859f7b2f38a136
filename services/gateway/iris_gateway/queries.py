"""Reads: one request to the state service, whose JSON is passed on as it is.

Equal reads that wait at the same time are sent once: a read that arrives while an equal one is in
flight shares the next one, so an answer is never older than its request. Out of scope: the content
    of views.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from iris_bus.contract import Bus, NoResponders, Unavailable
from iris_core.backoff import Backoff
from iris_core.codec import Undecodable, pack, unpack
from iris_core.messages.gateway_state import BEHIND, Answer, Caller, Query
from iris_core.subjects import STATE_QUERY, STATE_READ
from iris_core.views.queries import ViewQuery, arguments_of, view_name
from iris_gateway.http.position import Position
from iris_gateway.http.problem import ProblemResponse, refused
from iris_service.run import shared

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.25
_FOLLOWER_S = 1.0
"""How long a replica that follows may take at most before the leader is asked; one that has
answered lately, twice.
"""
_ALONE_S = 1.0
"""After no follower has answered, followers are not asked for so many seconds."""


class _Question(NamedTuple):
    """A packed query, and the caller's position when that is newer than the gateway's."""

    data: bytes
    at_least: int


@dataclass(slots=True)
class _Flight:
    """Equal reads: the one in flight, and the next one with all its callers."""

    current: asyncio.Task[Answer]
    following: asyncio.Task[Answer] | None = field(default=None)


class Queries:
    """Reads from the state service: from a follower that is new enough, else from the leader.

    Args:
        position: of the newest write; every answer is at least as new.
        retry_for_s: how long a read may take, and is retried while there is no leader.
    """

    def __init__(
        self, bus: Bus, position: Position | None = None, *, retry_for_s: float = 3.0
    ) -> None:
        self._bus = bus
        self._position = position or Position()
        self._retry_for_s = retry_for_s
        self._follower_s = min(_FOLLOWER_S, retry_for_s / 4)
        self._alone_until_s = 0.0
        self._has_follower = True
        self._answered_s = -math.inf
        self._asking: set[asyncio.Task[Answer | None]] = set()
        self._flights: dict[_Question, _Flight] = {}

    async def ask(self, query: ViewQuery, caller: Caller) -> bytes:
        """The JSON of one view. Raises ProblemResponse: not_found, invalid, unavailable."""
        return (await self.read(query, caller)).body

    async def read(self, query: ViewQuery, caller: Caller, at_least: int = 0) -> Answer:
        """One view as of the caller's position ``at_least``. Raises ProblemResponse as `ask`."""
        known = at_least if at_least > self._position.newest else 0
        asker = msgspec.structs.replace(
            caller, token="", address="", groups=None
        )  # equal reads of one user are one
        question = _Question(pack(Query(view_name(type(query)), arguments_of(query), asker)), known)
        answer = await asyncio.shield(self._shared(question))
        if answer.status != "ok":
            raise refused(answer.status, answer.body)
        return answer

    def _shared(self, question: _Question) -> asyncio.Task[Answer]:
        flight = self._flights.get(question)
        if flight is None:
            task = shared(self._fly(question, None))
            self._flights[question] = _Flight(task)
            return task
        if flight.following is None:
            flight.following = shared(self._fly(question, flight.current))
        return flight.following

    async def _fly(self, question: _Question, before: asyncio.Task[Answer] | None) -> Answer:
        if before is not None:
            await asyncio.wait([before])
        try:
            return await self._persist(question)
        finally:
            self._is_over(question)

    def _is_over(self, question: _Question) -> None:
        flight = self._flights[question]
        if flight.following is None:
            del self._flights[question]
        else:
            self._flights[question] = _Flight(flight.following)

    async def _persist(self, question: _Question) -> Answer:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        try:
            async with asyncio.timeout(self._retry_for_s):
                while True:
                    try:
                        return await self._once(question)
                    except NoResponders:
                        await asyncio.sleep(backoff.next_s())
        except TimeoutError:
            raise ProblemResponse("unavailable", "the state service cannot be reached") from None

    async def _once(self, question: _Question) -> Answer:
        """One answer. Raises NoResponders, ProblemResponse."""
        query = unpack(question.data, Query)
        data = pack(
            msgspec.structs.replace(query, at_least=max(question.at_least, self._position.newest))
        )
        answer = await self._from_follower(data)
        return answer if answer is not None else await self._from_leader(data)

    async def _from_follower(self, data: bytes) -> Answer | None:
        """None without a follower that is recent enough. After none answered, one read a second
        looks for one, and does not wait: somebody who subscribes to everything would have it wait
            for an answer that never comes.

        A follower that is slow has too much to do, and the same load would delay the commits of a
        leader. So the leader is asked single questions then, and all of them only when no follower
        has answered lately.
        """
        clock = asyncio.get_running_loop().time
        if clock() < self._alone_until_s:
            return None
        if (
            clock() - self._answered_s < self._follower_s
        ):  # its answer will be waited for in any case
            return await self._ask_follower(data)
        asking = asyncio.create_task(self._ask_follower(data))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        if self._has_follower:
            await asyncio.wait([asking], timeout=self._follower_s)
            if asking.done() or clock() - self._answered_s < 2 * self._follower_s:
                return await asking
        self._has_follower, self._alone_until_s = False, clock() + _ALONE_S
        return None

    async def _ask_follower(self, data: bytes) -> Answer | None:
        """An answer that comes too late also shows that a follower is available."""
        clock = asyncio.get_running_loop().time
        try:
            answer = unpack(
                (await self._bus.request(STATE_READ, data, timeout=2 * self._follower_s)).data,
                Answer,
            )
        except (NoResponders, Undecodable):
            self._has_follower, self._alone_until_s = False, clock() + _ALONE_S
            return None
        except Unavailable:
            return None
        self._answered_s = clock()
        self._alone_until_s = 0.0
        self._has_follower = True
        return answer if answer.status != BEHIND else None

    async def _from_leader(self, data: bytes) -> Answer:
        try:
            message = await self._bus.request(STATE_QUERY, data, timeout=self._retry_for_s)
            return unpack(message.data, Answer)
        except NoResponders:
            raise
        except Unavailable:
            raise ProblemResponse("unavailable", "the state service has not answered") from None
        except Undecodable as error:
            raise ProblemResponse(
                "internal", f"the state service's answer cannot be read: {error}"
            ) from None
