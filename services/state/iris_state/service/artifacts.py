"""Chooses the artifacts to delete before their stream is full. Pure; `housekeeping` deletes them.

A full stream deletes its oldest messages, whoever's they are. So before that the artifacts of the
user who holds most are deleted, those of the oldest ended job first. Source:
docs/adr/0021-bound-everything-by-age-and-size.md. Out of scope: output and results of calls, whose
bytes the records do not tell by job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from iris_state.records.entities import Job

FULL = 0.85
WANTED = 0.75
"""Parts of what the stream may hold: from where on something is deleted, and down to where."""


class StoredOutput(NamedTuple):
    """What an ended job has stored: whose it is, when it ended, ms, and how many bytes."""

    user: str
    finished_ms: int
    bytes: int


NOTHING_STORED = StoredOutput("", 0, 0)
"""Of a job whose artifacts were deleted."""


def stored_output(job: Job) -> StoredOutput:
    """The artifacts of a job that has ended, by its records."""
    artifacts = (attempt.artifact for task in job.tasks for attempt in task.attempts)
    size = sum(one.bytes for one in artifacts if one is not None and one.upload)
    return StoredOutput(job.user, job.finished_ms, size)


def surplus(stored: Mapping[int, StoredOutput], held_bytes: int, limit_bytes: int) -> list[int]:
    """The jobs, by number, whose artifacts are to be deleted now."""
    if not limit_bytes or held_bytes <= FULL * limit_bytes:
        return []
    of_user: dict[str, list[int]] = {}
    for number in sorted(stored, key=lambda one: (stored[one].finished_ms, one), reverse=True):
        if stored[number].bytes:
            of_user.setdefault(stored[number].user, []).append(number)
    held = Counter({user: sum(stored[one].bytes for one in of_user[user]) for user in of_user})
    gone: list[int] = []
    while of_user and held_bytes > WANTED * limit_bytes:
        user = max(of_user, key=lambda one: (held[one], one))
        number = of_user[user].pop()
        gone.append(number)
        held[user] -= stored[number].bytes
        held_bytes -= stored[number].bytes
        if not of_user[user]:
            del of_user[user]
    return gone
