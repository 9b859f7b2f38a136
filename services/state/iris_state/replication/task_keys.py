"""Keeps the keys that sign tokens of attempts: makes the first one, rotates them, and stores them
in their bucket.

The bucket survives restarts and changes of the leader, gateways watch it, and nobody else may read
it; the keys are in no commit, no snapshot and no backup. All of them are one value, replaced by
compare-and-set, so two leaders never make two sets. See also: `iris_core.access.task_tokens` says
when a key is made, signs and goes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence

from iris_bus.contract import Fenced, Full, KeyValue, Unavailable
from iris_core import codec
from iris_core.access.task_tokens import KEYS, SigningKey, rotated
from iris_core.codec import Undecodable

log = logging.getLogger(__name__)

AGAIN_S = 1.0
CHECK_INTERVAL_S = 60.0
"""How often it is seen whether a key is due, and whether the bucket has lost them: a server that
starts drops a damaged value, and tells nobody."""


class TaskKeyStore:
    """The keys of one leader.

    Args:
        now_ms: the time of the state service. life_ms: how long a token is valid.
        on_keys: called with all keys, first of all and after each change.
        has_jobs: there were leaders before, which have stored keys.
    """

    def __init__(
        self,
        bucket: KeyValue,
        now_ms: Callable[[], int],
        life_ms: int,
        on_keys: Callable[[Sequence[SigningKey]], None],
        *,
        has_jobs: bool = False,
    ) -> None:
        self._bucket = bucket
        self._now_ms = now_ms
        self._life_ms = life_ms
        self._on_keys = on_keys
        self._has_jobs = has_jobs
        self._held: Sequence[SigningKey] = ()
        self._revision = 0
        self.known = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self.check()
            except Fenced:
                continue  # another leader has replaced them: read those
            except (Full, Unavailable) as error:
                log.warning(
                    "the keys of tasks' tokens could not be read or stored, and are tried again: %s",
                    error,
                )
                await asyncio.sleep(AGAIN_S)
            else:
                await asyncio.sleep(CHECK_INTERVAL_S)

    async def check(self) -> None:
        """Store the keys as they should be now, and use them. Raises Fenced, Full, Unavailable."""
        entry = (await self._bucket.all()).get(KEYS)
        stored, revision = (
            (read_keys(entry.value), entry.revision) if entry is not None else ((), 0)
        )
        before: Sequence[SigningKey] = stored
        if revision < self._revision:  # nothing, or an older value that the newer one had replaced
            log.error(
                "the keys of tasks' tokens were lost on the NATS servers, and are stored again"
            )
            before = self._held
        elif not stored and self._has_jobs:
            log.error(
                "the keys of tasks' tokens are lost: new ones are made, tokens of tasks that run are refused"
            )
        keys = rotated(
            before,
            SigningKey(secrets.token_hex(4), secrets.token_bytes(32), self._now_ms()),
            self._life_ms,
        )
        if keys != stored:
            revision = await self._bucket.put(KEYS, codec.pack(keys), expected=revision)
            log.info("the keys of tasks' tokens are now %s", ", ".join(key.id for key in keys))
        self._held = keys
        self._revision = revision
        self._on_keys(keys)
        self.known.set()


def read_keys(value: bytes) -> tuple[SigningKey, ...]:
    """The keys in the bucket's value; none when it cannot be decoded."""
    try:
        return codec.unpack(value, tuple[SigningKey, ...])
    except Undecodable as error:
        log.error("the stored keys of tasks' tokens cannot be read: %s", error)
        return ()
