"""The numbers of jobs: job ``j12`` of Iris is 12, its array task of value 3 is ``12_3``. Pure;
raises `NotHonoured`.

A program may use ``SLURM_JOB_ID`` to name what is its own, so each task of an array has another
one: that of the job, and the index behind it. No record of numbers is kept.
"""

from __future__ import annotations

import re

from iris import JobView
from iris_slurm.values import NotHonoured

_BEHIND = 10**10
"""Above the numbers of jobs, and above any index."""
_NAME = re.compile(r"(?P<job>\d+)(?:_(?P<value>\d+|\[[\d,-]+\]))?(?:\.\w+)?\Z")


def number_of(job: JobView) -> int:
    return int(job.id.removeprefix("j"))


def own_number(job: int, index: int) -> int:
    """The ``SLURM_JOB_ID`` of a task of an array."""
    return job * _BEHIND + index


def read_number(text: str) -> tuple[int, tuple[int, ...], bool]:
    """The number of a job, of tasks of it (none: all), and whether these are indexes and not values
    of its array.
    """
    match = _NAME.match(text)
    if not match:
        raise NotHonoured(
            f"{text} is not the number of a job; write 12, or 12_3 for a task of an array"
        )
    job, value = int(match["job"]), match["value"]
    if job >= _BEHIND:
        job, index = divmod(job, _BEHIND)
        return job, (index,), True
    if value is None:
        return job, (), False
    ranges = [part.partition("-") for part in value.strip("[]").split(",")]
    return (
        job,
        tuple(i for low, _, high in ranges for i in range(int(low), int(high or low) + 1)),
        False,
    )


def indexes(job: JobView, values: tuple[int, ...], *, are_indexes: bool) -> tuple[int, ...]:
    """The indexes of the tasks with these values."""
    if are_indexes or not job.spec.array:
        return values
    known = {job.spec.array_index(index): index for index in range(job.replicas)}
    if missing := [value for value in values if value not in known]:
        raise NotHonoured(
            f"{number_of(job)}_{missing[0]} is not a task of the array {job.spec.array}"
        )
    return tuple(known[value] for value in values)


def shown_number(job: JobView, index: int | None) -> str:
    """``12``, or ``12_3`` for one of several tasks."""
    if index is None:
        return str(number_of(job))
    value = job.spec.array_index(index)
    return f"{number_of(job)}_{index if value is None else value}"
