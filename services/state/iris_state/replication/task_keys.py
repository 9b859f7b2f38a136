"""Keeps the keys that sign tokens of attempts: makes the first one, rotates them, and stores them in their bucket.

The bucket survives restarts and changes of the leader, gateways watch it, and nobody else may read it; the keys are in
no commit, no snapshot and no backup. All of them are one value, replaced by compare-and-set, so two leaders never make
two sets. See also: `iris_core.task_tokens` says when a key is made, signs and goes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence

from iris_bus.contract import Fenced, Full, KeyValue, Unavailable
from iris_core import codec
from iris_core.codec import Undecodable
from iris_core.task_tokens import KEYS, SigningKey, rotated

log = logging.getLogger(__name__)

AGAIN_S = 1.0
CHECK_INTERVAL_S = 600.0
"""How often it is seen whether a key is due; a small part of `task_tokens.ROTATE_MS`."""


class TaskKeyStore:
    """The keys of one leader.

    Args:
        now_ms: the time of the state service. life_ms: how long a token is valid.
        on_keys: called with all keys, first of all and after each change.
    """

    def __init__(
        self, bucket: KeyValue, now_ms: Callable[[], int], life_ms: int, on_keys: Callable[[Sequence[SigningKey]], None]
    ) -> None:
        self._bucket = bucket
        self._now_ms = now_ms
        self._life_ms = life_ms
        self._on_keys = on_keys
        self.known = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                self._on_keys(await self._rotated())
            except Fenced:
                continue  # another leader has replaced them: read those
            except (Full, Unavailable) as error:
                log.warning("the keys of tasks' tokens could not be read or stored, and are tried again: %s", error)
                await asyncio.sleep(AGAIN_S)
            else:
                self.known.set()
                await asyncio.sleep(CHECK_INTERVAL_S)

    async def _rotated(self) -> Sequence[SigningKey]:
        """The stored keys as they should be now. Raises Fenced, Full, Unavailable."""
        entry = (await self._bucket.all()).get(KEYS)
        before = read_keys(entry.value) if entry is not None else ()
        keys = rotated(before, SigningKey(secrets.token_hex(4), secrets.token_bytes(32), self._now_ms()), self._life_ms)
        if keys != before:
            await self._bucket.put(KEYS, codec.pack(keys), expected=entry.revision if entry is not None else 0)
            log.info("the keys of tasks' tokens are now %s", ", ".join(key.id for key in keys))
        return keys


def read_keys(value: bytes) -> tuple[SigningKey, ...]:
    """The keys in the bucket's value; none when it cannot be decoded, and new ones replace it."""
    try:
        return codec.unpack(value, tuple[SigningKey, ...])
    except Undecodable as error:
        log.error("the keys of tasks' tokens cannot be read, and are made anew: %s", error)
        return ()
