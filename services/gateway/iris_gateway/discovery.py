"""The routes of every deployment, watched in the discovery bucket, so that reads need no request.

While the bus is unreachable the last sets are kept. Source: docs/design/serving.md#discovery.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence

import msgspec

from iris_bus.contract import Entry, KeyValue
from iris_bus.follow import follow
from iris_core import codec
from iris_core.spec.serving import Discovery

log = logging.getLogger(__name__)


class ScrapeTarget(msgspec.Struct, frozen=True):
    """One route in the format of Prometheus' HTTP service discovery."""

    targets: tuple[str, ...]
    labels: dict[str, str]


class DiscoveredSets:
    """The routes of every deployment."""

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket
        self._seen: Mapping[str, Entry] = {}
        self._sets: dict[str, Discovery] | None = None
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def known(self) -> bool:
        """Whether the sets have been loaded."""
        return self._sets is not None

    async def follow(self) -> None:
        """Apply every change until cancelled."""
        await follow(self._bucket, self._update)

    def close(self) -> None:
        """Wake everybody who waits in `changed`."""
        self._closed = True
        self._changed.set()

    def get(self, deployment: str) -> Discovery | None:
        """One set, None when there is no such deployment."""
        return (self._sets or {}).get(deployment)

    async def changed(self, deployment: str, after: int, seconds: float) -> Discovery | None:
        """One set as soon as its version differs from ``after``; the present one after so many
        seconds.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (
                    not self._closed
                    and (found := self.get(deployment)) is not None
                    and found.version == after
                ):
                    await self._changed.wait()
        return self.get(deployment)

    def targets(self) -> Sequence[ScrapeTarget]:
        """Every route of every deployment."""
        return [
            ScrapeTarget(
                (route.address,),
                {
                    "__meta_iris_deployment": found.deployment,
                    "__meta_iris_route": route.id,
                    "__meta_iris_state": route.state,
                },
            )
            for found in (self._sets or {}).values()
            for route in found.routes
        ]

    def _update(self, values: Mapping[str, Entry]) -> None:
        before = self._sets or {}
        sets = {}
        for name, entry in sorted(values.items()):
            try:
                same = name in before and self._seen.get(name) == entry
                sets[name] = before[name] if same else codec.from_json(entry.value, Discovery)
            except codec.Undecodable as error:
                log.error("the routes of %s cannot be read: %s", name, error)
        self._seen = values
        self._sets = sets
        self._changed.set()
        self._changed = asyncio.Event()
