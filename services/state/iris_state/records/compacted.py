"""The tasks of a finished job as the bytes of a snapshot: a tenth of the memory, and nothing left
to encode.

A compacted job is read like any other and never written again. Out of scope: when a job is
    compacted (`retention`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, overload

import msgspec

from iris_state.records.entities import Job, Task

_OPENED_AT_ONCE = 8


class CompactedTasks(Sequence[Task]):
    """The tasks of one job, decoded on access; changes of a decoded task are lost."""

    __slots__ = ("_count", "data")

    def __init__(self, data: bytes, count: int) -> None:
        self.data = data
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Task: ...

    @overload
    def __getitem__(self, at: slice) -> list[Task]: ...

    def __getitem__(self, at: int | slice) -> Task | list[Task]:
        return _opened(self.data)[at]

    def __iter__(self) -> Iterator[Task]:
        return iter(_opened(self.data))


@lru_cache(maxsize=_OPENED_AT_ONCE)
def _opened(data: bytes) -> list[Task]:
    return _decoder.decode(data)


def _as_raw(value: Any) -> Any:
    if isinstance(value, CompactedTasks):
        return msgspec.Raw(value.data)
    raise TypeError(f"no record holds a {type(value).__name__}")


encoder = msgspec.msgpack.Encoder(enc_hook=_as_raw)
"""Encodes records; compacted tasks are copied unchanged."""

_decoder = msgspec.msgpack.Decoder(list[Task])


def is_compacted(job: Job) -> bool:
    return isinstance(job.tasks, CompactedTasks)


def compact(job: Job) -> None:
    """Replace the tasks of a finished job by their encoding."""
    if not is_compacted(job):
        job.tasks = CompactedTasks(encoder.encode(job.tasks), len(job.tasks))
