"""Uploaded code: objects named by the SHA-256 of their bytes, so that putting one twice is putting it once.

Not in this room: what is in a bundle; the worker unpacks it with care.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator

from iris_bus.contract import Blobs, Full, Unavailable
from iris_gateway.problem import Problem

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_AT_ONCE = 4


class Bundles:
    """The bundles of the cluster. Names once seen are remembered; they are confirmed when it matters."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._known: set[str] = set()
        self._uploads = asyncio.Semaphore(_AT_ONCE)

    async def has(self, digest: str) -> bool:
        """Whether the bundle is stored. Raises Problem unavailable, not_found for what is no digest."""
        if not _DIGEST.match(digest):
            raise Problem("not_found", "a bundle is named by its SHA-256, 64 hexadecimal digits in lower case")
        if digest not in self._known:
            await self._look()
        return digest in self._known

    async def put(self, digest: str, parts: AsyncIterator[bytes]) -> bool:
        """Store a bundle; False when it was there. Raises Problem: invalid for a wrong digest, unavailable."""
        if await self.has(digest):
            return False
        async with self._uploads:
            data = await _verified(digest, parts)
            try:
                await self._blobs.put(digest, data)
            except Full:
                raise Problem("unavailable", "there is no room for bundles") from None
            except Unavailable:
                raise Problem("unavailable", "the bundle could not be stored") from None
        self._known.add(digest)
        return True

    async def _look(self) -> None:
        try:
            self._known = set(await self._blobs.names())
        except (Unavailable, TimeoutError):
            raise Problem("unavailable", "the bundles cannot be listed") from None


async def _verified(digest: str, parts: AsyncIterator[bytes]) -> bytes:
    whole, pieces = hashlib.sha256(), []
    async for part in parts:
        whole.update(part)
        pieces.append(part)
    if whole.hexdigest() != digest:
        raise Problem("invalid", f"the digest does not match: these bytes are {whole.hexdigest()}")
    return b"".join(pieces)
