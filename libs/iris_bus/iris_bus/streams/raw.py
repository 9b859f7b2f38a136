"""Reads every readable message of a stream, and rewrites a stream, for verification, repair and
backup.

The server silently skips a damaged message, and a consumer that should deliver it waits for ever.
So nothing here waits for a message without looking up the next readable one.
Out of scope: what the messages mean. See also: `reader`, for streams that are whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

from iris_bus.connection.connection import Link
from iris_bus.connection.retry import with_retries
from iris_bus.contract import Headers, Message, Unavailable
from iris_bus.streams.api import STREAM_NOT_FOUND, Api, ApiError, StreamState
from iris_bus.streams.reader import JetReader

SILENT_S = 1.0
"""A reader that has delivered nothing for so many seconds is closed; the next messages are looked
up one by one.
"""
_RETRY_FOR_S = 15.0
_STORE_S = 10.0


class RawStream:
    """One stream on the server."""

    def __init__(self, link: Link, api: Api, name: str) -> None:
        self._link = link
        self._api = api
        self._retrying = api.retrying(_RETRY_FOR_S)
        self.name = name

    async def state(self) -> StreamState | None:
        """Its first and last sequence; None when there is no such stream. Raises Unavailable."""
        try:
            return (await self._retrying.info(self.name)).state
        except ApiError as error:
            if error.number == STREAM_NOT_FOUND:
                return None
            raise

    async def copy(self, sequence: int) -> Message | None:
        """One message from whichever server answers; None when that server has none. Raises
        Unavailable.
        """
        return await self._api.copy(self.name, seq=sequence)

    async def readable(self, after: int, end: int, subject: str = "") -> AsyncIterator[Message]:
        """Every readable message after ``after`` up to ``end``, on ``subject`` if given, in order.

        Raises Unavailable.
        """
        while after < end:
            async for message in self._stretch(after, end, subject):
                after = message.sequence
                yield message
            if after >= end:
                return
            look_up = partial(
                self._api.message, self.name, seq=after + 1, next_by_subj=subject or ">"
            )
            following = await with_retries(look_up, _RETRY_FOR_S)
            if following is None or following.sequence > end:
                return
            after = following.sequence
            yield following

    async def _stretch(self, after: int, end: int, subject: str) -> AsyncIterator[Message]:
        """The messages a reader delivers until it has delivered all, or stalls."""
        subjects = [subject] if subject else []
        reader = JetReader(
            self._link, self._api, self.name, after, *subjects, dense=False, strict=False
        )
        try:
            while after < end and (messages := await self._batch(reader)):
                for message in messages:
                    after = message.sequence
                    if after <= end:
                        yield message
        finally:
            await reader.close()

    @staticmethod
    async def _batch(reader: JetReader) -> Sequence[Message]:
        try:
            async with asyncio.timeout(_RETRY_FOR_S):
                if await reader.finished():
                    return []
                return await reader.batch(limit=1 << 12, wait=SILENT_S)
        except TimeoutError as error:
            raise Unavailable("the stream could not be read in time") from error

    async def replace(self, first: int) -> None:
        """Delete the stream and create it again, empty, with ``first`` as its next sequence.

        Raises Unavailable; ApiError when there is no such stream.
        """
        config = {**(await self._retrying.info(self.name)).config, "first_seq": first}
        await self._api.change(f"STREAM.DELETE.{self.name}", None)
        await with_retries(
            partial(self._api.change, f"STREAM.CREATE.{self.name}", config), _RETRY_FOR_S
        )

    async def store(self, messages: Sequence[Message]) -> None:
        """Store messages again in their order. Raises Full, Unavailable."""
        await asyncio.gather(
            *(self._api.store(m.subject, m.data, _STORE_S, _plain(m.headers)) for m in messages)
        )


def _plain(headers: Headers) -> Headers:
    """The headers of a message without those that address the stream it was stored in."""
    return {name: value for name, value in headers.items() if not name.startswith("Nats-Expected-")}
