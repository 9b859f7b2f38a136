"""The JetStream API as typed requests and answers, and its error numbers as the contract's
exceptions.

Out of scope: retries, which each caller decides for itself. Source:
docs/design/nats.md#features-used, docs/design/nats.md#server-behaviour.
"""

from __future__ import annotations

import base64
from functools import partial
from typing import Any, TypeVar

import msgspec

from iris_bus.connection import headers as header_block
from iris_bus.connection.requests import Requests
from iris_bus.connection.retry import Busy, with_retries
from iris_bus.contract import (
    Fenced,
    Full,
    Headers,
    Message,
    NoResponders,
    StoreStanding,
    Unavailable,
)

WRONG_LAST_SEQUENCE = 10071
STREAM_NOT_FOUND = 10059
NO_MESSAGE = 10037
STORE_FAILED = 10077
_NO_ROOM = (10002, 10047)  # the limit of the account, and of the server
_BUSY = (
    10167,
    10074,
    10023,
    10008,
    # too many requests; a stream is moving; resources are not available yet; the cluster has no leader
    # yet
)
_OF_THE_COPY = ("Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp")
_SILENT_PEER_NS = 5_000_000_000
"""Servers of a stream hear of each other every second; the server itself says offline after a
minute only.
"""
_FULL_WORDS = ("maximum", "no space", "insufficient", "exceeded")

T = TypeVar("T")


class Trouble(msgspec.Struct, frozen=True):
    """The ``error`` of an answer."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class Ack(msgspec.Struct, frozen=True):
    """The answer to a publish into a stream."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: Trouble | None = None


class StreamState(msgspec.Struct, frozen=True):
    """What a stream holds; message counts by subject if the request asked for them."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    subjects: dict[str, int] | None = None


class Peer(msgspec.Struct, frozen=True):
    """A server that follows a stream's leader.

    Attributes:
        current: it holds everything. active: since the leader heard of it last, in ns.
    """

    name: str = ""
    current: bool = False
    offline: bool = False
    active: int = 0

    @property
    def is_silent(self) -> bool:
        return self.offline or self.active > _SILENT_PEER_NS


class Cluster(msgspec.Struct, frozen=True):
    """The servers of a stream. ``leader`` is empty during an election, and where the server is not
    clustered.
    """

    name: str = ""
    leader: str = ""
    replicas: tuple[Peer, ...] = ()


class StreamInfo(msgspec.Struct, frozen=True):
    """The answer to STREAM.INFO, CREATE and UPDATE. ``created``: when; one that was made anew has
    another time.
    """

    config: dict[str, Any] = {}
    created: str = ""
    state: StreamState = StreamState()
    error: Trouble | None = None
    cluster: Cluster = Cluster()


class StoredMessage(msgspec.Struct, frozen=True):
    """A message as STREAM.MSG.GET returns it; bodies and headers are base64."""

    subject: str = ""
    seq: int = 0
    data: str = ""
    hdrs: str = ""


class GotMessage(msgspec.Struct, frozen=True):
    """The answer to STREAM.MSG.GET."""

    message: StoredMessage | None = None
    error: Trouble | None = None


class Plain(msgspec.Struct, frozen=True):
    """An answer that is read for its error only."""

    error: Trouble | None = None


class ApiError(Unavailable):
    """JetStream refused a call; ``number`` is its error number, 0 when it gave none."""

    def __init__(self, doing: str, trouble: Trouble) -> None:
        super().__init__(f"{doing}: {trouble.description} ({trouble.err_code})")
        self.number = trouble.err_code


class BusyError(ApiError, Busy):
    """JetStream is temporarily unable to serve the call, and did nothing."""


def api_error(doing: str, trouble: Trouble) -> ApiError:
    """The exception that stands for ``error``."""
    return (BusyError if trouble.err_code in _BUSY else ApiError)(doing, trouble)


def raise_for(trouble: Trouble, doing: str) -> None:
    """Raise Fenced, Full, or ApiError (a subclass of Unavailable) for the error of a publish."""
    if trouble.err_code == WRONG_LAST_SEQUENCE:
        raise Fenced(f"{doing}: {trouble.description}")
    stored_nothing = trouble.err_code == STORE_FAILED and any(
        w in trouble.description.lower() for w in _FULL_WORDS
    )
    if stored_nothing or trouble.err_code in _NO_ROOM:
        raise Full(f"{doing}: {trouble.description}")
    raise api_error(doing, trouble)


class Api:
    """Calls of ``$JS.API``.

    Args:
        timeout: seconds to wait for one answer.
        retry_for_s: seconds to repeat a request while nobody answers or JetStream is busy; only for
            idempotent requests.
    """

    def __init__(self, requests: Requests, timeout: float = 2.0, retry_for_s: float = 0.0) -> None:
        self._requests = requests
        self._timeout = timeout
        self._retry_for_s = retry_for_s

    def retrying(self, seconds: float) -> Api:
        """The same calls, retried for that long while the server is away or elects a leader."""
        return Api(self._requests, self._timeout, seconds)

    async def call(self, verb: str, body: object, answer: type[T]) -> T:
        """Send one request and decode its answer. Raises ApiError, BusyError, Unavailable,
        NoResponders.
        """
        data = msgspec.json.encode(body) if body is not None else b""
        got = await with_retries(partial(self._request, verb, data), self._retry_for_s)
        return msgspec.json.decode(got, type=answer)

    async def _request(self, verb: str, data: bytes) -> bytes:
        got = await self._requests.request(f"$JS.API.{verb}", data, self._timeout)
        error = msgspec.json.decode(got.data, type=Plain).error
        if error is not None and error.err_code in _BUSY:
            raise BusyError(verb, error)
        return got.data

    async def store(
        self, subject: str, data: bytes, timeout: float, headers: Headers | None = None
    ) -> Ack:
        """Publish into a stream once. Raises Fenced, Full, Unavailable, NoResponders."""
        got = await self._requests.request(subject, data, timeout, headers)
        try:
            ack = msgspec.json.decode(got.data, type=Ack)
        except msgspec.DecodeError as error:
            raise Unavailable(
                f"{subject} was answered by something that is not a stream"
            ) from error
        if ack.error is not None:
            raise_for(ack.error, f"publish to {subject}")
        return ack

    async def info(self, stream: str) -> StreamInfo:
        """STREAM.INFO from the stream's leader. Raises ApiError (10059: no such stream),
        Unavailable.
        """
        got = await self.call(f"STREAM.INFO.{stream}", None, StreamInfo)
        if got.error is not None:
            raise ApiError(f"info of {stream}", got.error)
        return got

    async def subjects(self, stream: str, pattern: str) -> set[str]:
        """The subjects a stream holds messages of. Raises ApiError, Unavailable."""
        names: set[str] = set()
        while True:
            page = {"subjects_filter": pattern, "offset": len(names)}
            got = await self.call(f"STREAM.INFO.{stream}", page, StreamInfo)
            if got.error is not None:
                raise ApiError(f"info of {stream}", got.error)
            more = set(got.state.subjects or ()) - names
            if not more:
                return names
            names |= more

    async def message(self, stream: str, **which: object) -> Message | None:
        """One stored message from the leader, by ``seq`` or ``last_by_subj``; None when there is
        none.
        """
        got = await self.call(f"STREAM.MSG.GET.{stream}", which, GotMessage)
        if got.error is not None:
            if got.error.err_code == NO_MESSAGE:
                return None
            raise ApiError(f"message of {stream}", got.error)
        return to_stored(got.message) if got.message is not None else None

    async def copy(self, stream: str, **which: object) -> Message | None:
        """One stored message from whichever server answers a direct get; None when that server has
        none.

        Args: as of `message`. Raises Unavailable.
        """
        try:
            got = await self._requests.request(
                f"$JS.API.DIRECT.GET.{stream}", msgspec.json.encode(which), self._timeout
            )
        except NoResponders:
            return None
        if "Status" in got.headers:
            return None
        shown = {name: value for name, value in got.headers.items() if name not in _OF_THE_COPY}
        return Message(
            got.headers["Nats-Subject"],
            got.data,
            shown,
            "",
            sequence=int(got.headers["Nats-Sequence"]),
        )

    async def lead(self, stream: str, server: str) -> None:
        """Have another server lead the stream. Raises ApiError, Unavailable."""
        got = await self.call(
            f"STREAM.LEADER.STEPDOWN.{stream}", {"placement": {"preferred": server}}, Plain
        )
        if got.error is not None:
            raise ApiError(f"change of leader of {stream}", got.error)

    async def change(self, verb: str, config: object) -> None:
        """STREAM.CREATE, STREAM.UPDATE or STREAM.DELETE, the verb with its stream. Raises ApiError,
        Unavailable.
        """
        got = await self.call(verb, config, Plain)
        if got.error is not None:
            raise ApiError(verb, got.error)

    async def annotate(self, stream: str, key: str, value: str) -> None:
        """Write one entry of a stream's metadata. Raises ApiError, Unavailable."""
        config = (await self.info(stream)).config
        config["metadata"] = {**(config.get("metadata") or {}), key: value}
        await self.change(f"STREAM.UPDATE.{stream}", config)

    async def purge(self, stream: str, **what: object) -> None:
        """Drop messages: all, below ``seq``, or of a subject ``filter``, there but for the newest
        ``keep``. Raises ApiError, Unavailable.
        """
        got = await self.call(f"STREAM.PURGE.{stream}", what, Plain)
        if got.error is not None:
            raise ApiError(f"purge of {stream}", got.error)


def standing_of(info: StreamInfo, wanted: int) -> StoreStanding:
    """What an answer to STREAM.INFO says, for a stream that should have ``wanted`` copies."""
    config = info.config
    cluster = info.cluster
    declared = config.get("num_replicas", 1)
    peers = {peer.name: not peer.is_silent for peer in cluster.replicas}
    followers = sum(peer.current and not peer.is_silent for peer in cluster.replicas)
    return StoreStanding(
        bytes=info.state.bytes,
        limit_bytes=max(config.get("max_bytes", 0), 0),
        wanted=max(wanted, declared),
        declared=declared,
        current=followers + 1 if cluster.leader or not cluster.name else followers,
        servers=peers | ({cluster.leader: True} if cluster.leader else {}),
        notes=config.get("metadata") or {},
    )


def to_stored(stored: StoredMessage) -> Message:
    """The message inside an answer of STREAM.MSG.GET."""
    headers = header_block.parse(base64.b64decode(stored.hdrs))
    return Message(stored.subject, base64.b64decode(stored.data), headers, "", sequence=stored.seq)
