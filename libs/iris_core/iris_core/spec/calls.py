"""The calls of a map, as a part of its job's specification. Pure. Out of scope: what a task does
with them.

Source: docs/design/calls.md#arguments,
    docs/design/calls.md#open-maps.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from iris_core.spec.field_rules import BASE64, between, seconds, text
from iris_core.spec.index_set import MAX_INDEXES

MAX_CALLS = 2**53
MAX_IDLE_S = 86_400
DIGEST = "64 hexadecimal digits (SHA-256)"
FileDigest = Annotated[
    str, text("[0-9a-f]{64}", "bad_digest", "is not the digest of a file", DIGEST)
]
SegmentText = Annotated[
    str,
    text(f"[0-9a-f]{{64}}|inline:{BASE64}", "bad_digest", "is not the digest of a file", DIGEST),
]
INLINE_BYTES = 4096
"""The largest file of arguments that is part of a specification: a request and two syncs less for a
small map.
"""
_INLINE = "inline:"


def inline(data: bytes) -> str:
    """A file of arguments in place of its digest."""
    return _INLINE + base64.b64encode(data).decode()


def is_inline(segment: str) -> bool:
    return segment.startswith(_INLINE)


def inlined(segment: str) -> bytes:
    """What `inline` was given. Raises ValueError."""
    return base64.b64decode(segment.removeprefix(_INLINE), validate=True)


Fresh = Literal["memory", "process"]
"""What a call does not share with the one before: the memory of its process, or its process."""


class Calls(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """The calls of one function, each a task: files in the bundle store by their SHA-256, which
    tasks read.

    Attributes:
        runner: the program of a task. function: what it calls.
        segments: files of arguments; a small one is here itself (`inline`). firsts: of each the
            index of the first task whose arguments it holds.
        count: how many calls there are. chunksize: how many of them a task makes; the last one may
            make fewer.
        idle_s: further calls may be added until the job is closed, at the latest after so long
            without a request of its client; None: it has these calls.
        reuse: how many tasks one process may make, one after the other, with what the earlier ones
            have left in its memory.
        fresh: with a reuse of 1, what a task does not share with others: "memory", its process may
            make others, but puts its memory back after each, where the host can; "process", that
            too.
    """

    runner: FileDigest
    function: FileDigest
    segments: tuple[SegmentText, ...]
    firsts: tuple[Annotated[int, between(0, MAX_INDEXES)], ...]
    count: Annotated[int, between(1, MAX_CALLS)]
    chunksize: Annotated[int, between(1, MAX_CALLS)] = 1
    idle_s: Annotated[float, seconds(1, MAX_IDLE_S)] | None = None
    reuse: Annotated[int, between(1, MAX_INDEXES)] = 1
    fresh: Fresh = "memory"

    @property
    def restores_memory(self) -> bool:
        """Whether a process may make several of its tasks, and puts its memory back after each."""
        return self.reuse == 1 and self.fresh == "memory"

    @property
    def digests(self) -> tuple[str, ...]:
        """All files that are stored."""
        return (self.runner, self.function, *(one for one in self.segments if not is_inline(one)))

    def place(self, index: int) -> tuple[str, int]:
        """The segment that holds the arguments of a task, and where in it."""
        at = bisect_right(self.firsts, index) - 1
        return self.segments[at], index - self.firsts[at]

    def with_more(self, segments: tuple[str, ...], firsts: tuple[int, ...], count: int) -> Calls:
        """The same with so many calls more, whose arguments are in further segments."""
        return msgspec.structs.replace(
            self,
            segments=self.segments + segments,
            firsts=self.firsts + firsts,
            count=self.count + count,
        )

    def of(self, indexes: Iterable[int]) -> Calls:
        """The same with the segments only that some tasks read."""
        needed = sorted({bisect_right(self.firsts, index) - 1 for index in indexes})
        segments = tuple(self.segments[at] for at in needed)
        return msgspec.structs.replace(
            self, segments=segments, firsts=tuple(self.firsts[at] for at in needed)
        )
