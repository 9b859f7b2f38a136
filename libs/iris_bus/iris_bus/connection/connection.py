"""A NATS connection that reconnects for ever, never blocks a sender, and detects when it is dead.

It wraps nats-py's client with options and callbacks that make it fail fast: nothing is buffered
while disconnected, a lost connection fails all pending requests at once, and a watchdog detects a
dead read loop. When the client closes for good, ``on_lost`` is called: the process must end. Out of
scope: what is sent over it. Source: docs/design/nats.md#nats-py-behaviour.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from iris_bus.connection.accounts import inbox
from iris_bus.connection.client import NatsClient, Tap
from iris_bus.connection.keys import public_key
from iris_bus.connection.nats_py import Subscription as NatsSubscription
from iris_bus.connection.nats_py import errors
from iris_bus.connection.termination import end
from iris_bus.contract import Headers, Publication, Unavailable
from iris_core.limits import MESSAGE_BYTES

log = logging.getLogger(__name__)

_WATCH_S = 2.0
DEAD = (
    "connection to NATS is dead though it looks open, opening it again; when that happens again and again, "
    "large packets may not get through: see docs/troubleshooting.md#irisbusreconnects"
)
_QUIET_S = 5.0
_FORBIDDEN = re.compile(r"permissions violation for publish(?:ish)? to \"([^\"]+)\"", re.IGNORECASE)
_REFUSED = ("authorization violation", "authentication expired", "user authentication")


@dataclass(frozen=True, slots=True)
class Credentials:
    """How this process authenticates to NATS; not needed for what the URL already holds.

    Attributes:
        nkey_seed: path of a file holding the seed of an nkey user.
        tls_ca, tls_cert, tls_key: PEM files; TLS is used when the URL says ``tls://`` or any of
            them is given.
    """

    nkey_seed: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""

    def inbox(self) -> str:
        """Where answers arrive: a user with a key may listen only at its own place. Raises BadKey,
        OSError.
        """
        return inbox(public_key(Path(self.nkey_seed))) if self.nkey_seed else "_INBOX"

    def context(self) -> ssl.SSLContext | None:
        """The TLS settings, None for plain TCP. Raises ValueError, by its name, for a file that is
        missing or damaged.
        """
        if not (self.tls_ca or self.tls_cert):
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca or None)
        except OSError as error:
            raise _unusable("tls_ca", self.tls_ca, error) from error
        if self.tls_cert:
            try:
                context.load_cert_chain(self.tls_cert, self.tls_key or None)
            except OSError as error:
                files = " and ".join(filter(None, (self.tls_cert, self.tls_key)))
                raise _unusable("tls_cert, tls_key", files, error) from error
        return context


def _unusable(settings: str, files: str, error: OSError) -> ValueError:
    return ValueError(
        f"[nats] {settings}: {files} cannot be used: {error.strerror or error}; put back a copy of it"
    )


class KeyRefused(Unavailable):
    """The server does not accept the given login."""


class Link:
    """A connected NATS client, reduced to the calls Iris needs.

    Args:
        on_lost: called once when the connection is closed for good, except by `close`.
    """

    def __init__(self, on_lost: Callable[[Exception], None]) -> None:
        self.client = NatsClient()
        self.reconnects = 0
        self._on_lost = on_lost
        self._on_drop: set[Callable[[], None]] = set()
        self._on_return: set[Callable[[], None]] = set()
        self._on_forbidden: set[Callable[[str], None]] = set()
        self._closing = False
        self._connecting: asyncio.Task[None] | None = None
        self._refusal = ""
        self._distrust = ""
        self._distrusted = 0
        self._servers = 1
        self._quiet_until: dict[str, float] = {}
        self._watchdog: asyncio.Task[None] | None = None

    async def open(
        self, servers: Sequence[str], name: str, credentials: Credentials, retry_for_s: float
    ) -> None:
        """Connect, waiting up to ``retry_for_s`` seconds for a server. Raises KeyRefused;
        Unavailable, also when it takes too small messages.
        """
        self._servers = len(servers)
        connecting = asyncio.create_task(self._connect(servers, name, credentials))
        self._connecting = connecting
        try:
            async with asyncio.timeout(retry_for_s):
                await asyncio.wait(
                    {connecting}
                )  # passes no cancellation on to nats-py, which may swallow it
                await connecting
        except (errors.Error, OSError, ValueError, TimeoutError, asyncio.CancelledError) as error:
            await self._abandon(connecting)
            is_judged = bool(self._refusal) or self._distrusted >= self._servers
            if isinstance(error, asyncio.CancelledError) and not is_judged:
                raise
            why = str(error) or self._distrust or f"no server answered in {retry_for_s:.0f} s"
            if self._refusal:
                key = (
                    f"the key in {credentials.nkey_seed}" if credentials.nkey_seed else "this login"
                )
                why = f"the server does not accept {key}: {self._refusal}"
            kind = KeyRefused if self._refusal else Unavailable
            raise kind(f"cannot connect to NATS: {why}") from error
        self._connecting = None
        if self.client.max_payload < MESSAGE_BYTES:
            await self.close()
            least = f"at least {MESSAGE_BYTES} (4 MiB)"
            raise Unavailable(
                f"the NATS server takes messages of {self.client.max_payload} bytes, Iris needs {least}"
            )
        self._watchdog = asyncio.create_task(self._watch())

    async def _abandon(self, connecting: asyncio.Task[None]) -> None:
        self._closing = True
        await end(connecting)
        await self.client.close()
        self.client.drop_socket()

    async def _connect(self, servers: Sequence[str], name: str, credentials: Credentials) -> None:
        await self.client.connect(
            servers=random.sample(list(servers), len(servers)),
            # the server that was lost is tried last, under its given and its announced address
            dont_randomize=True,
            name=name,
            error_cb=self._error,
            disconnected_cb=self._dropped,
            reconnected_cb=self._returned,
            closed_cb=self._closed,
            connect_timeout=5,
            reconnect_time_wait=random.uniform(0.1, 0.25),  # type: ignore[arg-type]
            max_reconnect_attempts=-1,
            ping_interval=10,
            max_outstanding_pings=2,
            tls=credentials.context(),
            nkeys_seed=credentials.nkey_seed or None,
            inbox_prefix=credentials.inbox(),
            # refuse while disconnected instead of buffering, so that `publish` never suspends
            pending_size=0,
        )

    @property
    def connected(self) -> bool:
        return self.client.is_connected

    @property
    def server_version(self) -> str:
        """As the server announced it, e.g. ``2.15.1``."""
        version = self.client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    @property
    def is_clustered(self) -> bool:
        """Whether the server is one of a cluster."""
        return self.client.is_clustered

    def send(
        self, subject: str, data: bytes, reply: str = "", headers: Headers | None = None
    ) -> None:
        """Write one message to the socket's buffer.

        Raises Unavailable while disconnected (nothing was sent), ValueError for a message that no
        server accepts.
        """
        client = self.client
        if not client.is_connected:
            raise Unavailable("not connected to NATS")
        if len(data) > client.max_payload:
            raise ValueError(f"{len(data)} bytes are more than one message may hold")
        client.send(subject, data, reply, headers)

    def send_chain(self, events: Sequence[Publication], after: int, reply: str) -> None:
        """Send ``events`` for the stream sequences after ``after``; the acknowledgement of the last
        goes to ``reply``.

        Raises Unavailable and ValueError like `send`.
        """
        if not self.client.is_connected:
            raise Unavailable("not connected to NATS")
        self.client.send_chain(events, after, reply)

    async def subscribe(self, subject: str, tap: Tap, queue: str = "") -> NatsSubscription:
        """Call ``tap`` in this loop for each message on the subject. Raises Unavailable,
        ValueError.
        """
        try:
            return await self.client.tap(subject, tap, queue)
        except errors.ConnectionClosedError as error:
            raise Unavailable(str(error)) from error
        except errors.BadSubjectError as error:
            raise ValueError(f"not a subject: {subject!r}") from error

    async def unsubscribe(self, subscription: NatsSubscription) -> None:
        """End a subscription; no error when the connection is already gone."""
        with contextlib.suppress(errors.Error):
            await self.client.untap(subscription)

    async def flush(self, timeout: float = 5.0) -> None:
        """Return when the server has read everything sent so far. Raises Unavailable."""
        try:
            await self.client.flush(timeout)  # type: ignore[arg-type]
        except (errors.Error, OSError) as error:
            raise Unavailable(f"flush: {error}") from error

    def on_drop(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever the connection is lost; answers to requests in flight will not
        arrive any more.
        """
        self._on_drop.add(callback)

    def on_return(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever the connection is established again."""
        self._on_return.add(callback)

    def on_forbidden(self, callback: Callable[[str], None]) -> None:
        """Call ``callback`` with each subject (in lower case) that the server refused this user to
        publish to.
        """
        self._on_forbidden.add(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """Remove a callback of `on_drop` or `on_return`."""
        self._on_drop.discard(callback)
        self._on_return.discard(callback)

    async def close(self) -> None:
        """Flush and end. Safe to call twice."""
        self._closing = True
        await end(self._watchdog)
        await self.client.close()

    async def _watch(self) -> None:
        """Force a reconnect when the read loop has died or the server does not answer a ping."""
        while True:
            await asyncio.sleep(_WATCH_S)
            if not self.client.is_connected:
                continue
            if await self._alive():
                continue
            log.error("%s", DEAD)
            await self.client.force_reconnect()

    async def _alive(self) -> bool:
        if not self.client.reading:
            return False
        try:
            await self.client.rtt(timeout=5)
        except (errors.Error, OSError):
            return not self.client.is_connected
        except Exception:
            log.exception("a ping raised; the connection counts as dead")
            return not self.client.is_connected
        return True

    async def _dropped(self) -> None:
        for callback in tuple(self._on_drop):
            callback()
        if not self._closing:
            log.warning("lost the connection to NATS")

    async def _returned(self) -> None:
        self.reconnects += 1
        log.warning("connected to NATS again")
        for callback in tuple(self._on_return):
            callback()

    async def _closed(self) -> None:
        if not self._closing:
            self._on_lost(
                Unavailable(f"the connection to NATS was closed: {self.client.last_error}")
            )

    async def _error(self, error: Exception) -> None:
        text = str(error).lower()
        forbidden = _FORBIDDEN.search(text)
        if forbidden is not None:
            for callback in tuple(self._on_forbidden):
                callback(forbidden[1])
        if self._connecting is not None and any(word in text for word in _REFUSED):
            self._refusal = str(error)
            self._connecting.cancel()  # it would run for ever
        if self._connecting is not None:
            self._weigh_distrust(error)
        self._say(error)

    def _weigh_distrust(self, error: Exception) -> None:
        """Give up once every server has shown a certificate that is not trusted, one after the
        other: another attempt would see the same.
        """
        if not isinstance(error, ssl.SSLCertVerificationError):
            self._distrusted = 0
            return
        self._distrust = (
            f"the certificate of the server is not accepted: {error.verify_message}; [nats] tls_ca names the "
            "file with the authority that signed it"
        )
        self._distrusted += 1
        if self._distrusted >= self._servers and self._connecting is not None:
            self._connecting.cancel()

    def _say(self, error: Exception) -> None:
        """Log each kind of error at most once in five seconds; a slow consumer reports every
        dropped message.
        """
        now = asyncio.get_running_loop().time()
        kind = type(error).__name__ if type(error) is not errors.Error else str(error)
        if now < self._quiet_until.get(kind, 0.0):
            return
        if len(self._quiet_until) > 100:
            self._quiet_until.clear()
        self._quiet_until[kind] = now + _QUIET_S
        log.warning("NATS: %s: %s", type(error).__name__, error)
