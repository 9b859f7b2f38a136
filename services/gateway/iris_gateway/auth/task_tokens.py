"""Verifies tokens of tasks with the keys of the state service, watched in their bucket, so that no
request is needed.

Out of scope: whether the attempt is still open, and what belongs to its job; the state service
    judges both.
Source: docs/adr/0040-tokens-of-attempts.md.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from iris_bus.contract import Entry, KeyValue
from iris_bus.follow import follow
from iris_core import codec
from iris_core.access.task_tokens import KEYS, BadTaskToken, SigningKey, verified
from iris_core.messages.gateway_state import Caller
from iris_gateway.auth.bearer import unauthenticated
from iris_gateway.http.problem import ProblemResponse

log = logging.getLogger(__name__)


class TaskTokens:
    """The keys that tokens of tasks are verified with."""

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket
        self._keys: Mapping[str, SigningKey] | None = None

    @property
    def known(self) -> Collection[str]:
        """The ids of the keys."""
        return self._keys or ()

    async def follow(self) -> None:
        """Apply every change until cancelled."""
        await follow(self._bucket, self._update)

    def identify(self, token: str, now_ms: int) -> Caller:
        """The task behind a token. Raises ProblemResponse: unauthenticated, or unavailable before
        the keys are read.
        """
        if self._keys is None:
            raise ProblemResponse("unavailable", "the keys of tasks' tokens are not loaded yet")
        try:
            return verified(token, self._keys, now_ms)
        except BadTaskToken as error:
            raise unauthenticated(str(error)) from None

    def _update(self, values: Mapping[str, Entry]) -> None:
        entry = values.get(KEYS)
        if entry is None:
            return  # the state service has made none yet
        try:
            self._keys = {key.id: key for key in codec.unpack(entry.value, tuple[SigningKey, ...])}
        except codec.Undecodable as error:
            log.error("the keys of tasks' tokens cannot be read: %s", error)
