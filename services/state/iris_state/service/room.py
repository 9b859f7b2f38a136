"""Chooses what to delete before a stream of artifacts, output or results is full. Pure;
`housekeeping` deletes it.

A full stream deletes its oldest messages, whoever's they are. So before that what the user who
holds most has stored is deleted, of the oldest ended job first, and of jobs that run last. Source:
docs/adr/0021-bound-everything-by-age-and-size.md. Out of scope: sums by user (`records.indexes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from iris_core import subjects
from iris_core.subjects import Stream
from iris_state.records.entities import Job
from iris_state.records.indexes.stored import StoredKind

FULL = 0.85
WANTED = 0.75
"""Parts of what the stream may hold: from where on something is deleted, and down to where."""
TAIL_MESSAGES = 64
TAIL_BYTES = TAIL_MESSAGES * 512 << 10
"""Of a job with much more output, so many of the newest messages stay at first, which are at most so
many bytes.
"""
_RUNS_MS = 1 << 53
"""When a job that runs ends, for the order of deletion."""


class Holding(NamedTuple):
    """What a job holds of one kind: whose it is, when it ended, ms, and how many bytes."""

    user: str
    finished_ms: int
    bytes: int


class Surplus(NamedTuple):
    """What is deleted of a job: so many bytes, which is all, or all but the newest messages."""

    job: int
    bytes: int
    keeps_tail: bool = False


class Shared(NamedTuple):
    """One kind of stored things: its stream, and the subjects of a job there."""

    stream: Stream
    kind: StoredKind

    def subject(self, job: int) -> str:
        if self.kind is StoredKind.ARTIFACTS:
            return subjects.job_artifacts(job)
        return (
            subjects.job_logs(job) if self.kind is StoredKind.OUTPUT else subjects.job_results(job)
        )


SHARED = (
    Shared(subjects.ARTIFACTS, StoredKind.ARTIFACTS),
    Shared(subjects.LOGS, StoredKind.OUTPUT),
    Shared(subjects.RESULTS, StoredKind.RESULTS),
)
OF_KIND = {shared.kind: shared for shared in SHARED}


def holdings(
    jobs: Iterable[Job], kind: StoredKind, running: Mapping[int, int]
) -> Iterator[tuple[int, Holding]]:
    """The jobs that hold something of a kind, by number; ``running``: of `running_output`."""
    for job in jobs:
        stored = job.stored.of(kind)
        if kind is StoredKind.OUTPUT:
            stored += running.get(job.number, 0)
        held = stored - job.evicted.of(kind)
        if held > 0:
            yield job.number, Holding(job.user, job.finished_ms or _RUNS_MS, held)


def surplus(
    stored: Mapping[int, Holding], held_bytes: int, limit_bytes: int, tail_bytes: int = 0
) -> list[Surplus]:
    """What is to be deleted now, of jobs by number.

    Args:
        held_bytes: what the stream holds, ``limit_bytes``: the most it may, 0: no limit.
        tail_bytes: of a job with more than twice as much, this stays at first; 0: nothing stays.
    """
    if not limit_bytes or held_bytes <= FULL * limit_bytes:
        return []
    of_user: dict[str, list[int]] = {}
    for number in sorted(stored, key=lambda one: (stored[one].finished_ms, one), reverse=True):
        of_user.setdefault(stored[number].user, []).append(number)
    held = Counter({user: sum(stored[one].bytes for one in of_user[user]) for user in of_user})
    left: dict[int, int] = {}
    gone: list[Surplus] = []
    while of_user and held_bytes > WANTED * limit_bytes:
        user = max(of_user, key=lambda one: (held[one], one))
        number = of_user[user][-1]
        size = left.get(number, stored[number].bytes)
        keeps_tail = 0 < 2 * tail_bytes < size
        freed = size - tail_bytes if keeps_tail else size
        gone.append(Surplus(number, freed, keeps_tail))
        left[number] = size - freed
        held[user] -= freed
        held_bytes -= freed
        if not keeps_tail:
            of_user[user].pop()
        if not of_user[user]:
            del of_user[user]
    return gone
