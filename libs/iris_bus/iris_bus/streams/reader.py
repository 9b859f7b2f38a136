"""Reads a stream in order and without gaps: long pulls on an ephemeral consumer whose sequence is
checked.

On any error (a missing sequence, a deleted consumer, silence, a lost connection) the consumer is
created again after the last message read, with backoff. That the stream itself was made anew, as by
a restore, is a Gap: sequences of the new one say nothing about the old one. That is looked at after
each consumer is made, as a stream takes its consumers with it. A reader that has dropped what it held
(`holdings`) has no consumer until its user has taken the message that is left.
Out of scope: acknowledgements; where to start after a Gap.
Source: contract.py `Reader`; docs/design/nats.md#nats-py-behaviour,
    docs/design/nats.md#features-used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from iris_bus.connection import headers as header_block
from iris_bus.connection.connection import Link
from iris_bus.connection.headers import RawHeaders
from iris_bus.connection.nats_py import Subscription as NatsSubscription
from iris_bus.connection.termination import end
from iris_bus.contract import Gap, Message, Unavailable
from iris_bus.streams.api import Api, ApiError, Trouble
from iris_bus.streams.holdings import Holdings
from iris_core.backoff import Backoff

log = logging.getLogger(__name__)

PULL = 2000
_PULL_BYTES = 8 << 20
"""No less than the largest message: a pull that cannot hold the next one ends without any."""
_AHEAD = 2 * PULL
_AHEAD_BYTES = 4 << 20
"""Messages that nobody has taken: with more, no more are requested. So a reader whose user is slow
holds at most this, and what two pulls bring.
"""
_EXPIRES_S = 20.0
_HEARTBEAT_S = 2.0
_SILENCE_S = 2.5 * _HEARTBEAT_S
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 2.0
_NS = 1_000_000_000
_PULL_ENDED = ("batch completed", "message size exceeds maxbytes", "max bytes")


class ConsumerInfo(msgspec.Struct, frozen=True):
    """The answer to CONSUMER.CREATE."""

    num_pending: int = 0
    error: Trouble | None = None


class JetReader:
    """One reader; a task of its own keeps its consumer alive until `close`.

    Args:
        after: the last sequence already known.
        subjects: only messages on them; all when empty.
        dense: sequences must be consecutive; a missing one is a Gap. Only for streams read whole
            that drop nothing in between.
        bare: messages without their headers, for readers of millions of messages.
        strict: with ``after`` 0 the stream must still begin at 1; otherwise 0 means what is kept.
        made: when the stream was made that ``after`` is a sequence of; empty: whichever is there.
        holdings: bounds what it holds together with other readers; None: it is bounded alone.
    """

    def __init__(
        self,
        link: Link,
        api: Api,
        stream: str,
        after: int,
        *subjects: str,
        dense: bool,
        strict: bool,
        bare: bool = False,
        made: str = "",
        holdings: Holdings | None = None,
    ) -> None:
        self._link = link
        self._api = api
        self._stream = stream
        self._position = after
        self._subjects = subjects
        self._dense = dense
        self._bare = bare
        self._strict = strict or after > 0
        self._buffer: deque[Message] = deque()
        self._held_bytes = 0
        self._holdings = holdings or Holdings()
        self._rests = False
        self._wanted = asyncio.Event()
        self._pull = PULL
        self._failure: Exception | None = None
        self._notify: Callable[[], None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._made = made
        self._next = 1
        self._credit = 0
        self._pull_count = 0
        self._last_arrival_s = 0.0
        self._left: bytes | int = -1
        self._begun = asyncio.Event()
        self._generation = 0
        self._consumer = ""
        self._inbox = ""
        self._subscription: NatsSubscription | None = None
        self._trouble = asyncio.Event()
        self._back = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        link.on_drop(self._dropped)
        link.on_return(self._back.set)
        self._keeper = asyncio.create_task(self._keep())

    async def finished(self) -> bool:
        """Whether all messages that the server last reported have been taken."""
        await self._begun.wait()
        if not self._buffer and self._failure is not None:
            raise self._failure
        return int(self._left) == 0 and not self._buffer

    async def batch(self, *, limit: int = PULL, wait: float | None = None) -> Sequence[Message]:
        """The available messages; waits for the first. Raises Gap; Unavailable once closed."""
        if not self._buffer and self._failure is None:
            self._waiter = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._waiter
            self._waiter = None
        return self.take(limit)

    def on_arrival(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        if self._buffer or self._failure is not None:
            notify()

    def take(self, limit: int = PULL) -> Sequence[Message]:
        """The available messages, without waiting. Raises Gap; Unavailable once closed."""
        buffer = self._buffer
        if not buffer:
            if self._failure is not None:
                raise self._failure
            return []
        if len(buffer) <= limit:
            taken = list(buffer)
            buffer.clear()
            self._held_bytes = 0
        else:
            taken = [buffer.popleft() for _ in range(limit)]
            self._held_bytes -= sum(len(message.data) for message in taken)
        self._holdings.take(self, self._held_bytes)
        if not buffer:
            self._wanted.set()
        self._ask_for_more()
        return taken

    def keep_first(self) -> None:
        """Drop all messages but the first, and request nothing until that was taken; then ever
        more at once, as its user takes them.
        """
        dropped = len(self._buffer) - 1
        if dropped < 1 or self._failure is not None:
            return
        first = self._buffer[0]
        self._buffer.clear()
        self._buffer.append(first)
        self._held_bytes = len(first.data)
        self._position = first.sequence
        self._strict = True
        self._left = int(self._left) + dropped
        self._pull = 1
        self._rests = True
        self._wanted.clear()
        self._generation += 1
        self._trouble.set()

    async def close(self) -> None:
        """Close the reader and delete its consumer on the server."""
        self._failure = self._failure or Unavailable("the reader is closed")
        self._link.forget(self._dropped)
        self._link.forget(self._back.set)
        self._holdings.take(self, 0)
        await end(self._keeper)
        await self._end()
        self._wake()

    async def _keep(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            try:
                await self._begin()
                if await self._watch():
                    backoff.reset()
            except Gap as gap:
                self._fail(gap)
                return
            except Unavailable as error:
                log.debug("reader of %s: %s", self._stream, error)
            await self._end()
            if self._failure is not None:
                return
            if self._rests:
                await self._wanted.wait()
                self._rests = False
                continue
            self._back.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_s()):
                    await self._back.wait()

    async def _begin(self) -> None:
        """Create a consumer after the last message and request messages. Raises Gap,
        Unavailable.
        """
        self._generation += 1
        self._trouble.clear()
        generation = self._generation
        self._inbox = self._link.client.new_inbox()
        self._subscription = await self._link.subscribe(
            f"{self._inbox}.*", lambda *message: self._received(generation, *message)
        )
        self._consumer = f"iris-{self._inbox.rpartition('.')[2]}"
        self._next = 1
        self._credit = 0
        left = await self._create()
        await self._check_start()
        self._left = left
        self._begun.set()
        self._last_arrival_s = self._clock()
        self._ask_for_more()
        self._wake()

    async def _check_start(self) -> None:
        info = await self._api.info(self._stream)
        if self._made not in ("", info.created):
            raise Gap(f"{self._stream} was made anew")
        self._made = info.created
        if not self._dense:
            return
        first = info.state.first_seq
        if first <= self._position + 1:
            return
        if self._strict:
            raise Gap(f"{self._stream} begins at {first}, {self._position + 1} is needed")
        self._position = first - 1

    async def _create(self) -> int:
        """Create the consumer; how many messages there are for it. Raises Unavailable."""
        config: dict[str, Any] = {
            "name": self._consumer,
            "deliver_policy": "by_start_sequence" if self._position else "all",
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 30 * _NS,
        }
        if self._position:
            config["opt_start_seq"] = self._position + 1
        verb = f"CONSUMER.CREATE.{self._stream}.{self._consumer}"
        if len(self._subjects) == 1:
            config["filter_subject"] = self._subjects[0]
            verb = f"{verb}.{self._subjects[0]}"
        elif self._subjects:
            config["filter_subjects"] = self._subjects
        made = await self._api.call(
            verb, {"stream_name": self._stream, "config": config}, ConsumerInfo
        )
        if made.error is not None:
            raise ApiError(f"reader of {self._stream}", made.error)
        return made.num_pending

    async def _watch(self) -> bool:
        """Return when the consumer must be created again; whether it has delivered anything."""
        started = self._last_arrival_s
        while not self._trouble.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT_S):
                    await self._trouble.wait()
            if self._credit and self._clock() - self._last_arrival_s > _SILENCE_S:
                await self._link.flush()  # this process may have been suspended
                if self._clock() - self._last_arrival_s > _SILENCE_S:
                    break
        return self._last_arrival_s > started

    async def _end(self) -> None:
        self._generation += 1
        if self._subscription is not None:
            await self._link.unsubscribe(self._subscription)
            self._subscription = None
        if self._consumer:
            with contextlib.suppress(Unavailable):
                self._link.send(
                    f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._consumer}",
                    b"",
                    f"{self._inbox}.gone",
                )
            self._consumer = ""
        self._credit = 0

    def _received(
        self, generation: int, subject: bytes, reply: bytes, data: bytes, headers: RawHeaders
    ) -> None:
        if generation != self._generation:
            return
        self._last_arrival_s = self._clock()
        if not reply.startswith(b"$JS.ACK."):
            self._status(header_block.parse(headers))
            return
        # $JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<tries>.<sequence>.<count>.<time>.<left>[.<random>]
        parts = reply.split(b".")
        at = 5 if len(parts) == 9 else 7
        sequence = int(parts[at])
        if int(parts[at + 1]) != self._next:
            self._trouble.set()
            self._generation += 1
            return
        if self._dense and sequence != self._position + 1:
            self._jumped(sequence)
            return
        self._next += 1
        self._credit -= 1
        self._position = sequence
        self._left = parts[at + 3]
        buffer = self._buffer
        shown = {} if self._bare else header_block.parse(headers)
        buffer.append(Message(subject.decode(), data, shown, "", sequence=sequence))
        self._held_bytes += len(data)
        if len(buffer) == 1:
            self._wake()
        if self._credit < PULL // 2:
            self._ask_for_more()
        self._holdings.add(self, len(data))

    def _jumped(self, sequence: int) -> None:
        """Raise Gap: messages were trimmed before they were read."""
        self._generation += 1
        self._trouble.set()
        self._fail(Gap(f"{self._stream} went from {self._position} to {sequence}"))

    def _status(self, headers: dict[str, str]) -> None:
        status = headers.get("Status", "")
        if status == "100":
            if int(headers.get("Nats-Last-Consumer", "0")) >= self._next:
                self._trouble.set()
        elif status in ("404", "408") or (status == "409" and _ends_pull(headers)):
            self._credit = max(0, self._credit - int(headers.get("Nats-Pending-Messages", "0")))
            self._ask_for_more()
        else:
            log.debug("reader of %s: %s %s", self._stream, status, headers.get("Description", ""))
            self._trouble.set()

    def _ask_for_more(self) -> None:
        """Request more messages when few are requested and the buffer has space; a lost request is
        detected by silence.
        """
        if not self._consumer or self._failure is not None or self._trouble.is_set():
            return
        if self._credit >= PULL // 2 or len(self._buffer) + self._credit >= _AHEAD:
            return
        if self._pull < PULL and (self._buffer or self._credit):
            return
        if self._held_bytes >= _AHEAD_BYTES:
            return
        self._pull_count += 1
        pull = str(self._pull_count)
        body = b'{"batch":%d,"max_bytes":%d,"expires":%d,"idle_heartbeat":%d}' % (
            self._pull,
            _PULL_BYTES,
            int(_EXPIRES_S * _NS),
            int(_HEARTBEAT_S * _NS),
        )
        try:
            self._link.send(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
                body,
                f"{self._inbox}.{pull}",
            )
        except Unavailable:
            self._trouble.set()
            return
        self._credit += self._pull
        self._pull = min(PULL, 2 * self._pull)

    def _dropped(self) -> None:
        self._trouble.set()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._begun.set()
        self._wake()

    def _wake(self) -> None:
        if (
            self._waiter is not None
            and not self._waiter.done()
            and (self._buffer or self._failure is not None)
        ):
            self._waiter.set_result(None)
        if self._notify is not None and (self._buffer or self._failure is not None):
            self._notify()


def _ends_pull(headers: dict[str, str]) -> bool:
    """Whether a 409 status only ends one pull request."""
    return any(words in headers.get("Description", "").lower() for words in _PULL_ENDED)
