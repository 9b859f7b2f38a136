"""Writes the set of routes of each deployment into the bucket that proxies watch, and retries until
it is stored.

A leader that was deposed overwrites nothing newer: it confirms that it leads between its first read
and its first write, each set has a version, and a value is replaced by compare-and-set on its
revision. See also: `deployments.routes` says what is in a set. Source:
    docs/design/serving.md#discovery.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable

from iris_bus.contract import Entry, Fenced, Full, KeyValue, Unavailable
from iris_core import codec
from iris_core.codec import Undecodable
from iris_core.spec.serving import Discovery

log = logging.getLogger(__name__)

AGAIN_S = 1.0
_STORED_S = 0.5
"""How long orders to stop routes wait for the sets without them."""


class DiscoveryWriter:
    """The bucket of one leader.

    Args:
        sets: of every deployment when this leader began; other values in the bucket are removed.
        confirm: returns once this replica has been seen to lead, and never in one that was deposed.
    """

    def __init__(
        self, bucket: KeyValue, sets: Iterable[Discovery], confirm: Callable[[], Awaitable[None]]
    ) -> None:
        self._bucket = bucket
        self._confirm = confirm
        self._wanted: dict[str, Discovery | None] = {}
        self._stored: dict[str, Entry] | None = None
        self._is_first = True
        self._changed, self._all_stored = asyncio.Event(), asyncio.Event()
        self.note(sets)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def note(self, sets: Iterable[Discovery], gone: Iterable[str] = ()) -> None:
        """Queue durable sets for writing; the names in ``gone`` are deleted deployments."""
        self._wanted.update({one.deployment: one for one in sets})
        self._wanted.update(dict.fromkeys(gone))
        if self._wanted:
            self._changed.set()
            self._all_stored.clear()

    async def stored(self) -> None:
        """Return once all that was noted is stored, or after a short time; at once before the first
        write.

        A route that was told to stop serves for its settle time only: were this leader to end
        before the set without it is stored, proxies would send requests to it until the next one
        has written.
        """
        if self._stored is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STORED_S):
                    await self._all_stored.wait()

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            try:
                await self._write()
            except (Full, Unavailable) as error:
                log.warning(
                    "where deployments answer could not be written, and is tried again: %s", error
                )
                await asyncio.sleep(AGAIN_S)
            except Fenced:
                self._stored = await self._read()
                self._is_first = False
            else:
                await self._changed.wait()

    async def _read(self) -> dict[str, Entry]:
        while True:
            with contextlib.suppress(Unavailable):
                return dict(await self._bucket.all())
            await asyncio.sleep(AGAIN_S)

    async def _write(self) -> None:
        """Raises Fenced when another writer has changed the value meanwhile, Full, Unavailable."""
        self._changed.clear()
        if self._stored is None:
            stored = dict(await self._bucket.all())
            await (
                self._confirm()
            )  # who leads now has written before that read, or makes our writes fail
            self._stored = stored
            self._wanted = {**dict.fromkeys(self._stored), **self._wanted}
        while self._wanted:
            name = next(iter(self._wanted))
            wanted = self._wanted[name]
            entry = self._stored.get(name)
            if wanted is None and entry is not None:
                await self._bucket.delete(name, expected=entry.revision)
                self._stored.pop(name, None)
            elif wanted is not None and (self._is_first or version_of(entry) <= wanted.version):
                data = codec.to_json(wanted)
                if entry is None or entry.value != data:
                    revision = await self._bucket.put(
                        name, data, expected=entry.revision if entry else 0
                    )
                    self._stored[name] = Entry(data, revision)
            if self._wanted.get(name) is wanted:
                del self._wanted[name]
        self._is_first = False
        self._all_stored.set()


def version_of(entry: Entry | None) -> int:
    """The version of the stored set; -1 when there is none, or it cannot be decoded."""
    if entry is None:
        return -1
    try:
        return codec.from_json(entry.value, Discovery).version
    except Undecodable:
        return -1
