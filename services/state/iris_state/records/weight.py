"""The memory that a record takes: what its owner wrote, measured once when it is admitted.

An encoded string of ten bytes takes sixty in memory, so it is the objects that are measured and not
their encoding. Out of scope: what follows from the weight (`decide.retention`, `decide.quota`).
"""

from __future__ import annotations

from enum import Enum
from sys import getsizeof
from typing import Any

import msgspec

from iris_core.spec.jobs import JobSpec
from iris_state.records.indexes.index import JobIndex

SHARED_KEY = 32
"""Characters of a key up to which decoded objects share it."""
LIST_BYTES = 600
"""Of the list of jobs with one value of a label: measured, rounded up."""


def memory_of(value: Any) -> int:
    """Bytes of memory of a value and of all that it consists of.

    What is empty, a number, or a member of an enumeration counts as the reference to it, which the
    value that holds it includes.
    """
    size = 0
    rest = [value]
    while rest:
        one = rest.pop()
        if not one or isinstance(one, bool | Enum):
            continue
        if isinstance(one, str) and len(one) == 1:  # there is one of each
            continue
        if isinstance(one, str | bytes | int | float):
            size += getsizeof(one)
        elif isinstance(one, msgspec.Struct):
            size += getsizeof(one)
            rest += msgspec.structs.astuple(one)
        elif isinstance(one, dict):
            size += getsizeof(one)
            rest += one.keys()
            rest += one.values()
        elif isinstance(one, list | tuple | set | frozenset):
            size += getsizeof(one)
            rest += one
    return size


def written(spec: JobSpec, index: JobIndex) -> int:
    """Bytes of memory of a specification and of the lists of its labels, which jobs share."""
    size = memory_of(spec)
    for key, value in spec.labels.items():
        jobs = len(index.of(("label", f"{key}={value}")))
        size += LIST_BYTES // max(jobs, 1)
        if jobs > 1 and len(key) <= SHARED_KEY:
            size -= getsizeof(key)
    return size
