"""Follows a bucket of small values: one loop for everybody who keeps a copy of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from iris_bus.contract import Entry, KeyValue


async def follow(bucket: KeyValue, take: Callable[[Mapping[str, Entry]], None]) -> None:
    """Call ``take`` with the whole bucket, at first and after each change, until cancelled."""
    watch = bucket.watch()
    try:
        while True:
            take(await watch.next())
    finally:
        await watch.close()
