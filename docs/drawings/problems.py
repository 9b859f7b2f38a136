"""docs/problems.md: every problem type of the gateway and every refusal of the proxy, from their
tables.
"""

from __future__ import annotations

from collections.abc import Iterator

from drawings.markdown import document, grid
from iris_gateway.http.problem_types import PROBLEM_TYPES, ProblemType, uri_of
from iris_proxy.http.refusal import REFUSAL_TYPES

EXPLAINED = """\
The gateway refuses a request with an RFC 9457 problem document, `application/problem+json`:"""

EXAMPLE = """\
```json
{
  "type": "/problems/conflict",
  "title": "Conflict",
  "status": 409,
  "code": "conflict",
  "detail": "/train exists and is running",
  "request_id": "3f6c0d6a8f0b4f0e",
  "retryable": false,
  "errors": []
}
```"""

MEMBERS = """\
`type` is the address of a page of the same gateway about the type of problem, and its last segment is `code`; both are
stable. `detail` is about this request. `errors` lists all mistakes of an invalid request, each with a JSON `pointer` to
its field (`?name` for a parameter), a `code`, a `message` and a `hint`. `retryable` says whether the same request may
succeed later; then `Retry-After` says when. The SDK raises a subclass of `Problem` ([SDK](sdk.md#problem)); the command
line prints the detail and ends with an [exit code](cli.md#exit-codes)."""

PROXY = """\
The proxy marks its own answers with the header `Iris-Proxy: 1`; every other answer is the service's. The body is JSON
with `status`, `code` and `detail`. [Troubleshooting](troubleshooting.md#a-deployment-answers-503-or-502) tells more."""


def section(code: str, kind: ProblemType) -> Iterator[str]:
    """One type: a heading, which is its anchor, and what the table says."""
    yield f"### `{code}`"
    again = f" A retry may succeed after {kind.retry_after_s} s." if kind.retry_after_s else ""
    yield f"{kind.status} {kind.title}, `{uri_of(code)}`. {kind.meaning}"
    more = f" More: [troubleshooting](troubleshooting.md#{kind.section})." if kind.section else ""
    yield f"{kind.remedy}{again}{more}"


def problems_document() -> str:
    """The types in the order of their status, then the refusals of the proxy."""
    parts = [text for code, kind in PROBLEM_TYPES.items() for text in section(code, kind)]
    refusals = (
        (
            str(kind.status),
            f"`{code}`",
            kind.meaning,
            kind.remedy,
            f"{kind.retry_after_s} s" * bool(kind.retry_after_s),
        )
        for code, kind in sorted(REFUSAL_TYPES.items(), key=lambda row: row[1].status)
    )
    return document(
        "Problem types",
        "iris_gateway.http.problem_types and iris_proxy.http.refusal",
        EXPLAINED,
        EXAMPLE,
        MEMBERS,
        "## Types",
        *parts,
        "## Refusals of the proxy",
        PROXY,
        grid(("status", "code", "meaning", "what to do", "retry after"), refusals),
    )
