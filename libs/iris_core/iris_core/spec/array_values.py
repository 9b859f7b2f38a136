"""The values of a job's tasks in a file of its bundle: line i is the value of task i. Pure.

The client counts the lines before it submits, the worker reads one for each attempt. A byte order
mark at its beginning is no part of the first one.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import BinaryIO

from iris_core.spec.index_set import MAX_INDEXES

LINE_BYTES = 60_000
"""Runtimes of containers read a variable from a line of at most 64 KiB."""


def values_of(data: bytes) -> list[str]:
    """The lines of a file, which may end with a line feed. Raises ValueError, for a person."""
    lines = data.split(b"\n")
    if not lines[-1]:
        del lines[-1]
    if not 0 < len(lines) <= MAX_INDEXES:
        raise ValueError(
            f"it has {len(lines)} lines; 1 to {MAX_INDEXES} are possible, one for each task"
        )
    return [_value(line, number) for number, line in enumerate(lines, start=1)]


def value_of(file: BinaryIO, index: int) -> str:
    """The value of task ``index``; the file, which may be of any size, is read to its line. Raises
    ValueError, for a person; OSError.
    """
    value = ""
    for number in range(1, index + 2):
        line = file.readline(LINE_BYTES + 2)
        if not line:
            raise ValueError(f"it has no line {index + 1}, for task {index}")
        value = _value(line.removesuffix(b"\n"), number)
    return value


def _value(line: bytes, number: int) -> str:
    """Raises ValueError."""
    if b"\0" in line or len(line) > LINE_BYTES:
        raise ValueError(f"line {number} holds a NUL byte, or more than {LINE_BYTES} bytes")
    try:
        text = line.removeprefix(BOM_UTF8) if number == 1 else line
        return text.decode().removesuffix("\r")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
