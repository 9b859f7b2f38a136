"""Maps that were submitted through this process a moment ago, so that following their results needs
no read of the job and no reader of their own.

Out of scope: what happened to them since; the events and results after the positions that are kept
    tell it.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import msgspec

from iris_core.spec.index_set import IndexSet, indexes_of
from iris_core.views.jobs import StoredView

_KEPT = 256
_KEPT_S = 10.0
"""Later a job may have ended long ago, or be deleted: reading it is quicker than the events since,
or says so.
"""


class _Calls(msgspec.Struct, frozen=True):
    count: int = 0
    chunksize: int = 1


class _MapSpec(msgspec.Struct, frozen=True):
    calls: _Calls | None = None
    indexes: str = ""


class MapJob(msgspec.Struct):
    """What a reader of results has to know of a job."""

    id: str
    name: str
    user: str
    state: str
    spec: _MapSpec = _MapSpec()
    task_counts: dict[str, int] = {}
    evicted: StoredView | None = None

    @property
    def has_returned(self) -> bool:
        """Whether it is a map of which each call has stored a result: it succeeded."""
        calls = self.spec.calls
        return self.state == "succeeded" and calls is not None and calls.count > 0

    @property
    def why_gone(self) -> str:
        """Why results are not there any more."""
        if self.evicted is None or not self.evicted.result_bytes:
            return "they were deleted by age or size"
        return f"they were deleted to make room, {self.user} held most"

    def without(self, found: Set[int]) -> str:
        """The indexes of its tasks, besides those of which a result was found; empty where those
        are as many as have succeeded.
        """
        calls = self.spec.calls
        if calls is None or len(found) >= self.task_counts.get("succeeded", 0):
            return ""
        tasks = indexes_of(self.spec.indexes, -(-calls.count // calls.chunksize))
        return str(IndexSet.of(index for index in tasks if index not in found))


class Since(NamedTuple):
    """Positions from before a map was looked at or submitted: in the feed of ends, and of
    `NewResults` if it read.
    """

    events: int
    results: int | None = None


class RecentMaps:
    """The newest maps whose results nobody has asked for, each since before its submission, and
    until when it is kept.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[MapJob, Since, float]] = {}

    def note(self, job: MapJob, since: Since, now_s: float) -> None:
        """Keep a map that was created."""
        self._known[job.id] = (job, since, now_s + _KEPT_S)
        if len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]

    def take(self, job: str, now_s: float) -> tuple[MapJob, Since] | None:
        """A map by its id, once; None: it has to be read."""
        known = self._known.pop(job, None)
        return known[:2] if known is not None and now_s < known[2] else None
