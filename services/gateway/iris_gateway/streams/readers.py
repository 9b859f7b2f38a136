"""What readers of streams share: a reader that is closed also when its user was cancelled, and ways
to read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from iris_bus.contract import Gap, Message, Reader, StoredReader, Streams
from iris_gateway.http.problem import ProblemResponse

_closing: set[asyncio.Task[None]] = set()


@contextmanager
def reading(streams: Streams, stream: str, after: int, *subjects: str) -> Iterator[StoredReader]:
    """A reader that is closed in the background when the block is left."""
    reader = streams.read(stream, after, *subjects)
    try:
        yield reader
    finally:
        close_soon(reader)


def close_soon(reader: Reader) -> None:
    """Close a reader in the background."""
    task = asyncio.ensure_future(reader.close())
    _closing.add(task)
    task.add_done_callback(_closing.discard)


async def arrived_within(arrival: asyncio.Event, seconds: float | None) -> bool:
    """Whether something has arrived in time; None: however long it takes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await arrival.wait()
    arrived = arrival.is_set()
    arrival.clear()
    return arrived


def taken(reader: Reader, gone: str) -> Sequence[Message]:
    """The messages that are there. Raises ProblemResponse ``gone`` when some are not kept any
    more.
    """
    try:
        return reader.take()
    except Gap:
        raise ProblemResponse("gone", gone) from None


async def batch(reader: Reader, wait_s: float, gone: str) -> Sequence[Message]:
    """The next messages; none within that time: an empty list. Raises as `taken`."""
    try:
        return await reader.batch(wait=wait_s)
    except Gap:
        raise ProblemResponse("gone", gone) from None
