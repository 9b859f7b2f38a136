"""The running attempts, on disk, for the next worker process. Written in batches; nothing waits for a write.

It survives the end of this process, not of the host, with which the processes end too. A torn last record counts as not
written. Out of scope: whether those processes still live (adopt).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from iris_core import codec
from iris_core.messages import AttemptRef, Stage
from iris_core.spec import Probe
from iris_worker.process.limits import Limits

COMPACT_BYTES = 4 * 1024 * 1024
"""A longer file is rewritten without obsolete records."""
_LENGTH = 4


class StoredProbe(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How an attempt is probed.

    ``env`` and ``limits``: of the probe's command, if it is one. ``serves``: the name of the port of requests.
    ``settle_ms``: of the route.
    """

    probe: Probe
    serves: str = ""
    env: dict[str, str] = {}
    limits: Limits = ()
    settle_ms: int = 0


class Started(msgspec.Struct, frozen=True, array_like=True, tag="started", gc=False):
    """An attempt's first process: the interval (monotonic time of this boot) in which it was started, its slot, its
    ports by name.
    """

    ref: AttemptRef
    pid: int
    slot: int
    after_s: float
    before_s: float
    at_ms: int
    timeout_ms: int | None
    ports: dict[str, int] = {}
    probe: StoredProbe | None = None


class Over(msgspec.Struct, frozen=True, array_like=True, tag="over", gc=False):
    """An attempt has ended, with the end to report."""

    stage: Stage


class Read(msgspec.Struct, frozen=True, array_like=True, tag="read", gc=False):
    """Its output up to these positions is stored."""

    ref: AttemptRef
    out: int
    err: int


class Gone(msgspec.Struct, frozen=True, array_like=True, tag="gone", gc=False):
    """The ends of these attempts are acknowledged, so their records are obsolete."""

    refs: tuple[AttemptRef, ...]


class Boot(msgspec.Struct, frozen=True, array_like=True, tag="boot", gc=False):
    """The first record: process ids and times below are of this boot of the host."""

    boot: str


ProcessRecord = Started | Over | Read | Gone | Boot


@dataclass(slots=True)
class StoredProcess:
    """The records of one attempt.

    ``reused``: its slot was given to a later attempt, so its output is stored.
    """

    started: Started
    positions: tuple[int, int] = (0, 0)
    over: Stage | None = None
    reused: bool = False

    def records(self) -> Iterator[ProcessRecord]:
        yield self.started
        if any(self.positions):
            yield Read(self.started.ref, *self.positions)
        if self.over is not None:
            yield Over(self.over)


class ProcessStore:
    """The file and its contents. Raises OSError when the disk fails."""

    def __init__(self, path: Path, boot: str) -> None:
        self._path = path
        self._boot = boot
        self._entries: dict[AttemptRef, StoredProcess] = {}
        self._pending: list[bytes] = []
        self._size = 0
        self._fd = -1

    def recover(self) -> dict[AttemptRef, StoredProcess]:
        """What the previous worker process left; begins a new file. Empty after a reboot of the host."""
        boot, entries = read(self._path)
        self._entries = dict(entries) if boot == self._boot else {}
        left = entries if boot == self._boot else {ref: e for ref, e in entries.items() if e.over is not None}
        self._compact()
        return left

    def started(self, record: Started) -> None:
        self._entries[record.ref] = StoredProcess(record)
        self._add(record)

    def over(self, stage: Stage) -> None:
        entry = self._entries.get(stage.ref)
        if entry is not None:
            entry.over = stage
            self._add(Over(stage))

    def read_up_to(self, positions: Iterable[tuple[AttemptRef, int, int]]) -> None:
        for ref, out, err in positions:
            entry = self._entries.get(ref)
            if entry is not None:
                entry.positions = (out, err)
                self._add(Read(ref, out, err))

    def gone(self, refs: Iterable[AttemptRef]) -> None:
        known = tuple(ref for ref in refs if self._entries.pop(ref, None) is not None)
        if known:
            self._add(Gone(known))

    def flush(self) -> None:
        """Write the new records, all or none; what could not be written is kept for the next call.

        Raises OSError.
        """
        if not self._pending:
            return
        data = b"".join(self._pending)
        before = os.fstat(self._fd).st_size
        try:
            if os.write(self._fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(self._fd, before)
            raise
        self._pending.clear()
        self._size += len(data)
        if self._size > COMPACT_BYTES:
            self._compact()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _add(self, record: ProcessRecord) -> None:
        self._pending.append(frame(record))

    def _compact(self) -> None:
        """Write the records that are not obsolete into a new file, and replace the old one."""
        records: list[ProcessRecord] = [Boot(self._boot)]
        for entry in self._entries.values():
            records.extend(entry.records())
        new = self._path.with_suffix(".new")
        data = b"".join(map(frame, records))
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.rename(new, self._path)
        except OSError:
            os.close(fd)
            raise
        self.close()
        self._fd, self._size = fd, 0


def frame(record: ProcessRecord) -> bytes:
    data = codec.pack(record)
    return len(data).to_bytes(_LENGTH, "big") + data


def read(path: Path) -> tuple[str, dict[AttemptRef, StoredProcess]]:
    """The boot in which a process store was written, and its entries; nothing when the file is absent."""
    entries: dict[AttemptRef, StoredProcess] = {}
    slots: dict[int, StoredProcess] = {}
    boot = ""
    for record in _records(path):
        if isinstance(record, Boot):
            boot = record.boot
        elif isinstance(record, Started):
            if record.slot in slots:
                slots[record.slot].reused = True
            entries[record.ref] = slots[record.slot] = StoredProcess(record)
        elif isinstance(record, Gone):
            for ref in record.refs:
                entries.pop(ref, None)
        elif isinstance(record, Read):
            if record.ref in entries:
                entries[record.ref].positions = (record.out, record.err)
        elif record.stage.ref in entries:
            entries[record.stage.ref].over = record.stage
    return boot, entries


def _records(path: Path) -> Iterator[ProcessRecord]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    at = 0
    while at + _LENGTH <= len(data):
        end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "big")
        try:
            yield codec.unpack(data[at + _LENGTH : end], ProcessRecord)  # type: ignore[arg-type]
        except codec.Undecodable:
            return
        at = end
