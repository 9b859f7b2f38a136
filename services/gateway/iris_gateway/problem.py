"""The refusals of the API: one table from code to status, and the RFC 9457 problem document.

Handlers raise `ProblemResponse`; the middleware makes it a response. Out of scope: the texts of refusals, which are
written where they are decided. Source: docs/design/interfaces.md#http.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from iris_core.codec import Undecodable, from_json
from iris_core.errors import Mistake

MAX_ERRORS = 100
MEDIA_TYPE = "application/problem+json"


class ProblemKind(NamedTuple):
    """One row of the table: HTTP status, a fixed title, whether a retry may help, and after how many seconds."""

    status: int
    title: str
    retry_after_s: int = 0


KINDS: Mapping[str, ProblemKind] = {
    "malformed": ProblemKind(400, "Not understood"),
    "unauthenticated": ProblemKind(401, "Authentication required"),
    "forbidden": ProblemKind(403, "Not allowed"),
    "not_found": ProblemKind(404, "Not found"),
    "method_not_allowed": ProblemKind(405, "Method not allowed"),
    "timeout": ProblemKind(408, "Too slow", 1),
    "conflict": ProblemKind(409, "Conflict"),
    "idempotency_mismatch": ProblemKind(409, "This key was used for something else"),
    "parent_ended": ProblemKind(409, "The parent has ended"),
    "gone": ProblemKind(410, "No longer kept"),
    "precondition_failed": ProblemKind(412, "Changed since"),
    "too_large": ProblemKind(413, "Too large"),
    "unsupported_media_type": ProblemKind(415, "Unsupported media type"),
    "invalid": ProblemKind(422, "Invalid request"),
    "over_quota": ProblemKind(429, "Over quota", 30),
    "too_many_requests": ProblemKind(429, "Too many requests", 1),
    "internal": ProblemKind(500, "Something broke"),
    "unavailable": ProblemKind(503, "Try again", 1),
}
"""Codes of `iris_core.errors.Code` for refusals of the state service, and the gateway's own codes."""


class ProblemDocument(msgspec.Struct, kw_only=True):
    """An ``application/problem+json`` body."""

    title: str
    status: int
    code: str
    detail: str
    request_id: str
    retryable: bool
    errors: list[Mistake]
    type: str = "about:blank"


class Refusal(msgspec.Struct, frozen=True):
    """The body of an `iris_core.messages.Answer` with a refusal."""

    detail: str = ""
    errors: list[Mistake] = []


class ProblemResponse(Exception):
    """A refused request.

    Args:
        code: a key of `KINDS`; any other is answered as internal.
        detail: one sentence for a person.
        errors: all mistakes, for ``invalid``.
        headers: more response headers, e.g. ``Allow``.
    """

    def __init__(
        self, code: str, detail: str, *, errors: Sequence[Mistake] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.code = code if code in KINDS else "internal"
        self.kind = KINDS[self.code]
        self.detail = detail
        self.errors = list(errors)[:MAX_ERRORS]
        self.headers = dict(headers or {})
        if self.kind.retry_after_s:
            self.headers.setdefault("retry-after", str(self.kind.retry_after_s))

    def document(self, request_id: str) -> ProblemDocument:
        """The problem document."""
        return ProblemDocument(
            title=self.kind.title,
            status=self.kind.status,
            code=self.code,
            detail=self.detail,
            request_id=request_id,
            retryable=bool(self.kind.retry_after_s),
            errors=self.errors,
        )


def invalid(mistakes: Sequence[Mistake]) -> ProblemResponse:
    """The response 422 with all mistakes of a request."""
    first = mistakes[0]
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return ProblemResponse("invalid", f"{first.pointer or 'the body'}: {first.message}{more}", errors=mistakes)


def refused(status: str, body: bytes) -> ProblemResponse:
    """The refusal of another service, unchanged."""
    try:
        refusal = from_json(body, Refusal)
    except Undecodable:
        refusal = Refusal()
    detail = refusal.detail or KINDS.get(status, KINDS["internal"]).title
    return ProblemResponse(status, detail, errors=refusal.errors)
