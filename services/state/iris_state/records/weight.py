"""The memory that a record takes: what its owner wrote, measured once when it is admitted.

An encoded string of ten bytes takes sixty in memory, so it is the objects that are measured and not
their encoding. Out of scope: what follows from the weight (`decide.retention`, `decide.quota`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from itertools import chain
from sys import getsizeof
from typing import Any, cast

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
    rest: list[Iterable[Any]] = [(value,)]
    for some in rest:  # and what is added meanwhile
        for one in filter(None, some):  # most fields of a specification are empty
            kind = type(one)
            if kind is str:
                size += getsizeof(one) if len(one) > 1 else 0  # there is one of each letter
                continue
            parts = _PARTS.get(kind)
            if parts is None:
                parts = _PARTS[kind] = _parts_of(kind)
            if parts is _no_parts:
                continue
            size += getsizeof(one)
            if parts is not _one_part:
                rest.append(parts(one))
    return size


def _no_parts(value: Any) -> Iterable[Any]:
    """Of what is not measured."""
    return ()


def _one_part(value: Any) -> Iterable[Any]:
    """Of what is measured as a whole."""
    return ()


def _of_mapping(value: Any) -> Iterable[Any]:
    return chain(value, value.values())


def _of_sequence(value: Any) -> Iterable[Any]:
    return cast(Iterable[Any], value)


_PARTS: dict[type, Callable[[Any], Iterable[Any]]] = {}
"""What gives the parts of a value of each type that was met."""


def _parts_of(kind: type) -> Callable[[Any], Iterable[Any]]:
    if issubclass(kind, bool | Enum):
        return _no_parts
    if issubclass(kind, str | bytes | int | float):
        return _one_part
    if issubclass(kind, msgspec.Struct):
        return msgspec.structs.astuple
    if issubclass(kind, dict):
        return _of_mapping
    if issubclass(kind, list | tuple | set | frozenset):
        return _of_sequence
    return _no_parts


def written(spec: JobSpec, index: JobIndex) -> int:
    """Bytes of memory of a specification and of the lists of its labels, which jobs share."""
    size = memory_of(spec)
    for key, value in spec.labels.items():
        jobs = len(index.of(("label", f"{key}={value}")))
        size += LIST_BYTES // max(jobs, 1)
        if jobs > 1 and len(key) <= SHARED_KEY:
            size -= getsizeof(key)
    return size
