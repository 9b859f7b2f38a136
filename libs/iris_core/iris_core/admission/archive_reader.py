"""Reads an archive for `tarfile` in bounded memory: headers may claim gigabytes, and follow one
another. Pure.

Source: docs/design/reliability.md#security. Out of scope: names and links (archive_paths).
"""

from __future__ import annotations

import io
from typing import Protocol

from iris_core.admission.archive_paths import InvalidArchive

_PIECE = 1 << 20
_HEADERS = 1 << 20
_HEADERS_EACH = 4096
"""The bytes of headers that an archive may have, and how many more for each entry: `tarfile` keeps
them.
"""


class ByteSource(Protocol):
    """What can be read, from its beginning on."""

    def read(self, size: int = -1, /) -> bytes: ...


class ArchiveReader(io.RawIOBase):
    """A file that is read forward only, and no further than the entries so far allow."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._at = 0
        self._left = _HEADERS

    def allow(self, size: int) -> None:
        """An entry with so many bytes of content was found."""
        self._left += max(0, size) + _HEADERS_EACH

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= self._left:
            raise InvalidArchive("broken archive: headers of megabytes")
        self._left -= size
        data = self._source.read(size)
        self._at += len(data)
        return data

    def seek(self, position: int, whence: int = 0, /) -> int:
        """Go forward to a position from the beginning. Raises InvalidArchive."""
        if whence or position < self._at:
            raise InvalidArchive("broken archive: an entry before another one")
        while self._at < position:
            data = self._source.read(min(_PIECE, position - self._at))
            if not data:
                break
            self._at += len(data)
        return self._at

    def tell(self) -> int:
        return self._at
