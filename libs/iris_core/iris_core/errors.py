"""The exceptions of decisions.

IrisError
├── Refused               the caller asked for something that cannot be; its text is for a person
│   └── Invalid           many mistakes in one request, each with the path of its field
└── InvariantBroken       the ledger contradicts itself: the process ends, the journal rebuilds it
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec


class Code(StrEnum):
    """Machine-readable kind of a refusal; the gateway maps each to one HTTP status."""

    INVALID = "invalid"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    CHANGED = "precondition_failed"
    MISMATCH = "idempotency_mismatch"
    FORBIDDEN = "forbidden"
    OVER_QUOTA = "over_quota"
    GONE = "parent_ended"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


class IrisError(Exception):
    """The root of the tree."""


class Refused(IrisError):
    """A request that is rejected, and changes nothing.

    Args:
        code: the kind of rejection.
        detail: one sentence for a person, e.g. "/a asks for 0 tasks".
    """

    def __init__(self, code: Code, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """One wrong field: a JSON pointer, a code, what is wrong, and what would be right."""

    pointer: str
    code: str
    message: str
    hint: str = ""


def pointer_to(*parts: str | int) -> str:
    """A JSON pointer (RFC 6901) to a field, or the rest of one."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


class Invalid(Refused):
    """All mistakes in one request."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__(Code.INVALID, "; ".join(f"{m.pointer}: {m.message}" for m in mistakes))
        self.mistakes = tuple(mistakes)


class InvariantBroken(IrisError):
    """An invariant does not hold; the message names the record and both values."""
