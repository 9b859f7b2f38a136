"""Closes a reader also when its user was cancelled and cannot wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from iris_bus.contract import Reader, Streams

_closing: set[asyncio.Task[None]] = set()


@contextmanager
def reading(streams: Streams, stream: str, after: int, subject: str = "") -> Iterator[Reader]:
    """A reader that is closed in the background when the block is left."""
    reader = streams.read(stream, after, subject=subject)
    try:
        yield reader
    finally:
        task = asyncio.ensure_future(reader.close())
        _closing.add(task)
        task.add_done_callback(_closing.discard)
