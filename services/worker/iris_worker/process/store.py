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
"""A file that is longer is begun anew, with what still matters."""
_LENGTH = 4


class StoredProbe(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How an attempt is probed. ``env`` and ``limits``: of the command that probes it, if one does.

    ``serves``: the name of the port that gets requests.
    """

    probe: Probe
    serves: str = ""
    env: dict[str, str] = {}
    limits: Limits = ()


class Started(msgspec.Struct, frozen=True, array_like=True, tag="started", gc=False):
    """An attempt's first process: between which steady times (of this boot) it was started, its slot's number, and
    its ports by name.
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
    """It is over, and this is what is to be reported of it."""

    stage: Stage


class Read(msgspec.Struct, frozen=True, array_like=True, tag="read", gc=False):
    """Its output up to these positions is stored."""

    ref: AttemptRef
    out: int
    err: int


class Gone(msgspec.Struct, frozen=True, array_like=True, tag="gone", gc=False):
    """Their ends are acknowledged: nothing about them matters any more."""

    refs: tuple[AttemptRef, ...]


class Boot(msgspec.Struct, frozen=True, array_like=True, tag="boot", gc=False):
    """The first record: process ids and times below are of this boot of the host."""

    boot: str


ProcessRecord = Started | Over | Read | Gone | Boot


@dataclass(slots=True)
class StoredProcess:
    """What the process store says of one attempt.

    ``reused``: its slot has gone to a later one, so its output was sent.
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
    """The file, and what it says. Raises OSError when the disk does not do its part."""

    def __init__(self, path: Path, boot: str) -> None:
        self._path = path
        self._boot = boot
        self._entries: dict[AttemptRef, StoredProcess] = {}
        self._pending: list[bytes] = []
        self._size = 0
        self._fd = -1

    def recover(self) -> dict[AttemptRef, StoredProcess]:
        """What the worker before left, and begin a file of our own. Empty when the host was started anew since."""
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
        """Hand what was noted to the kernel, whole or not at all; what could not be written is kept for the next time.

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
        """Write only what still matters into a new file, and put it in the old one's place."""
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
    """The boot a process store was written in and its entries; nothing for a file that is not there."""
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
