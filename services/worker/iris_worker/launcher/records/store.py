"""The attempts and their processes, on disk, for the next launcher; a launcher that lives keeps
them in memory too.

It survives the end of this process, not of the host, with which the processes end too, so nothing
is synced. A torn last record counts as not written. Out of scope: whether those processes still
    live (adopt).
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from iris_core import codec
from iris_worker.launcher.records.frames import frame, take_frames, with_length
from iris_worker.launcher.records.process_table import ProcessTable
from iris_worker.launcher.records.records import Boot, ProcessRecord

COMPACT_BYTES = 4 * 1024 * 1024
"""A longer file is rewritten without obsolete records."""


class ProcessStore:
    """The file and its contents.

    Raises OSError when the disk fails.
    """

    def __init__(self, path: Path, boot: str) -> None:
        self.table = ProcessTable()
        self._path = path
        self._boot = boot
        self._pending: list[bytes] = []
        self._size = self._compact_at = 0
        self._fd = -1

    def recover(self) -> None:
        """Read what the previous launcher left, and begin a new file. After a reboot of the host
        only ends are left.
        """
        found = read(self._path)
        if found.boot != self._boot:
            for ref, entry in list(found.entries.items()):
                if entry.over is None and entry.exit is None:
                    del found.entries[ref]
        self.table = found
        self._compact()

    def add(self, record: ProcessRecord, encoded: bytes = b"") -> bytes:
        """Enter a record, to be written by the next `flush`; returns it as it is written."""
        self.table.apply(record)
        data = with_length(encoded or codec.pack(record))
        self._pending.append(data)
        return data

    def flush(self) -> None:
        """Write the new records, all or none; what could not be written is kept for the next call.

        Raises OSError.
        """
        if not self._pending:
            return
        data = b"".join(self._pending)
        try:
            if os.write(self._fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._pending.clear()
        self._size += len(data)
        if self._size > self._compact_at:
            self._compact()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _compact(self) -> None:
        """Write the records that are not obsolete into a new file, and replace the old one."""
        records: list[ProcessRecord] = [Boot(self._boot)]
        for entry in self.table.entries.values():
            records.extend(entry.records())
        new = self._path.with_suffix(".new")
        data = b"".join(map(frame, records))
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.rename(new, self._path)
        except OSError:
            os.close(fd)
            raise
        self.close()
        self._fd, self._size = fd, len(data)
        self._compact_at = len(data) + COMPACT_BYTES


def read(path: Path) -> ProcessTable:
    """What a process store holds; nothing when the file is absent."""
    table = ProcessTable()
    with contextlib.suppress(FileNotFoundError, codec.Undecodable):
        for data in take_frames(bytearray(path.read_bytes())):
            table.apply(codec.unpack(data, ProcessRecord))  # type: ignore[arg-type]
    return table
