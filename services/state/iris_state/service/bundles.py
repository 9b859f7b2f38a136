"""Chooses the bundles to delete. Pure; `housekeeping` lists and deletes them.

A bundle is kept while a job that has not ended names it, and for a while after its last use; one
that no such job names is deleted sooner, least recently used first, when all of them together are
    too large. Source: ADR 21.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from iris_bus.contract import Blob
from iris_state.records.deployments.records import Deployment
from iris_state.records.entities import Job

REST_MS = 3_600_000
"""A bundle used within this time is always kept: a submission that names it may be in flight."""


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
    """The bundles to delete now, the least recently used first.

    Args:
        keep_ms: how long after its last use a bundle is kept. keep_bytes: total size of all
            bundles. 0: no limit.
    """
    left = sum(blob.bytes for blob in blobs)
    used = {blob.name: max(blob.used_ms, uses.ended_ms.get(blob.name, 0)) for blob in blobs}
    for blob in sorted(blobs, key=lambda blob: (used[blob.name], blob.name)):
        age_ms = now_ms - used[blob.name]
        if blob.name in uses.live or age_ms < REST_MS:
            continue
        if (keep_ms and age_ms > keep_ms) or (keep_bytes and left > keep_bytes):
            left -= blob.bytes
            yield blob
