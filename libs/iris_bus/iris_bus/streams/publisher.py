"""Publishes events into `IRIS_EVENTS` in order, each once, at low cost, and fences a deposed
writer.

Events are sent as chained messages (see `wire`); only every few hundredth requests an
acknowledgement. After an error the stream's last event determines where to continue (see `window`);
since ids are the journal's, it does not matter which of two writers published an event. Out of
scope: the content of events. Source: docs/ARCHITECTURE.md#storage;
    docs/design/nats.md#features-used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from iris_bus.connection.connection import Link
from iris_bus.connection.headers import RawHeaders
from iris_bus.connection.termination import end
from iris_bus.contract import Fenced, Publication, Unavailable
from iris_bus.streams.api import Ack, Api
from iris_bus.streams.window import Window
from iris_core.backoff import Backoff
from iris_core.subjects import EVENTS

log = logging.getLogger(__name__)

IN_FLIGHT = 8000  # the server drops messages it cannot queue, from 100,000 on
CHUNK = 400
EVENT_BYTES = 1 << 20
_ANSWER_S = 2.0
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0
MARK = "iris-told"
"""Key of the stream's metadata that holds the id of the last published event."""
_MARK_AFTER_S = 30.0

Opened = tuple[Link, Api]


class JetPublisher:
    """The event publisher of one writer. Call `resume` first.

    Args:
        open_link: makes a connection of its own, so that a flood of events never delays a commit.
    """

    def __init__(self, open_link: Callable[[], Awaitable[Opened]]) -> None:
        self._open_link = open_link
        self._opened: Opened | None = None
        self._window = Window(IN_FLIGHT)
        self._inbox = ""
        self._round = 0
        self._failure: Exception | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._marker: asyncio.Task[None] | None = None
        self._marked = ""
        self._drained: list[asyncio.Future[None]] = []

    @property
    def last_published(self) -> str:
        """The id of the last event the stream has confirmed."""
        return self._window.last_published

    @property
    def backlog(self) -> int:
        """Events queued or sent, and not confirmed."""
        return self._window.backlog

    async def resume(self) -> str:
        """The id of the last event ever published, empty when none; forgets what was queued. Raises
        Unavailable.
        """
        await self._quiet()
        await self._connect()
        self._window.start(*await self._last())
        self._failure = None
        self._marker = asyncio.create_task(self._mark_now_and_then())
        return self.last_published

    def publish(self, events: Sequence[Publication]) -> None:
        """Queue events. Raises Fenced or Unavailable once publishing has failed for good,
        ValueError for a huge one.
        """
        if self._failure is not None:
            raise self._failure
        for event in events:
            if len(event.data) > EVENT_BYTES:
                raise ValueError(f"event {event.message_id} has {len(event.data)} bytes")
        self._window.add(events)
        self._pump()

    async def drain(self, timeout: float) -> None:
        """Return when every queued event is confirmed. Raises Fenced or Unavailable."""
        if self._failure is None and self.backlog:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drained.append(done)
            try:
                async with asyncio.timeout(timeout):
                    await done
            except TimeoutError as error:
                raise Unavailable(
                    f"{self.backlog} events were not confirmed in {timeout:g} s"
                ) from error
            finally:
                self._drained.remove(done)
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Close the connection; the next writer that resumes publishes what is not confirmed."""
        self._fail(Unavailable("the publisher is closed"))
        await self._quiet()
        if self._opened is not None:
            await self._mark()
            await self._opened[0].close()
            self._opened = None

    async def _connect(self) -> None:
        if self._opened is not None:
            return
        self._opened = await self._open_link()
        link, _ = self._opened
        self._inbox = link.client.new_inbox()
        link.on_drop(self._recover)
        await link.subscribe(f"{self._inbox}.*.*", self._answered)

    async def _quiet(self) -> None:
        self._round += 1
        self._stop_timer()
        await end(self._marker)
        await end(self._recovery)
        self._recovery = None

    def _pump(self) -> None:
        """Send events while the window has space."""
        if self._recovery is not None or self._failure is not None or self._opened is None:
            return
        link, _ = self._opened
        while True:
            after, events = self._window.next(CHUNK)
            if not events:
                break
            try:
                link.send_chain(events, after, f"{self._inbox}.{self._round}.{after + len(events)}")
            except Unavailable:
                self._recover()
                return
            except ValueError as error:  # an event that cannot be sent would block all later ones
                self._fail(error)
                raise
        if self._window.in_flight and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_ANSWER_S, self._late)

    def _answered(self, subject: bytes, reply: bytes, data: bytes, headers: RawHeaders) -> None:
        _, sent_in, sequence = subject.rsplit(b".", 2)
        if int(sent_in) != self._round or self._failure is not None:
            return
        ack = _decode(data)
        if ack.seq != int(sequence) or ack.error is not None or ack.duplicate:
            log.debug("events: %s", ack)
            self._recover()
            return
        self._stop_timer()
        self._window.confirm(ack.seq)
        self._settle()
        self._pump()

    def _late(self) -> None:
        self._timer = None
        self._recover()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _recover(self) -> None:
        """Find out where the stream ends, and continue after it."""
        if self._recovery is None and self._failure is None and self._window.in_flight:
            self._round += 1
            self._stop_timer()
            self._recovery = asyncio.create_task(self._find_place())

    async def _find_place(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        place = None
        while place is None:
            try:
                place = await self._last()
            except Unavailable as error:
                log.debug("events: %s", error)
                await asyncio.sleep(backoff.next_s())
        self._recovery = None
        try:
            self._window.go_on(*place)
        except (Fenced, Unavailable) as error:
            self._fail(error)
            return
        self._settle()
        self._pump()

    async def _last(self) -> tuple[int, str]:
        """The stream's last sequence and the id of the event there. Raises Unavailable."""
        if self._opened is None:
            raise Unavailable("the publisher is not connected")
        link, api = self._opened
        await link.flush(_ANSWER_S)
        info = await api.info(EVENTS.name)
        newest = info.state.last_seq
        stored = await api.message(EVENTS.name, seq=newest) if newest else None
        if stored is not None:
            return newest, stored.headers.get("Nats-Msg-Id", "")
        if newest == self._window.confirmed:
            return newest, self.last_published
        marked_at, _, last_published = str(
            (info.config.get("metadata") or {}).get(MARK, "")
        ).partition(" ")
        return newest, last_published if marked_at == str(newest) else ""

    async def _mark_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(_MARK_AFTER_S)
            await self._mark()

    async def _mark(self) -> None:
        """Write the last event's id into the stream's metadata, because the event itself expires
        when the cluster is idle for days.
        """
        if self._opened is None or self.last_published in ("", self._marked):
            return
        mark = f"{self._window.confirmed} {self.last_published}"
        with contextlib.suppress(Unavailable):
            await self._opened[1].annotate(EVENTS.name, MARK, mark)
            self._marked = mark.partition(" ")[2]

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._stop_timer()
        self._settle()

    def _settle(self) -> None:
        """Wake the callers of `drain` when no event is unconfirmed."""
        if self._failure is None and self.backlog:
            return
        for done in self._drained:
            if not done.done():
                done.set_result(None)


def _decode(data: bytes) -> Ack:
    """The acknowledgement; an empty one, which matches no sequence, when there was no answer or it
    cannot be decoded.
    """
    try:
        return msgspec.json.decode(data, type=Ack)
    except msgspec.DecodeError:
        return Ack()
