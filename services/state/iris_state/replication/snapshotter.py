"""Takes snapshots beside the leader's rounds, keeps the last few, and trims the journal behind
them.

A snapshot is stored only when every event of its commits is published; until then a crash needs the
commits themselves. The journal is kept back to the last snapshot but one, so that a damaged newest
one costs nothing, and to one so old that its events are on disk: events lost by power loss are
published again from the commits after it. Out of scope: the content of a snapshot
    (`snapshots.snapshot`). Source: docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from iris_bus.contract import Blobs, Connection, EventPublisher, Full, Publication, Unavailable
from iris_core import subjects
from iris_state.effects.kinds import Output
from iris_state.effects.outbox import event_place
from iris_state.machine.machine import Machine
from iris_state.snapshots.snapshot import Cutter, Damaged, Draft, Image, commit_of, name_of, read

log = logging.getLogger(__name__)

KEPT = 3
SLICE_TASKS = 2000
SLICE_BYTES = 4 << 20
"""Tasks encoded, or bytes added to the checksum, between two rounds: a few milliseconds."""
BYTES_A_CHANGE = 200
"""Of the last snapshot, for each change before the next: replaying the commits after it takes about
twice as long as reading it, and all snapshots together no longer than the work between them,
however much the ledger holds."""
_PAUSE_S = 0.1


async def good(blobs: Blobs) -> AsyncIterator[Image]:
    """Every intact snapshot, newest first. Raises OtherVersion, Unavailable."""
    for name in reversed(await _names(blobs)):
        try:
            data = await blobs.get(name)
            if data is not None:
                yield read(data)
        except (ValueError, Damaged) as error:
            log.warning("%s is damaged, taking the one before: %s", name, error)


async def newest(blobs: Blobs, last_published: str) -> Image | None:
    """The newest intact snapshot whose events are all published up to ``last_published``; None when
    there is none.
    """
    async for image in good(blobs):
        if not last_published or event_place(image.rest.last_published) <= event_place(
            last_published
        ):
            return image
        log.warning(
            "the snapshot of %d is ahead of the events, which end at %s",
            image.rest.sequence,
            last_published,
        )
    return None


async def newest_commit(blobs: Blobs) -> int:
    """The newest commit in any snapshot, even a damaged one; 0 without one. Raises Unavailable."""
    return max((commit_of(name) or 0 for name in await blobs.names()), default=0)


async def _names(blobs: Blobs) -> list[str]:
    """Names of snapshots, oldest commit first."""
    return sorted(name for name in await blobs.names() if commit_of(name) is not None)


class Snapshotter:
    """One leader's snapshots.

    Args:
        changes: take a snapshot after so many changes; more after a large snapshot.
        after_s: take one so many seconds after the first change.
        settle_s: how long power loss may lose published events.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        machine: Machine,
        connection: Connection,
        publisher: EventPublisher,
        *,
        changes: int,
        after_s: float,
        settle_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._machine = machine
        self._connection = connection
        self._publisher = publisher
        self._blobs = connection.blobs(subjects.SNAPSHOTS_BUCKET)
        self._limit = changes
        self._after_s = after_s
        self._settle_s = settle_s
        self._seen: dict[str, float] = {}
        self._clock = clock
        self._cutter: Cutter | None = None
        self._draft: tuple[str, Draft, str] | None = None
        self._putting: asyncio.Task[None] | None = None
        self._changes = self._bytes = 0
        self._first_s = 0.0
        self._last_published = ""
        self.taken = 0

    @property
    def busy(self) -> bool:
        """Whether `work` should be called soon."""
        return self._cutter is not None or self._draft is not None

    def note(self, output: Output) -> None:
        """A round is committed and sent."""
        if events := output.of(Publication):
            self._last_published = events[-1].message_id
        if not output.changes:
            return
        if not self._changes:
            self._first_s = self._clock()
        self._changes += len(output.changes)
        if self._cutter is not None:
            self._cutter.note(output.changes)

    def start_at(self, last_published: str) -> None:
        """The id of the last event of all replayed commits."""
        self._last_published = last_published

    def begin_anew(self, machine: Machine) -> None:
        """The records were reloaded: a snapshot in progress is dropped, and due again at once."""
        if self._cutter is not None:
            self._changes = self._limit
        self._machine = machine
        self._cutter = None

    def is_due(self) -> bool:
        if (
            not self._changes
            or self.busy
            or (self._putting is not None and not self._putting.done())
        ):
            return False
        limit = max(self._limit, self._bytes // BYTES_A_CHANGE)
        return self._changes >= limit or self._clock() - self._first_s >= self._after_s

    def work(self) -> None:
        """Called between rounds: begin, continue or finish a snapshot."""
        if self._draft is not None:
            name, draft, last_published = self._draft
            if draft.work(SLICE_BYTES):
                data = draft.data()
                self._draft = None
                self._bytes = len(data)
                self._putting = asyncio.get_running_loop().create_task(
                    self._put(name, data, last_published)
                )
        elif self._cutter is not None:
            if self._cutter.work(SLICE_TASKS):
                machine = self._machine
                cutter = self._cutter
                self._cutter = None
                draft = cutter.finish(machine.sequence, machine.last_ms, self._last_published)
                self._draft = (name_of(machine.sequence), draft, self._last_published)
        elif self.is_due():
            self._cutter = Cutter(self._machine.ledger)
            self._changes = 0

    async def close(self) -> None:
        if self._putting is not None:
            self._putting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._putting

    async def _put(self, name: str, data: bytes, last_published: str) -> None:
        wanted = event_place(last_published)
        while self._publisher.backlog and event_place(self._publisher.last_published) < wanted:  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_S)
        try:
            await self._blobs.put(name, data)
            await self._trim()
        except (Full, Unavailable) as error:
            log.warning("%s was not kept: %s", name, error)
            return
        self.taken += 1
        log.info("%s is kept", name, extra={"bytes": len(data)})

    async def _trim(self) -> None:
        """Keep the newest few snapshots and one whose events are on disk, the journal to it or the
        last but one.
        """
        names = await _names(self._blobs)
        now_s = self._clock()
        self._seen = {name: self._seen.get(name, now_s) for name in names}
        settled = sum(now_s - seen_s >= self._settle_s for seen_s in self._seen.values()) - 1
        for name in names[: max(0, min(settled, len(names) - KEPT))]:
            await self._blobs.delete(name)
        begin = min(settled, len(names) - 2)
        commit = commit_of(names[begin]) if begin >= 0 else None
        if commit is not None:
            await self._connection.streams.trim(subjects.JOURNAL.name, commit + 1)
