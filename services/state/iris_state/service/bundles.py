"""Sums the bundles by user, and chooses those to delete. Pure; `housekeeping` lists and deletes
them.

A bundle is kept while a job that has not ended names it, and for a while after its last use. When
all of them together are too large, those that no such job names are deleted sooner: of the user who
holds most, the least recently used first. Source: ADR 21.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from iris_bus.contract import Blob
from iris_core.units import DAY_MS
from iris_state.records.deployments.records import Deployment
from iris_state.records.entities import Job
from iris_state.records.indexes.stored import StoredBundles

REST_MS = 3_600_000
"""A bundle used within this time is always kept: a submission that names it may be in flight."""


def summed(blobs: Iterable[Blob], end: int, now_ms: int) -> StoredBundles:
    """What each user holds, and has stored on this day; ``end``: the position of the store before it
    was listed.
    """
    day = now_ms // DAY_MS
    of_user, today = Counter[str](), Counter[str]()
    for blob in blobs:
        for owner in blob.owners:
            of_user[owner] += blob.part
            if part := blob.part_since(owner, day * DAY_MS):
                today[owner] += part
    return StoredBundles(of_user, sorted(of_user), day, today, end)


class Uses(msgspec.Struct):
    """The uses of bundles: digests of jobs that have not ended, and when the last job of each
    digest ended.
    """

    live: set[str]
    ended_ms: dict[str, int]

    def keep(self, deployments: Iterable[Deployment]) -> None:
        """Count every revision of a deployment as a use, because a route may be created from any of
        them.
        """
        for deployment in deployments:
            if not deployment.is_terminal:
                bundles = (revision.template.bundle for revision in deployment.revisions.values())
                self.live.update(bundle for bundle in bundles if bundle is not None)

    def note(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if not job.is_terminal:
                self.live.update(job.spec.code)
                continue
            for digest in job.spec.code:
                self.ended_ms[digest] = max(job.finished_ms, self.ended_ms.get(digest, 0))


def discardable(
    blobs: Sequence[Blob], uses: Uses, keep_ms: int, keep_bytes: int, now_ms: int
) -> Iterator[Blob]:
    """The bundles to delete now: those that have rested for too long, then those beyond the room.

    Args:
        keep_ms: how long after its last use a bundle is kept. keep_bytes: total size of all
            bundles. 0: no limit.
    """
    used = {blob.name: max(blob.used_ms, uses.ended_ms.get(blob.name, 0)) for blob in blobs}
    unused = [
        blob
        for blob in sorted(blobs, key=lambda blob: (used[blob.name], blob.name))
        if blob.name not in uses.live and now_ms - used[blob.name] >= REST_MS
    ]
    expired = [blob for blob in unused if keep_ms and now_ms - used[blob.name] > keep_ms]
    yield from expired
    gone = {blob.name for blob in expired}
    if keep_bytes:
        yield from _surplus(
            [blob for blob in blobs if blob.name not in gone],
            [blob for blob in unused if blob.name not in gone],
            keep_bytes,
        )


def _surplus(blobs: Sequence[Blob], unused: Iterable[Blob], keep_bytes: int) -> Iterator[Blob]:
    """Unused bundles of whoever holds most, until all together are no larger than that.

    A bundle of several owners goes when the one of them who holds least holds most. ``unused``:
    the least recently used first.
    """
    held = Counter[str]()
    for blob in blobs:
        for owner in _owners(blob):
            held[owner] += blob.part
    left = sum(blob.held for blob in blobs)
    by_owners: dict[tuple[str, ...], deque[Blob]] = {}
    for blob in unused:
        by_owners.setdefault(_owners(blob), deque()).append(blob)
    while by_owners and left > keep_bytes:
        owners = max(by_owners, key=lambda one: (min(held[owner] for owner in one), one))
        blob = by_owners[owners].popleft()
        left -= blob.held
        for owner in owners:
            held[owner] -= blob.part
        if not by_owners[owners]:
            del by_owners[owners]
        yield blob


def _owners(blob: Blob) -> tuple[str, ...]:
    """Whose it is; one that nobody may name any more is nobody's."""
    return blob.owners or ("",)
