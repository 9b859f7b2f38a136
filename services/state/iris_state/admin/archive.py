"""The file of a backup: a magic, then records with a checksum each, the last of them with a digest
of all before it.

Written under a temporary name and renamed when it is complete and on disk. Out of scope: the
meaning of records (`backup`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

import msgspec

from iris_core import codec

VERSION = 1
_MAGIC = b"IRISBKUP"
_HEAD = struct.Struct("<8sH")
_FRAME = struct.Struct("<QI")
_END = "end"


class BadArchive(Exception):
    """The file is not a backup, was written by a later release, or is damaged."""


class DamagedArchive(BadArchive):
    """Its bytes are not those that were written."""


class Item(msgspec.Struct, frozen=True, array_like=True):
    """One record. ``kind``: about, snapshot, bundle, notice, event, log. ``name``: of an object, or a
    subject. ``headers``: of a message; of a bundle its owners.
    """

    kind: str
    name: str
    data: bytes
    headers: dict[str, str] = {}
    sequence: int = 0


class Writer:
    """Writes a backup to ``path``, readable by its owner only; an unfinished file is deleted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.with_name(f".{path.name}.part")
        self._digest = hashlib.sha256()
        self._file: IO[bytes] | None = None
        self.items = 0

    def __enter__(self) -> Writer:
        self._file = os.fdopen(
            os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
        )
        self._write(_HEAD.pack(_MAGIC, VERSION))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._file is not None
        if kind is None:
            self.add(Item(_END, str(self.items), self._digest.digest()))
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        if kind is None:
            self._draft.replace(self._path)
        else:
            with contextlib.suppress(FileNotFoundError):
                self._draft.unlink()

    def add(self, item: Item) -> None:
        body = codec.pack(item)
        self._write(_FRAME.pack(len(body), zlib.crc32(body)) + body)
        self.items += 1

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        self._digest.update(data)
        self._file.write(data)


def read(path: Path) -> Iterator[Item]:
    """Every record, in order; the file is intact when the iteration ends without BadArchive. Raises
    OSError.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size or not head.startswith(_MAGIC):
            raise DamagedArchive(f"{path} is not a backup of Iris, or its beginning is damaged")
        _, version = _HEAD.unpack(head)
        if version > VERSION:
            raise BadArchive(
                f"{path} has version {version}, this release knows up to {VERSION}; use a newer one"
            )
        digest.update(head)
        count = 0
        end = path.stat().st_size
        while True:
            at = file.tell()
            frame = file.read(_FRAME.size)
            size, checksum = _FRAME.unpack(frame) if len(frame) == _FRAME.size else (0, 0)
            body = file.read(size) if at + size <= end else b""
            if not size or len(body) != size or zlib.crc32(body) != checksum:
                raise DamagedArchive(
                    f"{path} is damaged at byte {at}, record {count}: its checksum does not match"
                )
            item = codec.unpack(body, Item)
            if item.kind == _END:
                if item.data != digest.digest() or item.name != str(count) or file.read(1):
                    raise DamagedArchive(f"{path} is damaged: its digest does not match")
                return
            digest.update(frame + body)
            count += 1
            yield item
