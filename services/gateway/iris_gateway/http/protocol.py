"""Parses HTTP with uvicorn's fast parser, and adds limits of a request's head, of connections, and
of clients that do not read. What is refused here is a problem document too.

Out of scope: requests (`middleware`), bodies (`bodies`), and listening (`service`).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade, parse_url
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from iris_core.codec import to_json
from iris_core.limits import HEAD_BYTES, HEAD_FIELDS, HEAD_LINE_BYTES, clipped
from iris_core.units import BYTES
from iris_gateway.http.problem import MEDIA_TYPE, ProblemResponse

log = logging.getLogger(__name__)

_READ_BYTES = 1 << 16
UNREAD_BYTES = 64 << 20
"""Of answers that wait for clients which read too little, together."""
_LOG_S = 10.0
_SHOWN = 200
_ONCE = (b"host", b"authorization")
"""Fields that would be read in two ways if there were two of them; the parser refuses a second
Content-Length.
"""


@dataclass(slots=True)
class Connections:
    """The open connections and their limits.

    Args:
        head_s: seconds a request's head may take, from the start of the connection or its first
            byte.
        per_address: open connections of one address, 0: unlimited.
        unread_s: seconds in which a client must read something of what waits for it.
        count: called with the code of each refusal.
        most_open: connections of all addresses, 0: unlimited.
        anonymous_per_address: connections of one address on which no request was admitted yet, 0:
            unlimited.
        most_unread_bytes: what waits for all clients that read too little; beyond it, who has not
            kept up for the longest time is cut off.

    Attributes:
        open: open connections by address. now: of all addresses. most: highest number at once.
        unread_bytes: what waits for clients that read too little.
    """

    head_s: float
    per_address: int = 0
    unread_s: float = 30.0
    count: Callable[[str], object] = str
    most_open: int = 0
    anonymous_per_address: int = 0
    open: Counter[str] = field(default_factory=Counter)
    now: int = 0
    most: int = 0
    anonymous: Counter[str] = field(default_factory=Counter)
    most_unread_bytes: int = UNREAD_BYTES
    unread_bytes: int = 0
    _unread: dict[HttpProtocol, int] = field(default_factory=dict)
    _unlogged: int = 0
    _log_at_s: float = 0.0

    def enter(self, address: str) -> str:
        """Count one more connection; returns why it is refused, empty when it is not."""
        self.open[address] += 1
        self.anonymous[address] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        if 0 < self.most_open < self.now:
            return "this gateway has too many connections"
        if 0 < self.per_address < self.open[address]:
            return "this address has too many connections"
        if 0 < self.anonymous_per_address < self.anonymous[address]:
            return "this address has too many connections without a token"
        return ""

    def leave(self, address: str, *, admitted: bool = False) -> None:
        _subtract(self.open, address)
        self.now -= 1
        if not admitted:
            self.admit(address)

    def admit(self, address: str) -> None:
        """A request on one of its connections was admitted, the first there."""
        _subtract(self.anonymous, address)

    def hold(self, connection: HttpProtocol, size: int) -> None:
        """So many bytes wait for a client that reads too little."""
        self._unread[connection] = size
        self.unread_bytes += size
        while self.unread_bytes > self.most_unread_bytes:
            slowest = next(iter(self._unread))
            self.release(slowest)
            slowest.cut_off()

    def release(self, connection: HttpProtocol) -> None:
        """Its client has read what waited, or is gone."""
        self.unread_bytes -= self._unread.pop(connection, 0)

    def note(self, address: str, detail: str, now_s: float) -> None:
        """Log what an address has sent, unless that was done lately."""
        self._unlogged += 1
        if now_s >= self._log_at_s:
            log.warning(
                "a client at %s was refused: %s (%d since the last such line)",
                address,
                detail,
                self._unlogged,
            )
            self._unlogged = 0
            self._log_at_s = now_s + _LOG_S


def _subtract(counter: Counter[str], address: str) -> None:
    counter[address] -= 1
    if not counter[address]:
        del counter[address]


ADMITTED = "iris.admitted"
"""In the scope of a request: called once its caller is known."""


class HttpProtocol(HttpToolsProtocol):
    """One connection. A head that does not arrive in time ends it; waiting for it costs only a
    timer.
    """

    _spoke = _in_head = _may_trail = _admitted = False
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _unread_bytes = 0
    _unread_timer: asyncio.TimerHandle | None = None

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._connections = connections
        self._address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Each read allocates a buffer of the transport's `max_size`; a quarter of asyncio's
        default is far cheaper.
        """
        if hasattr(transport, "max_size"):
            transport.max_size = _READ_BYTES
        super().connection_made(cast(asyncio.Transport, transport))
        self._address = self.client[0] if self.client else ""
        if why := self._connections.enter(self._address):
            self._refuse(ProblemResponse("too_many_requests", why))
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.leave(self._address, admitted=self._admitted)
        self._head_is_here()
        self._stop_unread()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads too little: nothing more is written until it has read, and it must read
        something.
        """
        super().pause_writing()
        self._expect_reading()
        self._connections.hold(self, self._unread_bytes)

    def resume_writing(self) -> None:
        self._stop_unread()
        super().resume_writing()

    def _expect_reading(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._unread_timer = self.loop.call_later(
            self._connections.unread_s, self._look_whether_read
        )

    def _look_whether_read(self) -> None:
        if self.transport.get_write_buffer_size() >= self._unread_bytes:
            self.transport.abort()
        else:
            self._expect_reading()

    def _stop_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
            self._connections.release(self)

    def cut_off(self) -> None:
        """Drop the connection with what waits for its client."""
        most = BYTES.show(self._connections.most_unread_bytes)
        words = f"it read too little, and {most} waited for such clients"
        self._connections.note(self._address, words, self.loop.time())
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """A head that is too long is refused; data after it may be the end of a previous body."""
        if self.transport.is_closing():
            return
        self._spoke = True
        began = self._in_head or self._may_trail
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # it is answered as if it had not asked for that
        except HttpParserError as error:
            self._refuse(refusal(error))
            return
        if self._in_head or not self._answering:  # also after a refused body, or empty lines
            self._expect_head()
        if began and (self._in_head or self._may_trail):
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(_too_large(f"the head has {self._head_bytes} bytes", HEAD_BYTES))

    def on_message_begin(self) -> None:
        self._spoke = True
        self._in_head = True
        self._may_trail = False
        self._head_bytes = 0
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """Nothing is missing any more: what a client has sent after a refusal was all that it had
        announced.
        """
        self._spoke = False
        super().on_message_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field after the body is dropped: it would pass for one of the head."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """What this raises is the context of the parser's exception."""
        check_head(self.parser.get_http_version(), self.url, self.headers)
        self._in_head = False
        self._head_is_here()
        cast(dict[str, Any], self.scope)[ADMITTED] = self._admit
        super().on_headers_complete()

    def _admit(self) -> None:
        if not self._admitted and not self.transport.is_closing():
            self._admitted = True
            self._connections.admit(self._address)

    def on_chunk_header(self) -> None:
        """What follows the size of a chunk and is not body is fields, which the parser collects
        without a limit.
        """
        self._may_trail = True
        self._head_bytes = 0

    def on_body(self, body: bytes) -> None:
        self._may_trail = False
        super().on_body(body)

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._connections.head_s, self._head_is_late)

    def _head_is_here(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        """Browsers open connections in advance, and show what is answered on one without a request;
        others take that for the answer to their next one.
        """
        if self._spoke:
            self._turn_away(
                ProblemResponse("timeout", "the head of the request did not arrive in time")
            )
        else:
            self.transport.close()

    @property
    def _answering(self) -> bool:
        """Whether a request is in progress."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _refuse(self, problem: ProblemResponse) -> None:
        self._connections.note(self._address, problem.detail, self.loop.time())
        self._turn_away(problem)

    def _turn_away(self, problem: ProblemResponse) -> None:
        """Answer and hang up; nothing is written in the place of an earlier request's answer, or
        into its midst.
        """
        cycle = self.cycle
        if not self._answering or (
            cycle.more_body and not cycle.response_started and not self.pipeline
        ):
            self._connections.count(problem.code)
            self.transport.write(_answer(problem))
        self.transport.close()


def check_head(version: str, target: bytes, fields: Sequence[tuple[bytes, bytes]]) -> None:
    """Raises ProblemResponse for a head that is too large, or could be read in two ways, and
    HttpParserError.

    Args:
        fields: with names in lower case.
    """
    sizes = [len(target), *(len(name) + len(value) + 4 for name, value in fields)]
    if sum(sizes) > HEAD_BYTES or max(sizes) > HEAD_LINE_BYTES or len(fields) > HEAD_FIELDS:
        raise _oversize(sizes, fields)
    if not target.startswith(b"/") and parse_url(target).path is None:
        raise _malformed("its target has no path")
    names = [name for name, _ in fields]
    for name in _ONCE:
        if names.count(name) > 1:
            raise _malformed(
                f"it has {names.count(name)} {name.decode().title()} fields, at most 1 is allowed"
            )
    if b"host" not in names and version != "1.0":
        raise _malformed("it has no field Host")
    codings = [value.strip().lower() for name, value in fields if name == b"transfer-encoding"]
    if codings and (codings != [b"chunked"] or version != "1.1"):
        raise _malformed("the only transfer coding is chunked, and only in HTTP/1.1")


def _malformed(why: str) -> ProblemResponse:
    return ProblemResponse("malformed", f"the request is not valid HTTP: {why}")


def _oversize(sizes: list[int], fields: Sequence[tuple[bytes, bytes]]) -> ProblemResponse:
    """Says what of a head is too large; the first size is of the target, the others are of its
    fields.
    """
    longest = max(sizes)
    if sizes[0] > HEAD_LINE_BYTES:
        return _too_large(f"the target has {sizes[0]} bytes", HEAD_LINE_BYTES)
    if longest > HEAD_LINE_BYTES:
        name = fields[sizes.index(longest) - 1][0].decode("latin-1")
        return _too_large(f"field {clipped(name, _SHOWN)} has {longest} bytes", HEAD_LINE_BYTES)
    if len(fields) > HEAD_FIELDS:
        return _too_large(f"the head has {len(fields)} fields", HEAD_FIELDS)
    return _too_large(f"the head has {sum(sizes)} bytes", HEAD_BYTES)


def _too_large(what: str, most: int) -> ProblemResponse:
    return ProblemResponse("head_too_large", f"{what}, at most {most} are accepted")


def refusal(error: HttpParserError) -> ProblemResponse:
    """What the parser refuses, or what a method that it has called has raised."""
    cause = error.__context__
    if isinstance(cause, ProblemResponse):
        return cause
    if cause is None or isinstance(cause, HttpParserError):
        return _malformed(clipped(str(cause or error), _SHOWN))
    log.error("a request could not be read", exc_info=cause)
    return ProblemResponse("internal", "see the gateway's log")


def _answer(problem: ProblemResponse) -> bytes:
    """A whole response, after which the connection is closed."""
    request_id = uuid.uuid4().hex
    status = problem.kind.status
    body = to_json(problem.document(request_id))
    fields = {
        **problem.headers,
        "content-type": MEDIA_TYPE,
        "content-length": str(len(body)),
        "x-request-id": request_id,
        "connection": "close",
    }
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        *(f"{name}: {value}" for name, value in fields.items()),
    ]
    return "\r\n".join((*lines, "", "")).encode() + body
