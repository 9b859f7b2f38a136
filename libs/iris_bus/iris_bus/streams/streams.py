"""The streams of the subjects table, declared on a server, and the `Streams` contract over them.

A declaration is idempotent: what is missing is made, what differs is changed where nothing becomes
less safe by it, nothing is dropped. Out of scope: what differs (`declarations`); the journal's
    fence and the publishing of events.
Source: iris_core.subjects; docs/design/nats.md#server-behaviour.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from iris_bus.connection.connection import Link
from iris_bus.connection.retry import with_retries
from iris_bus.contract import Headers, Message, ServerStorage, StoreStanding, StreamPosition
from iris_bus.servers import servers
from iris_bus.streams.api import STREAM_NOT_FOUND, Api, ApiError, BusyError, standing_of
from iris_bus.streams.declarations import (
    Config,
    Difference,
    changed,
    copies,
    declarations,
    differences,
)
from iris_bus.streams.holdings import Holdings
from iris_bus.streams.reader import JetReader
from iris_bus.streams.server_version import check_version
from iris_core import subjects
from iris_core.subjects import Stream

log = logging.getLogger(__name__)

_STARTING_S = 30.0
_RETRY_FOR_S = 5.0


class JetStreams:
    """Stored messages.

    Args:
        replicas: copies of each stream; 0: 1 on one server, 3 on a cluster.
        table: the streams `ensure` declares.
    """

    def __init__(
        self,
        link: Link,
        api: Api,
        *,
        replicas: int = 0,
        table: Sequence[Stream] = subjects.STREAMS,
    ) -> None:
        self._link = link
        self._api = api
        self._retrying = api.retrying(_RETRY_FOR_S)
        self._replicas = replicas
        self._table = {stream.name: stream for stream in table}
        self._holdings = Holdings()

    async def ensure(self) -> None:
        """Declare all streams and buckets; waits while JetStream starts. Raises Unavailable,
        UnsupportedServer.
        """
        check_version(self._link.server_version)
        for config in self._wanted():
            await with_retries(partial(self._declare, config), _STARTING_S)

    async def compare(self) -> list[Difference]:
        """What of the streams that are there is not as the settings say. Raises Unavailable."""
        found = []
        for config in self._wanted():
            present = await self._config(config["name"])
            found += differences(present, config) if present is not None else []
        return found

    async def apply(self) -> None:
        """Make every stream as the settings say, also what is less safe. Raises ApiError,
        Unavailable.
        """
        for config in self._wanted():
            await with_retries(partial(self._declare, config, lower=True), _STARTING_S)

    def _wanted(self) -> list[Config]:
        return declarations(self._table.values(), self._replicas, clustered=self._link.is_clustered)

    async def _config(self, name: str) -> Config | None:
        try:
            return (await self._api.info(name)).config
        except ApiError as error:
            if error.number != STREAM_NOT_FOUND:
                raise
            return None

    async def _declare(self, config: Config, *, lower: bool = False) -> None:
        name = config["name"]
        present = await self._config(name)
        if present is None:
            await self._api.change(f"STREAM.CREATE.{name}", config)
            return
        found = differences(present, config)
        wanted = changed(present, found, lower=lower)
        if wanted != present:
            await self._update(name, wanted, lower=lower)
        for one in found:
            if one.lowers and not (one.fixed or lower):
                log.warning(
                    "%s; it stays, because that is less safe: `iris admin streams --apply` changes it",
                    one,
                )

    async def _update(self, name: str, config: Config, *, lower: bool) -> None:
        """Change what is there. A service goes on with a stream that the server does not change."""
        try:
            await self._api.change(f"STREAM.UPDATE.{name}", config)
            log.info("stream %s is declared differently now", name)
        except ApiError as error:
            if lower or isinstance(error, BusyError):
                raise
            log.warning("stream %s stays as it is: %s", name, error)

    async def publish(
        self, subject: str, data: bytes, *, headers: Headers | None = None, timeout: float = 5.0
    ) -> int:
        """Store one message, with retries while JetStream starts or moves the stream, and return
        its sequence.

        Raises Full; Unavailable after ``timeout`` seconds, when it is unknown whether it was
        stored: an unanswered attempt is not repeated.
        """

        async def store() -> int:
            return (await self._api.store(subject, data, timeout, headers)).seq

        return await with_retries(store, timeout, repeat_unknown=False)

    def read(self, stream: str, after: int, *subjects: str, made: str = "") -> JetReader:
        dense = not subjects and stream in self._table
        return JetReader(
            self._link,
            self._api,
            stream,
            after,
            *subjects,
            dense=dense,
            strict=False,
            made=made,
            holdings=self._holdings,
        )

    async def last(self, stream: str, *, subject: str = "") -> Message | None:
        if subject:
            return await self._retrying.message(stream, last_by_subj=subject)
        newest = await self.end(stream)
        return await self._retrying.message(stream, seq=newest) if newest else None

    async def next(self, stream: str, after: int, *, subject: str) -> Message | None:
        """From whichever server answers; one that lags behind may have none, so then the leader is
        asked.
        """
        wanted = {"seq": after + 1, "next_by_subj": subject}
        found = await with_retries(partial(self._api.copy, stream, **wanted), _RETRY_FOR_S)
        return found or await self._retrying.message(stream, **wanted)

    async def drop(self, stream: str, subject: str, *, keep: int = 0) -> None:
        rest = {"keep": keep} if keep else {}
        await self._retrying.purge(stream, filter=subject, **rest)

    async def end(self, stream: str) -> int:
        return (await self.position(stream)).sequence

    async def position(self, stream: str) -> StreamPosition:
        found = await self._retrying.info(stream)
        return StreamPosition(found.state.last_seq, found.created)

    async def trim(self, stream: str, below: int) -> None:
        if below > 1:
            await self._retrying.purge(stream, seq=below)

    async def size(self, stream: str) -> int:
        return (await self._retrying.info(stream)).state.bytes

    async def standing(self, stream: str) -> StoreStanding:
        found = await self._api.info(stream)
        return standing_of(found, copies(self._replicas, clustered=self._link.is_clustered))

    async def annotate(self, stream: str, key: str, value: str) -> None:
        await self._retrying.annotate(stream, key, value)

    async def storage(self) -> dict[str, ServerStorage]:
        return await servers.storage(self._link)
