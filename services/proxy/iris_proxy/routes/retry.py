"""Decides whether a failed request is sent again, and where.

A request that a route may have begun is sent to no other route unless its deployment allows it:
what ended one server may end the next. Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_IDEMPOTENT = _SAFE | {"PUT", "DELETE"}
_MOST = 2
_SHARE = 0.1
_AT_ONCE = 10.0


class Failure(Enum):
    """How an attempt failed without an answer."""

    NOT_CONNECTED = "refused or timed out"
    REUSED_CLOSED = "a connection that had been idle was closed before the first byte of the answer"
    NEW_CLOSED = "a new connection was closed before the first byte of the answer"
    BROKEN = "anything else"


class Retry(Enum):
    """Where a failed request is sent again."""

    NOWHERE = "its failure is answered"
    SAME_ROUTE = "the same address, on a new connection"
    OTHER_ROUTE = "another route"


class RetryBudget:
    """A budget of retries: a tenth of all requests, with a burst of ten."""

    def __init__(self) -> None:
        self._left = _AT_ONCE

    def request(self) -> None:
        """Count a request."""
        self._left = min(self._left + _SHARE, _AT_ONCE)

    def take(self) -> bool:
        """Take one retry from the budget; False when it is used up."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request and how often it was sent.

    Attributes:
        has_body, body_read: whether it has a body, and whether any of it was read from the client.
        idempotent: whether the deployment lets requests be repeated on other routes.
        retries: how often it was sent again. begun: whether a route may have begun it before the
            failed attempt.
    """

    method: str
    has_body: bool = False
    body_read: bool = False
    idempotent: bool = False
    retries: int = 0
    begun: bool = False

    def may_be_repeated(self) -> bool:
        """Whether another route may get it although one may have begun it."""
        return self.idempotent and self.method in _IDEMPOTENT and not self.has_body


def where_to_retry(failure: Failure, sent: SentRequest) -> Retry:
    """Where a failed request is sent again."""
    if sent.retries >= _MOST or failure is Failure.BROKEN:
        return Retry.NOWHERE
    if failure is Failure.NOT_CONNECTED and not sent.begun:
        return Retry.NOWHERE if sent.body_read else Retry.OTHER_ROUTE
    if (
        failure is Failure.REUSED_CLOSED
        and not sent.begun
        and sent.method in _SAFE
        and not sent.has_body
    ):
        return Retry.SAME_ROUTE
    return Retry.OTHER_ROUTE if sent.may_be_repeated() else Retry.NOWHERE
