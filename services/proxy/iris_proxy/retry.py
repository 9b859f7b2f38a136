"""Whether a request that failed may be sent again, to another route or on another connection. Never more than this.

Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

from enum import Enum

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_MOST = 2
_SHARE = 0.1
_AT_ONCE = 10.0


class Failure(Enum):
    """How an attempt ended without an answer."""

    NOT_CONNECTED = "refused or timed out"
    REUSED_CLOSED = "a reused connection was closed before the first byte of the answer"
    BROKEN = "anything else"


class RetryBudget:
    """At most a tenth of all requests are sent again, ten more at once after a while without."""

    def __init__(self) -> None:
        self._left = _AT_ONCE

    def request(self) -> None:
        """A request came."""
        self._left = min(self._left + _SHARE, _AT_ONCE)

    def take(self) -> bool:
        """Whether one may be sent again."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


def may_retry(failure: Failure, method: str, *, retries: int, has_body: bool, body_read: bool, fresh: bool) -> bool:
    """Whether a failed request may be sent again.

    Args:
        retries: how often it was sent again already. fresh: whether that was on a fresh connection for its sake.
        has_body, body_read: whether it has a body, and whether any of it was read from the client.
    """
    if retries >= _MOST:
        return False
    if failure is Failure.NOT_CONNECTED:
        return not body_read
    return failure is Failure.REUSED_CLOSED and method in _SAFE and not has_body and not fresh
