"""Server-sent events from the gateway, resumed after a lost connection.

`SseParser` is pure; `EventStream` reads a connection of its own and opens it again with
``Last-Event-ID`` when it breaks, so nothing is lost or seen twice. Out of scope: what the events
mean (`client`). Source: the WHATWG HTML standard, "Server-sent events".
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from iris.client.http.transport import BROKEN, Channel, HttpRequest, Transport, Wait
from iris.client.problems import TryAgain
from iris_core.backoff import Backoff

END = "end"
"""The event after which no further one comes."""

_SILENCE_S = 45.0
_READ_BYTES = 1 << 16
_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its id in the stream (may be empty), its name, its data."""

    id: str
    name: str
    data: bytes


class SseParser:
    """Parses bytes into complete events; keeps incomplete ones."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[bytes] = []
        self._id = ""
        self.last_id = ""

    def restart(self) -> None:
        """Drop an incomplete event: the connection was lost, and the gateway sends the event
        again.
        """
        self._id = self.last_id
        self._rest = b""
        self._name = ""
        self._data = []

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events ``chunk`` completes, oldest first."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = (self._line(line.removesuffix(b"\r")) for line in lines)
        return [event for event in events if event is not None]

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._finish()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode(errors="replace")
        elif field == b"id":
            self._id = value.decode(errors="replace")
        return None

    def _finish(self) -> ServerEvent | None:
        name = self._name or "message"
        data = self._data
        self._name = ""
        self._data = []
        self.last_id = self._id
        if not data and name != END:
            return None
        return ServerEvent(self.last_id, name, b"\n".join(data))


def _nothing() -> None:
    return


class EventStream:
    """Iterate for events; ends after the gateway's ``end`` event, after ``timeout_s``, or by
    `close` from any thread.

    Iterating raises Problem for an answer of 400 or more, Unreachable when nobody answers for the
    transport's timeout.

    Attributes:
        end: the data of the ``end`` event; empty before it.
        before_wait: called when everything that has arrived was taken, before more is waited for.
    """

    def __init__(
        self, transport: Transport, request: HttpRequest, *, timeout_s: float | None = None
    ) -> None:
        self.transport = transport
        self.end = b""
        self.before_wait: Callable[[], None] = _nothing
        self._request = request
        self._parser = SseParser()
        self._ready: deque[ServerEvent] = deque()
        self._closed = threading.Event()
        self._reading = threading.Lock()
        self._channel: Channel | None = None
        self._silent = False
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def open(self) -> EventStream:
        """Connect now, so that no later event is missed. Raises as iterating does."""
        try:
            with self._reading:
                self._ensure()
        except BaseException:  # Ctrl-C, when it is just connected
            self.close()
            raise
        if self._closed.is_set():
            self.close()
        return self

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> EventStream:
        return self

    def __next__(self) -> ServerEvent:
        while not self._ready:
            if self._closed.is_set() or self._left_s() <= 0:
                self.close()
                raise StopIteration
            self.before_wait()
            with self._reading:
                self._fill()
        event = self._ready.popleft()
        if event.name == END:
            self.end = event.data
            self.close()
            raise StopIteration
        return event

    def close(self) -> None:
        """End the stream; a thread that iterates is woken and closes the connection itself."""
        self._closed.set()
        channel = self._channel
        if channel is not None:
            channel.interrupt()
        if self._reading.acquire(blocking=False):
            self._drop()
            self._reading.release()

    def _left_s(self) -> float:
        return (
            _SILENCE_S
            if self._deadline is None
            else min(_SILENCE_S, self._deadline - time.monotonic())
        )

    def _ensure(self) -> Channel | None:
        if self._channel is None:
            self._channel = self._connect()
        return self._channel

    def _fill(self) -> None:
        channel = self._ensure()
        chunk = b""
        if channel is not None:
            try:
                channel.line.settimeout(max(0.001, self._left_s()))
                chunk = channel.response.read1(_READ_BYTES)
            except TimeoutError:
                self._silent = self._left_s() > 0
            except BROKEN:
                pass  # it is opened again
        self._ready.extend(self._parser.feed(chunk))
        if not chunk:
            self._drop()
            self._closed.wait(min(_PAUSE_S, max(0.0, self._left_s())))

    def _drop(self) -> None:
        channel = self._channel
        self._channel = None
        if channel is not None:
            channel.close()

    def _connect(self) -> Channel | None:
        start = time.monotonic()
        backoff = Backoff(_PAUSE_S, _LONGEST_PAUSE_S)
        with Wait(self.transport) as waiting:
            if self._silent:
                why = f"the gateway at {self.transport.address.url} has sent nothing for {_SILENCE_S:.0f} s"
                waiting.report(why, _SILENCE_S, start + self.transport.current_timeout_s)
                self._silent = False
            while not self._closed.is_set() and self._left_s() > 0:
                asked_s = 0.0
                self._parser.restart()
                try:
                    channel = self.transport.open(self._resumed(), _SILENCE_S)
                    waiting.answered()
                    return channel
                except TryAgain as problem:
                    why = str(problem)
                    until = start + self.transport.retry_for_s
                    if time.monotonic() > until:
                        raise
                    asked_s = problem.retry_after_s or 0.0
                except BROKEN as error:
                    unreachable = self.transport.unreachable(error)
                    until = start + self.transport.current_timeout_s
                    why = str(unreachable)
                    if time.monotonic() > until:
                        raise unreachable from error
                pause = max(backoff.next_s(), asked_s)
                waiting.report(why, pause, until)
                self._closed.wait(pause)
        return None

    def _resumed(self) -> HttpRequest:
        headers = {**self._request.headers, "Accept": "text/event-stream"}
        if self._parser.last_id:
            headers["Last-Event-ID"] = self._parser.last_id
        return replace(self._request, headers=headers)
