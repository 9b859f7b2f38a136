"""The values of a job's tasks in a file of its bundle: line i is the value of task i. Pure.

The client counts the lines before it submits, the worker reads one for each attempt.
"""

from __future__ import annotations

from iris_core.spec.index_set import MAX_INDEXES

LINE_BYTES = 60_000
"""Runtimes of containers read a variable from a line of at most 64 KiB."""


def values_of(data: bytes) -> list[str]:
    """The lines of a file, which may end with a line feed. Raises ValueError, for a person."""
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    if not lines[-1]:
        del lines[-1]
    if not 0 < len(lines) <= MAX_INDEXES:
        raise ValueError(f"it has {len(lines)} lines; 1 to {MAX_INDEXES} are possible, one for each task")
    for number, line in enumerate(lines, start=1):
        if "\0" in line or len(line.encode()) > LINE_BYTES:
            raise ValueError(f"line {number} holds a NUL byte, or more than {LINE_BYTES} bytes")
    return [line.removesuffix("\r") for line in lines]
