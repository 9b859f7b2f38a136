"""Which waiting jobs are below which others: what a job runs for may wait in the queue."""

from __future__ import annotations

from collections.abc import Iterator

from iris_core.messages.scheduler_state import JobRow


class Families:
    """By the owner and name of each job, the waiting jobs below it; those that came first, first.

    A job of another owner below it, which only an admin can submit, is not counted.
    """

    def __init__(self) -> None:
        self._below: dict[tuple[str, str], dict[int, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._below)

    def put(self, row: JobRow) -> None:
        """A job waits."""
        for above in _above(row):
            self._below.setdefault(above, {})[row.job] = None

    def drop(self, row: JobRow) -> None:
        """A job waits no more, if it did."""
        for above in _above(row) if self._below else ():
            below = self._below.get(above, {})
            if row.job in below:
                del below[row.job]
                if not below:
                    del self._below[above]

    def first_below(self, row: JobRow) -> int | None:
        """The job below another that came first of those that wait."""
        return next(iter(self._below.get((row.user, row.name), ())), None)


def _above(row: JobRow) -> Iterator[tuple[str, str]]:
    name = row.name
    for _ in range(row.depth - 1):
        name = name.rpartition("/")[0]
        yield row.user, name
