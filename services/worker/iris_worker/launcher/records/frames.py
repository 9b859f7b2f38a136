"""Records of a worker and its launcher as bytes, each with its length before it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from iris_core import codec

_LENGTH = 4


def frame(record: Any) -> bytes:
    """A record with its length before it."""
    return with_length(codec.pack(record))


def with_length(data: bytes) -> bytes:
    return len(data).to_bytes(_LENGTH, "big") + data


def take_frames(buffer: bytearray) -> Iterator[bytes]:
    """Remove the complete records from the front of ``buffer``, and return them still encoded."""
    data = bytes(buffer)
    at = 0
    while at + _LENGTH <= len(data):
        end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "big")
        if end > len(data):
            break
        yield data[at + _LENGTH : end]
        at = end
    del buffer[:at]
