"""Sends commands to the leader of the state service and repeats each until it is answered or times
out.

A command keeps its request id through every try, so it takes effect once: the journal holds its
answer beside its effect. A bounded number is outstanding, and half of it of one user; the others
wait here, users in turn, and were not sent.
Out of scope: what a command means; deciding whether it is allowed. Source:
    docs/adr/0026-one-way-in-for-commands.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from iris_bus.contract import Bus, Headers, NoResponders, Unavailable
from iris_core.backoff import Backoff
from iris_core.codec import Undecodable, pack, unpack
from iris_core.errors import Code
from iris_core.messages.gateway_state import Answer, UserCommand
from iris_gateway.http.position import Position
from iris_gateway.http.problem import ProblemResponse, refused
from iris_service import tracing
from iris_service.fair_turns import FairTurns

OUTSTANDING = 256
OUTSTANDING_BYTES = 16 << 20
"""Commands that are sent and not answered, at once, and their bytes: more than rounds need to be
full, less than a leader queues, also of several gateways. One user has half of them at most.
"""
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.25
DONE = frozenset({"ok", "created", "replayed", "accepted"})
UNANSWERED = (
    "the state service has not answered, and the command may have taken effect; repeating it with the same "
    "Idempotency-Key is safe"
)
NO_LEADER = "no replica of the state service leads; the command has had no effect"
NOT_SENT = (
    "too many commands wait for the state service; this one was not sent and has had no effect"
)
TOO_MANY_OF_USER = (
    "as many of your commands wait for the state service as one user may have there; this one was not sent "
    "and has had no effect"
)


UNSENT = ("", 0)
"""The request id and the time of a command that is not sent yet; `Commands.ask` fills them in."""


@dataclass(slots=True)
class _Request:
    """One command on its way, with the outcome of its tries.

    Attributes:
        unknown: whether some try may have been received and was not answered. refusal: why the last
            one was refused.
    """

    subject: str
    data: bytes
    headers: Headers | None
    unknown: bool = False
    refusal: ProblemResponse | None = None

    def unavailable(self, not_sent: str) -> ProblemResponse:
        """The 503 after the time limit; it states whether the command may have taken effect, and
        with ``not_sent`` why it was never sent.
        """
        if self.unknown:
            return ProblemResponse("unavailable", UNANSWERED)
        return self.refusal or ProblemResponse("unavailable", not_sent)


class Commands:
    """Sends commands and matches their answers.

    Args:
        position: receives the journal position of each command.
        retry_for_s: time limit of one command over all tries; then its caller gets a 503.
        try_timeout_s: time without an answer after which it is sent again; doubles with each try,
            so that a slow leader has time to answer.
        outstanding: the largest number of unanswered commands. One that waits to be sent is not
            sent any more when less than `try_timeout_s` of its time is left: its answer would come
                too late to be told.
        outstanding_bytes: of these.
        new_id: makes ids that never repeat. now_ms: the time of day.
    """

    def __init__(
        self,
        bus: Bus,
        position: Position | None = None,
        *,
        new_id: Callable[[], str],
        now_ms: Callable[[], int],
        retry_for_s: float = 10.0,
        try_timeout_s: float = 0.5,
        outstanding: int = OUTSTANDING,
        outstanding_bytes: int = OUTSTANDING_BYTES,
    ) -> None:
        self._bus = bus
        self._position = position or Position()
        self._new_id = new_id
        self._now_ms = now_ms
        self._retry_for_s = retry_for_s
        self._try_timeout_s = try_timeout_s
        self._turns = FairTurns(outstanding)
        self._bytes = FairTurns(outstanding_bytes)

    async def ask(self, subject: str, command: UserCommand, *, key: str = "") -> Answer:
        """Send a command under a request id, with its time and trace context; returns its answer
        once its effect is durable.

        Args:
            key: the caller's idempotency key; the same key is the same request. Empty: a new
                request.

        Raises ProblemResponse: the refusal of the state service, or as `send`.
        """
        traceparent = tracing.current()
        data = pack(self._stamped(command, key or self._new_id(), traceparent))
        answer = await self.send(
            subject,
            data,
            {tracing.HEADER: traceparent} if traceparent else None,
            user=command.caller.user,
        )
        self._position.note(answer.position)
        if answer.status not in DONE:
            raise refused(answer.status, answer.body)
        return answer

    def _stamped(self, command: UserCommand, request_id: str, traceparent: str) -> UserCommand:
        now_ms = self._now_ms()
        of_sender: dict[str, Any] = {
            "request_id": request_id,
            "requested_ms": now_ms,
            "submitted_ms": now_ms,
            "traceparent": traceparent,
        }
        own = {
            name: value for name, value in of_sender.items() if name in command.__struct_fields__
        }
        return msgspec.structs.replace(command, **own)

    async def send(
        self, subject: str, data: bytes, headers: Headers | None = None, *, user: str = ""
    ) -> Answer:
        """Send a packed command of a user; returns the answer, which may be a refusal.

        Raises ProblemResponse when no answer came in time; it states whether the command may have
        taken effect.
        """
        request = _Request(subject, data, headers)
        limit_s = asyncio.get_running_loop().time() + self._retry_for_s
        try:
            async with (
                asyncio.timeout_at(limit_s - self._try_timeout_s) as waiting,
                self._turns.turn(user),
                self._bytes.turn(user, len(data)),
            ):
                waiting.reschedule(limit_s)
                return await self._repeat(request)
        except TimeoutError:
            raise request.unavailable(self._not_sent(user, len(data))) from None

    def _not_sent(self, user: str, size: int) -> str:
        """Why a command of this user is not sent."""
        has_all = self._turns.has_all(user) or self._bytes.has_all(user, size)
        return TOO_MANY_OF_USER if has_all else NOT_SENT

    async def _repeat(self, request: _Request) -> Answer:
        """Send it until a leader answers; retry when the leader is overloaded or cannot read it."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        timeout_s = self._try_timeout_s
        while True:
            before = request.unknown
            request.unknown = True
            try:
                answer = await self._send(request, timeout_s)
                if answer.status != Code.UNAVAILABLE:
                    return answer
                request.unknown, request.refusal = before, refused(answer.status, answer.body)
            except NoResponders:
                request.unknown, request.refusal = before, ProblemResponse("unavailable", NO_LEADER)
            except Unavailable:
                timeout_s *= 2
            await asyncio.sleep(backoff.next_s())

    async def _send(self, request: _Request, timeout_s: float) -> Answer:
        """One try. Raises Unavailable, or ProblemResponse for an answer of another release."""
        reply = await self._bus.request(
            request.subject, request.data, timeout=timeout_s, headers=request.headers
        )
        try:
            return unpack(reply.data, Answer)
        except Undecodable as error:
            raise ProblemResponse("internal", f"the answer cannot be read: {error}") from error
