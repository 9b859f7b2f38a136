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

ONE = 1
"""Messages that are taken at a time: what a slow client's answer holds beside its reader."""
TURN_S = 0.002
"""Seconds for which what is long goes on until others have their turn."""

_closing: set[asyncio.Task[None]] = set()


@contextmanager
def reading(
    streams: Streams, stream: str, after: int, *subjects: str, made: str = ""
) -> Iterator[StoredReader]:
    """A reader that is closed in the background when the block is left."""
    reader = streams.read(stream, after, *subjects, made=made)
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


class Turns:
    """Gives other requests their turn while long answers are made.

    Whatever handles much calls `give` after each bit. Every few milliseconds that waits until the
    loop has run what else is due; of many long answers only one goes on in each round of the loop,
    so together they delay a short one no more than one of them does.

    Args:
        turn_s: seconds of one turn; 0: `give` always waits.
    """

    def __init__(self, turn_s: float = TURN_S) -> None:
        self._turn_s = turn_s
        self._one = asyncio.Lock()
        self._since_s = 0.0

    async def give(self) -> None:
        """Return at once, or when it is this caller's turn again."""
        clock = asyncio.get_running_loop().time
        if not self._one.locked() and clock() - self._since_s < self._turn_s:
            return
        async with self._one:
            await asyncio.sleep(0)
            self._since_s = clock()


def taken(reader: Reader, gone: str, limit: int = 2000) -> Sequence[Message]:
    """The messages that are there. Raises ProblemResponse ``gone`` when some are not kept any
    more.
    """
    try:
        return reader.take(limit)
    except Gap:
        raise ProblemResponse("gone", gone) from None


async def batch(reader: Reader, wait_s: float, gone: str, limit: int = 2000) -> Sequence[Message]:
    """The next messages; none within that time: an empty list. Raises as `taken`."""
    try:
        return await reader.batch(limit=limit, wait=wait_s)
    except Gap:
        raise ProblemResponse("gone", gone) from None
