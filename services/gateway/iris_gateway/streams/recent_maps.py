"""Maps that were submitted through this process a moment ago, so that following their results needs no read of the job.

Out of scope: what happened to them since; the events after the position that is kept tell it.
"""

from __future__ import annotations

import msgspec

_KEPT = 256


class MapJob(msgspec.Struct):
    """What a reader of results has to know of a job."""

    id: str
    name: str
    user: str
    state: str


class RecentMaps:
    """The newest maps whose results nobody has asked for, each with a position in the feed before its submission."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[MapJob, int]] = {}

    def note(self, job: MapJob, since: int) -> None:
        """Keep a map that was created."""
        self._known[job.id] = (job, since)
        if len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]

    def take(self, job: str) -> tuple[MapJob, int] | None:
        """A map by its id, once; None: it has to be read."""
        return self._known.pop(job, None)
