"""The refusals of the API as RFC 9457 problem documents.

Handlers raise `ProblemResponse`; the middleware makes it a response. Out of scope: the types of
problems (`problem_types`), and the texts of refusals, which are written where they are decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from iris_core.codec import Undecodable, from_json
from iris_core.errors import Mistake
from iris_gateway.http.problem_types import PROBLEM_TYPES, uri_of

MAX_ERRORS = 100
MEDIA_TYPE = "application/problem+json"


class ProblemDocument(msgspec.Struct, kw_only=True):
    """An ``application/problem+json`` body.

    Attributes:
        type: the URI of the problem type, relative to the gateway's address: a page about it. code:
            its last segment.
        detail: one sentence about this problem. errors: all mistakes of an invalid request.
        retryable: whether the same request may succeed later, and does not execute anything twice.
    """

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str
    retryable: bool
    errors: list[Mistake]


class Refusal(msgspec.Struct, frozen=True):
    """The body of an `Answer` with a refusal."""

    detail: str = ""
    errors: list[Mistake] = []


class ProblemResponse(Exception):
    """A refused request.

    Args:
        code: a key of `PROBLEM_TYPES`; any other is answered as internal.
        detail: one sentence for a person.
        errors: all mistakes, for ``invalid``.
        headers: more response headers, e.g. ``Allow``.
        retryable: False: whether the request was executed is unknown, and a repetition could
            execute it again.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[Mistake] = (),
        headers: Mapping[str, str] | None = None,
        retryable: bool = True,
    ) -> None:
        super().__init__(detail)
        self.code = code if code in PROBLEM_TYPES else "internal"
        self.kind = PROBLEM_TYPES[self.code]
        self.detail = detail
        self.errors = list(errors)[:MAX_ERRORS]
        self.headers = dict(headers or {})
        self.retryable = retryable and self.kind.retry_after_s > 0
        if self.retryable:
            self.headers.setdefault("retry-after", str(self.kind.retry_after_s))

    def document(self, request_id: str) -> ProblemDocument:
        """The problem document."""
        return ProblemDocument(
            type=uri_of(self.code),
            title=self.kind.title,
            status=self.kind.status,
            code=self.code,
            detail=self.detail,
            request_id=request_id,
            retryable=self.retryable,
            errors=self.errors,
        )


def invalid(mistakes: Sequence[Mistake]) -> ProblemResponse:
    """The response 422 with all mistakes of a request."""
    first = mistakes[0]
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return ProblemResponse(
        "invalid", f"{first.pointer or 'the body'}: {first.message}{more}", errors=mistakes
    )


def refused(status: str, body: bytes) -> ProblemResponse:
    """The refusal of another service, unchanged."""
    try:
        refusal = from_json(body, Refusal)
    except Undecodable:
        refusal = Refusal()
    detail = refusal.detail or PROBLEM_TYPES.get(status, PROBLEM_TYPES["internal"]).title
    return ProblemResponse(status, detail, errors=refusal.errors)
