"""Sends requests to one gateway over kept-alive connections of the standard library, with retries.

A request is sent again without an answer or after 429, 502, 503 or 504, until its timeout. That is
safe because every POST carries an ``Idempotency-Key``; one that starts a command has none
(`Transport.start`). Out of scope: the requests (`client`), streams of events (`event_stream`).
Threads may share a `Transport`.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import logging
import os
import random
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Self, TypeVar
from urllib.parse import urlsplit

from iris.client.http.address import Address
from iris.client.http.encode import check_headers, encode_query, encode_segment
from iris.client.problems import InvalidOption, Problem, TryAgain, Unreachable, problem_from
from iris_core import DISTRIBUTION
from iris_core.backoff import Backoff
from iris_service.version import VERSION

log = logging.getLogger(__name__)

T = TypeVar("T")
UrlQuery = Mapping[str, str | int | bool | None]
BROKEN = (OSError, http.client.HTTPException)
"""The exceptions of a broken connection."""

POSITION = "Iris-Position"
NOTE = "Iris-Note"
USER_AGENT = f"{DISTRIBUTION}/{VERSION}"
ANSWER_S = 30.0
"""How long one answer may take, unless something else is said."""
RETRY_FOR_S = 90.0
"""Longer than a state service that is down for a minute."""
_LONGEST_ASKED_S = 10.0
"""A request that the gateway asks to retry later than that (over quota) is not retried."""
_UNSAID_S = 1.0
"""Shorter waits are not reported."""
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
ANSWERED = "the request was answered"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request; ``body`` is bytes or a seekable file whose length is in ``headers``."""

    method: str
    path: str
    query: UrlQuery = field(default_factory=dict)
    body: bytes | IO[bytes] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """Path and query as sent. Raises InvalidOption."""
        query = encode_query(self.query)
        return f"{self.path}?{query}" if query else self.path


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response of less than 400."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


@dataclass(frozen=True, slots=True)
class Channel:
    """A response whose body is read in parts."""

    line: socket.socket
    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse

    def interrupt(self) -> None:
        """Wake the thread that waits for more; any thread may call it."""
        with contextlib.suppress(OSError):
            self.line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.response.close()
            self.connection.close()


def in_path(name: str) -> str:
    """A name as one path segment: its slashes are percent-encoded. Raises InvalidOption for an
    empty one, whose path would be another's, and for one that is not UTF-8.
    """
    if not name.strip("/"):
        raise InvalidOption("a name must not be empty")
    return encode_segment(name)


@functools.cache
def trusting(ca: str) -> ssl.SSLContext:
    """What trusts the authorities of the system, and that of a certificate in PEM, if one is given.
    Raises InvalidOption.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if ca:
        try:
            context.load_verify_locations(cadata=ca)
        except (ssl.SSLError, ValueError) as error:
            raise InvalidOption(f"IRIS_CA is not a certificate in PEM: {error}") from None
    return context


def position_of(response: http.client.HTTPResponse) -> int:
    """The journal position of a response; 0 when it has none."""
    text = response.getheader(POSITION) or ""
    return int(text) if text.isascii() and text.isdigit() else 0


def note_of(response: http.client.HTTPResponse) -> str:
    """What the gateway says beside a response, such as whose the job of a name is."""
    return response.getheader(NOTE) or ""


def wait_text(why: str, seconds: float) -> str:
    """Why a request is retried, for how long it may be, and that nothing is lost meanwhile."""
    return f"{why}; jobs go on; trying again for up to {seconds:.0f} s"


def log_wait(why: str, seconds: float) -> None:
    """Log that a request is retried."""
    log.warning("%s", wait_text(why, seconds))


def log_back() -> None:
    """Log that the request of `log_wait` is answered."""
    log.warning(ANSWERED)


class Wait:
    """How one request waits for its answer: said once it takes long, and at its end, unless another
    one's wait is.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._long_s = time.monotonic() + _UNSAID_S
        self._said = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._said:
            self._transport.saying.release()

    def report(self, why: str, pause_s: float, until_s: float) -> None:
        """The request is sent again after a pause, at most until then."""
        now_s = time.monotonic()
        if (
            not self._said
            and now_s + pause_s > self._long_s
            and self._transport.saying.acquire(blocking=False)
        ):
            self._said = True
            self._transport.on_wait(why, until_s - now_s)

    def answered(self) -> None:
        """The request has its answer."""
        if self._said:
            self._transport.on_back()


class Transport:
    """Sends requests to one gateway.

    Args:
        address: address and token of the gateway.
        timeout_s: how long one answer may take.
        retry_for_s: how long a request is retried once the gateway has answered before.
        first_timeout_s: the same before its first answer; 0: no retries.

    Attributes:
        first_timeout_s: as given; may be changed.
        has_answered: whether a response has arrived.
        position: journal position of the newest response or event; later reads are at least as new.
        stored: when files were stored lately, or found to be, by digest.
        on_wait: called with the reason why a request is retried and the seconds for which it may
            be; once for all that are at a time.
        on_back: called when that request is answered.
        saying: held by the request that is reported.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float = ANSWER_S,
        retry_for_s: float = RETRY_FOR_S,
        first_timeout_s: float = 0.0,
    ) -> None:
        self.address = address
        self.retry_for_s = retry_for_s
        self.first_timeout_s = first_timeout_s
        self._timeout_s = timeout_s
        self.position = 0
        self.stored: dict[str, float] = {}
        self.on_wait: Callable[[str, float], None] = log_wait
        self.on_back: Callable[[], None] = log_back
        self.saying = threading.Lock()
        self._idle: deque[http.client.HTTPConnection] = deque()
        self.has_answered = False
        self._closed = False
        self._notes_logged: set[str] = set()

    def send(self, request: HttpRequest) -> Response:
        """The response. Raises Problem for one of 400 or more, Unreachable when none arrives in
        time.
        """
        return self._repeat(lambda: self._send_once(request))

    def start(self, request: HttpRequest, timeout_s: float) -> Channel:
        """As `open`, for a request that must not be executed twice: sent again only where the
        gateway says that it was not executed. Raises Problem, Unreachable.
        """
        return self._repeat(lambda: self.open(request, timeout_s), idempotent=False)

    def _repeat(self, ask: Callable[[], T], *, idempotent: bool = True) -> T:
        start = time.monotonic()
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        with Wait(self) as waiting:
            while True:
                try:
                    answer = ask()
                    waiting.answered()
                    return answer
                except TryAgain as problem:
                    if not (idempotent or problem.document.retryable):
                        raise
                    why = str(problem)
                    wait = max(backoff.pause_s, problem.retry_after_s or 0.0)
                    until = start + self.retry_for_s
                    if self._closed or wait > _LONGEST_ASKED_S or time.monotonic() + wait > until:
                        raise
                except BROKEN as error:
                    unreachable = self.unreachable(error)
                    wait = backoff.pause_s
                    until = start + self.current_timeout_s
                    why = str(unreachable)
                    if self._closed or not idempotent or time.monotonic() + wait > until:
                        raise unreachable from error
                waiting.report(why, wait, until)
                time.sleep(
                    wait * random.uniform(1.0, 1.3)
                )  # never sooner than requested, and not all clients at once
                backoff.next_s()

    @property
    def current_timeout_s(self) -> float:
        """How long requests are retried now."""
        return self.retry_for_s if self.has_answered else self.first_timeout_s

    def unreachable(self, error: Exception) -> Unreachable:
        """A sentence about a broken connection."""
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        origin = f" (from {self.address.origin})" if self.address.origin else ""
        return Unreachable(f"the gateway at {self.address.url}{origin} does not answer: {why}")

    def open(self, request: HttpRequest, timeout_s: float) -> Channel:
        """Send one request, once, on a connection of its own, and leave the body unread. Raises
        Problem, OSError.
        """
        connection = self.connect(timeout_s)
        line = connection.sock
        try:
            response = self._exchange(connection, request)
            if response.status >= 400:
                raise self._problem(response, response.read())
        except BaseException:
            connection.close()
            raise
        self.has_answered = True
        self._log_note(response)
        return Channel(line, connection, response)

    def _log_note(self, response: http.client.HTTPResponse) -> None:
        """Log what the gateway says beside a response, each once."""
        if (words := note_of(response)) and words not in self._notes_logged:
            self._notes_logged.add(words)
            log.warning("%s", words)

    def note(self, position: int) -> None:
        """Record that the journal has been seen up to this position."""
        self.position = max(self.position, position)

    def close(self) -> None:
        """Close the kept-alive connections; requests in progress close their own. None is repeated
        any more.
        """
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        """A new connection with TCP_NODELAY. Raises OSError, InvalidOption."""
        parts = urlsplit(self.address.url)
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.hostname or "",
                parts.port,
                timeout=timeout_s,
                context=trusting(os.environ.get("IRIS_CA", "")),
            )
        else:
            connection = http.client.HTTPConnection(
                parts.hostname or "", parts.port, timeout=timeout_s
            )
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _send_once(self, request: HttpRequest) -> Response:
        kept = self._take_idle()
        if kept is not None:
            with contextlib.suppress(
                *BROKEN
            ):  # the server may close a kept-alive connection at any time: that is not a failure
                return self._answer(kept, request)
        return self._answer(self.connect(self._timeout_s), request)

    def _take_idle(self) -> http.client.HTTPConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _answer(self, connection: http.client.HTTPConnection, request: HttpRequest) -> Response:
        try:
            response = self._exchange(connection, request)
            body = response.read()
        except BaseException:
            connection.close()
            raise
        self.has_answered = True
        self.note(position_of(response))
        self._log_note(response)
        if response.will_close or self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        if response.status >= 300 or response.getheader("Content-Type", "").startswith("text/html"):
            raise self._problem(response, body, wordless=_is_wordless(request, response))
        return Response(response.status, response.headers, body)

    def _problem(
        self, response: http.client.HTTPResponse, body: bytes, *, wordless: bool = False
    ) -> Problem:
        return problem_from(
            response.status,
            body,
            response.getheader("Retry-After"),
            self.address.url,
            wordless=wordless,
        )

    def _exchange(
        self, connection: http.client.HTTPConnection, request: HttpRequest
    ) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": USER_AGENT, **request.headers}
        if self.position:
            headers[POSITION] = str(self.position)
        if token := self.address.bearer():
            headers["Authorization"] = f"Bearer {token}"
        check_headers(headers)
        if request.body is not None and not isinstance(request.body, bytes):
            request.body.seek(0)
        try:
            connection.request(
                request.method, self._prefix + request.target, body=request.body, headers=headers
            )
        except (
            ConnectionError
        ) as broken:  # perhaps an answer came before the body was sent: it is too large
            try:
                return connection.getresponse()
            except BROKEN:
                raise broken from None
        return connection.getresponse()

    @property
    def _prefix(self) -> str:
        return urlsplit(self.address.url).path.rstrip("/")


def _is_wordless(request: HttpRequest, response: http.client.HTTPResponse) -> bool:
    """Whether it is a refusal of the gateway whose document did not come, as it does not to HEAD."""
    kind = response.getheader("Content-Type", "")
    return request.method == "HEAD" and kind.startswith("application/problem+json")
