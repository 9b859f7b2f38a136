"""What people want, said to the leader or put into the durable inbox, and the state service's answer to it.

One subscription hears the answers to what was stored. A command keeps its id through every repetition, so that it
takes effect once. Out of scope: what a command means; deciding whether it is allowed; speaking to the leader
(`direct`). Source: docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from iris_bus import tracing
from iris_bus.contract import Bus, Full, Headers, Message, Streams, Subscription, Unavailable
from iris_core.codec import Undecodable, pack, unpack
from iris_core.messages import Answer
from iris_gateway.direct import RETRY_FOR_S, DirectRequests, NoLeader, Unanswered
from iris_gateway.position import Position
from iris_gateway.problem import ProblemResponse, refused

_PAUSE_S = 0.1
_STORE_TIMEOUT_S = 2.0
DONE = frozenset({"ok", "created", "replayed", "accepted"})


class Envelope(NamedTuple):
    """What the sender of a command fills into it: its id, where the answer goes, when it was asked (ms), its trace."""

    request_id: str
    answer_to: str
    at_ms: int
    traceparent: str


class _Parcel(NamedTuple):
    """A command as it is stored, as often as need be."""

    subject: str
    data: bytes
    token: str
    headers: Headers | None


class Commands:
    """The sending side.

    Args:
        position: told where each command has come to stand.
        retry_for_s: how long one command may take altogether before the caller is told to try again.
        nudge_s: silence after which a stored command is put in again, in case its answer was lost.
        direct_timeout_s: silence after which a command that was said to the leader is stored.
        new_id: makes ids that never repeat. now_ms: the time of day.
    """

    def __init__(
        self,
        bus: Bus,
        streams: Streams,
        position: Position | None = None,
        *,
        new_id: Callable[[], str],
        now_ms: Callable[[], int],
        retry_for_s: float = 10.0,
        nudge_s: float = 2.0,
        direct_timeout_s: float = RETRY_FOR_S,
    ) -> None:
        self._bus = bus
        self._streams = streams
        self._position = position or Position()
        self._direct = DirectRequests(bus, direct_timeout_s)
        self._new_id = new_id
        self._now_ms = now_ms
        self._timeout_s = retry_for_s
        self._nudge_s = nudge_s
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._waiting: dict[str, asyncio.Future[Answer]] = {}

    async def start(self) -> None:
        """Listen for answers. Raises Unavailable."""
        self._inbox = self._bus.new_inbox()
        self._subscription = await self._bus.subscribe(f"{self._inbox}.*", self._answered)

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    async def ask(self, subject: str, build: Callable[[Envelope], Any], *, key: str = "") -> Answer:
        """The answer to a command, once what it did is durable.

        Args:
            key: what the caller knows the request by; the same key is the same request. Empty: a request of its own.

        Raises ProblemResponse: the refusal of the state service, or unavailable when no answer came in time. In the
        second case what was stored is still carried out later, and what was heard may be; repeating it with the same
        Idempotency-Key is safe.
        """
        token = self._new_id()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        traceparent = tracing.current()
        message = build(Envelope(key or token, f"{self._inbox}.{token}", self._now_ms(), traceparent))
        try:
            async with asyncio.timeout(self._timeout_s):
                headers = {tracing.HEADER: traceparent} if traceparent else None
                answer = await self._exchange(_Parcel(subject, pack(message), token, headers), future)
        except TimeoutError:
            raise ProblemResponse("unavailable", "the state service has not answered yet") from None
        finally:
            del self._waiting[token]
        self._position.note(answer.position)
        if answer.status not in DONE:
            raise refused(answer.status, answer.body)
        return answer

    async def _exchange(self, parcel: _Parcel, future: asyncio.Future[Answer]) -> Answer:
        """Say it, store it, and store it again, until there is an answer: the request is known by its id."""
        detail = "the inbox is full; nothing was stored"
        try:
            return await self._direct.ask(parcel.subject, parcel.data, parcel.headers)
        except NoLeader:
            pass
        except Unanswered:
            detail = "the state service has not answered yet, and the inbox is full"
        number = 0
        try:
            await self._store(parcel, f"{parcel.token}.{number}")
        except Full:
            raise ProblemResponse("unavailable", detail) from None
        while True:
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(future), self._nudge_s)
            number += 1
            with contextlib.suppress(Full):  # the first one is in there
                await self._store(parcel, f"{parcel.token}.{number}")

    async def _store(self, parcel: _Parcel, message_id: str) -> None:
        """Repeat with one id until the stream has it, so that it has it once. Raises Full."""
        while True:
            try:
                await self._streams.publish(
                    parcel.subject,
                    parcel.data,
                    message_id=message_id,
                    headers=parcel.headers,
                    timeout=_STORE_TIMEOUT_S,
                )
            except Unavailable:
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    def _answered(self, message: Message) -> None:
        self._direct.reopen()
        future = self._waiting.get(message.subject.rpartition(".")[2])
        if future is None or future.done():
            return
        try:
            future.set_result(unpack(message.data, Answer))
        except Undecodable as error:
            future.set_exception(ProblemResponse("internal", f"the answer cannot be read: {error}"))
