"""Reads the parts of artifacts from their stream, one at a time.

A part that is missing or out of order is refused as gone: the stream deletes its oldest messages
first, so an artifact loses its first parts. Source: docs/adr/0048-artifacts-are-a-stream.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from iris_bus.contract import Streams, Unavailable
from iris_core.subjects import ARTIFACTS, PART
from iris_gateway.http.problem import ProblemResponse


class ArtifactReader:
    """The artifacts of the cluster."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def parts(self, subject: str, size: int) -> AsyncIterator[bytes]:
        """The parts of one artifact of ``size`` bytes. Raises ProblemResponse gone, unavailable."""
        number = read = after = 0
        while read < size:
            try:
                message = await self._streams.next(ARTIFACTS.name, after, subject=subject)
            except Unavailable:
                raise ProblemResponse("unavailable", "the artifacts cannot be read") from None
            if message is None or message.headers.get(PART) != str(number):
                raise ProblemResponse("gone", "this artifact is kept no longer")
            yield message.data
            number = number + 1
            read = read + len(message.data)
            after = message.sequence
