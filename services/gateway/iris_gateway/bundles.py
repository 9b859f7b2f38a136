"""Stores uploaded code as objects named by the SHA-256 of their bytes, so that a repeated upload
stores nothing.

Each object has owners: the users who have sent its bytes, and those for whom an admin has named it.
For everybody else it does not exist, in every answer. Source:
    docs/adr/0049-bundles-are-visible-to-their-uploaders.md.

An upload is first received into an unnamed file; complete uploads are written to the store one
after the other. Once half of the room is used, a user may hold a fifth of it; what is sent counts
among the bytes that a user may store a day. Out of scope: the content of a bundle, which the worker
validates.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import IO

import msgspec

from iris_bus.contract import DESCRIBED_BYTES, Blobs, Full, Unavailable
from iris_core.access.rights import Verb, may
from iris_core.messages.gateway_state import Caller
from iris_core.quota import stored_words
from iris_core.units import DAY_MS, counted, show_bytes
from iris_gateway.http.problem import ProblemResponse

TOUCHED_MS = 600_000
"""A bundle that was marked as in use is not marked again within this time; bundles are kept for
much longer.
"""


class DayLimit(msgspec.Struct):
    """What a user may store a day, 0: no limit, and has stored today, as the state service counts
    it.
    """

    max_stored_today: int = 0
    stored_today: int = 0


BundleUse = tuple[str, str | None, str | None]
"""A digest, the owner who was asked for, and the one who was added."""
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
STORED_AT_ONCE = 4
RECEIVED_AT_ONCE = 4 << 30
"""Bytes of all uploads in progress."""
_REMEMBERED = 10_000
CROWDED, PART = 0.5, 0.2
"""Parts of the room: once so much is used, how much one user may hold."""


class Bundles:
    """The bundles of the cluster.

    Args:
        per_user: uploads of one user at a time.
        held: returns the bytes of all bundles. room_bytes: their limit.
        now_ms: wall time.
    """

    def __init__(
        self,
        blobs: Blobs,
        *,
        per_user: int = 4,
        held: Callable[[], Awaitable[int]],
        room_bytes: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._blobs = blobs
        self.now_ms = now_ms
        self._touched: dict[BundleUse, int] = {}
        self._per_user = per_user
        self._held = held
        self._room_bytes = room_bytes
        self.uploads: Counter[str] = Counter()
        self._received = 0
        self._storing = asyncio.Semaphore(STORED_AT_ONCE)

    async def has(self, caller: Caller, digest: str, owner: str | None = None) -> bool:
        """Whether the caller may name this bundle: one that the caller owns, an admin any. Raises
        Problem as `use`.

        ``owner``: of the job that it is named for, who owns it too once an admin has named it.
        """
        admin = may(caller, Verb.USE_BUNDLE)
        return await self.use(
            digest, owner=None if admin else caller.user, add=owner if admin else None
        )

    async def use(self, digest: str, *, owner: str | None = None, add: str | None = None) -> bool:
        """Mark a bundle as in use; False when it is not stored, or when ``owner`` is given and does
        not own it.

        ``add``: owns it from now on. Raises ProblemResponse unavailable, not_found for a malformed
        digest.
        """
        if not _DIGEST.match(digest):
            raise ProblemResponse(
                "not_found", "a bundle is named by its SHA-256, 64 hexadecimal digits in lower case"
            )
        if self.now_ms() - self._touched.get((digest, owner, add), 0) < TOUCHED_MS:
            return True
        try:
            found = await self._blobs.touch(digest, self.now_ms(), owner=owner, add=add)
        except (Full, Unavailable):
            raise ProblemResponse("unavailable", "the bundles cannot be read") from None
        if found:
            self._remember((digest, owner, add))
        return found

    async def put(
        self, caller: Caller, digest: str, parts: AsyncIterator[bytes], limit: DayLimit
    ) -> bool:
        """Store a bundle; False when the caller had it already. ``limit``: of the caller.

        Raises ProblemResponse: invalid for a wrong digest, over_quota, too_many_requests,
        unavailable.
        """
        if await self.has(caller, digest):
            return False
        self._check_day(caller.user, 0, limit, limit.stored_today)
        with self._upload(caller.user), tempfile.TemporaryFile() as file:
            await self._receive(digest, parts, file)
            async with self._storing:
                await self._store(caller.user, digest, file, limit)
        self._remember((digest, caller.user, None))
        return True

    @contextmanager
    def _upload(self, user: str) -> Iterator[None]:
        if self.uploads[user] >= self._per_user:
            raise ProblemResponse(
                "too_many_requests",
                f"{user} is sending {counted(self._per_user, 'bundle')} already",
            )
        self.uploads[user] += 1
        try:
            yield
        finally:
            self.uploads[user] -= 1
            if not self.uploads[user]:
                del self.uploads[user]

    async def _receive(self, digest: str, parts: AsyncIterator[bytes], file: IO[bytes]) -> None:
        """Write an upload to the file as it arrives."""
        whole = hashlib.sha256()
        size = 0
        try:
            async for part in parts:
                size += len(part)
                self._received += len(part)
                if self._received > RECEIVED_AT_ONCE:
                    raise ProblemResponse("too_many_requests", "too many uploads in progress")
                whole.update(part)
                file.write(part)  # into the page cache, directly from the socket's buffer
        finally:
            self._received -= size
        if whole.hexdigest() != digest:
            raise ProblemResponse(
                "invalid", f"the digest does not match: these bytes are {whole.hexdigest()}"
            )

    async def _store(self, user: str, digest: str, file: IO[bytes], limit: DayLimit) -> None:
        """Store these bytes, or add an owner where they are stored, under the same conditions."""
        try:
            await self._check_room(user, file.tell() + DESCRIBED_BYTES, limit)
            if not await self._blobs.touch(digest, self.now_ms(), add=user):
                await self._blobs.put(digest, file, at_ms=self.now_ms(), owners=[user])
        except Full:
            raise ProblemResponse("unavailable", "bundle storage is full") from None
        except Unavailable:
            raise ProblemResponse("unavailable", "the bundle could not be stored") from None

    async def _check_room(self, user: str, size: int, limit: DayLimit) -> None:
        """Refuse what does not fit, leaves too little to other users, or is more than the user may
        store today.
        """
        held = await self._held()
        if held + size > self._room_bytes:
            raise ProblemResponse("unavailable", "bundle storage is full")
        is_crowded = held + size > self._room_bytes * CROWDED
        if not is_crowded and not limit.max_stored_today:
            return
        owned = [blob for blob in await self._blobs.listed() if user in blob.owners]
        day_ms = self.now_ms() // DAY_MS * DAY_MS
        today = sum(blob.part_since(user, day_ms) for blob in owned)
        self._check_day(user, size, limit, max(today, limit.stored_today))
        if not is_crowded:
            return
        own = sum(blob.part for blob in owned)
        most = int(self._room_bytes * PART)
        if own + size > most:
            raise ProblemResponse(
                "over_quota",
                f"{user} has {show_bytes(own)} of bundles and sends {show_bytes(size)}; while bundle "
                f"storage is more than half full, a user may have {show_bytes(most)}",
            )

    def _check_day(self, user: str, size: int, limit: DayLimit, has: int) -> None:
        """Refuse to store so much when the user has stored as much today as allowed, or would store
        more. The state service learns within seconds what was just sent; ``has`` holds that too.
        """
        most = limit.max_stored_today
        if most and (has >= most or has + size > most):
            words = stored_words(user, most, has, self.now_ms())
            sends = f"; this bundle has {show_bytes(size)}" if size else ""
            raise ProblemResponse("over_quota", words + sends)

    def _remember(self, use: BundleUse) -> None:
        now_ms = self.now_ms()
        if len(self._touched) >= _REMEMBERED:
            self._touched = {
                known: at for known, at in self._touched.items() if now_ms - at < TOUCHED_MS
            }
        if len(self._touched) < _REMEMBERED:
            self._touched[use] = now_ms
