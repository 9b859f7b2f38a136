"""Fetches what an attempt left in its output directory, and unpacks it as it arrives.

See also: `extraction`, what may be unpacked.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

from iris.client.files.extraction import OnReplace, extract
from iris.client.http.transport import BROKEN, Channel, HttpRequest, Transport, in_path

_SILENCE_S = 60.0
_READ_BYTES = 1 << 18


def fetch(
    transport: Transport,
    task: str,
    directory: Path,
    attempt: int | None,
    on_read: Callable[[int, int], None] | None = None,
    on_replace: OnReplace | None = None,
) -> int:
    """Unpack an artifact below a directory, which is made; returns the number of files.

    Args:
        attempt: None: the last one. on_read: called with the bytes that have arrived, and of all.
        on_replace: see `extract`.

    Raises Problem, Unreachable, InvalidArchive, OSError.
    """
    request = HttpRequest("GET", f"/v1/tasks/{in_path(task)}/artifact", {"attempt": attempt})
    try:
        channel = transport.open(request, _SILENCE_S)
    except BROKEN as error:
        raise transport.unreachable(error) from error
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with gzip.GzipFile(
            fileobj=io.BufferedReader(Body(transport, channel, on_read), _READ_BYTES)
        ) as packed:
            return extract(packed, directory, on_replace)
    finally:
        channel.interrupt()
        channel.close()


class Body(io.RawIOBase):
    """The body of a response as a file; one that breaks off raises Unreachable, because it is not
    this machine's.
    """

    def __init__(
        self, transport: Transport, channel: Channel, on_read: Callable[[int, int], None] | None
    ) -> None:
        self._transport = transport
        self._response = channel.response
        self._on_read = on_read
        self._size = int(channel.response.getheader("Content-Length") or 0)
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            count = self._response.readinto(buffer)
        except BROKEN as error:
            raise self._transport.unreachable(error) from error
        self._read += count
        if not count and self._read < self._size:
            raise self._transport.unreachable(
                EOFError(f"the connection ended after {self._read} bytes")
            )
        if self._on_read is not None:
            self._on_read(self._read, self._size)
        return count
