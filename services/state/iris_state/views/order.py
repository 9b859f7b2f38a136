"""Listings of jobs that are ordered by one of their columns, page by page. Pure.

There is no index for them: each page looks at all jobs, `JOBS_ORDERED` at most, piece by piece, and
takes those it shows. So an order costs nothing where jobs change. Out of scope: filters (`jobs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest, nsmallest
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from iris_core import codec
from iris_core.codec import Undecodable
from iris_core.errors import Code, Refused
from iris_core.views.jobs import JOB_COLUMNS
from iris_core.views.queries import JobsQuery
from iris_state.records.entities import Job
from iris_state.views.pages import Pieces, behind_name, cursor_of

SortValue = str | int
NAME = 400
USER = 100
"""Characters of names and users by which jobs are ordered: as many as fit into a cursor."""


class _Place(NamedTuple):
    """The last job of a page: when the first page was made, the job's key as of then, and its
    number.
    """

    at_ms: int
    key: SortValue
    number: int


def _duration_ms(job: Job, at_ms: int) -> int:
    """How long a job has run; -1 before it starts."""
    return (
        (job.finished_ms or max(at_ms, job.started_ms)) - job.started_ms if job.started_ms else -1
    )


KEYS: dict[str, Callable[[Job, int], SortValue]] = {
    "submitted": lambda job, at_ms: job.number,
    "name": lambda job, at_ms: job.name[:NAME],
    "user": lambda job, at_ms: job.user[:USER],
    "band": lambda job, at_ms: job.band,
    "state": lambda job, at_ms: job.state,
    "tasks": lambda job, at_ms: len(job.tasks),
    "duration": _duration_ms,
}
assert KEYS.keys() == set(JOB_COLUMNS), "every column has its key"


def in_order(
    parts: Iterable[Iterable[Job]], query: JobsQuery, now_ms: int
) -> Pieces[list[tuple[str, Job]]]:
    """The jobs of the next page and one more, each with its cursor, as `pages.page` takes them.

    Args:
        parts: the jobs; after each part there is a pause.

    Equal ones are in the order of their submission. Durations are those at the time of the first
    page, so that later pages neither repeat nor omit a job that only goes on running.

    Raises:
        Refused: an unknown order, or a cursor of another listing.
    """
    column = query.order.removeprefix("-")
    descending = query.order.startswith("-")
    key = KEYS.get(column)
    if key is None:
        raise Refused(Code.INVALID, f"order is one of {', '.join(KEYS)}; prefix with - to reverse")
    after = _place(query.cursor)
    at_ms = now_ms if after is None else after.at_ms
    first: list[tuple[SortValue, int, Job]] = []
    for jobs in parts:
        keyed = ((key(job, at_ms), job.number, job) for job in jobs)
        try:
            if after is not None:
                last = after[1:]
                keyed = (one for one in keyed if (one[:2] < last if descending else one[:2] > last))
            pick = nlargest if descending else nsmallest
            first = pick(query.limit + 1, chain(first, keyed), key=itemgetter(0, 1))
        except TypeError:  # a name compared with a number
            raise Refused(Code.INVALID, "not a cursor of this listing") from None
        yield
    return [(_cursor(_Place(at_ms, key, number)), job) for key, number, job in first]


def _cursor(place: _Place) -> str:
    return cursor_of(codec.to_json(place).decode())


def _place(cursor: str) -> _Place | None:
    text = behind_name(cursor)
    try:
        return codec.from_json(text.encode(), _Place) if text else None
    except Undecodable:
        raise Refused(Code.INVALID, "not a cursor of this listing") from None
