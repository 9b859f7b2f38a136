"""What a launcher and its worker know of the attempts, from the records between them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from iris_core.messages.gateway_worker import CallResult
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import GivenNotice, Stage
from iris_worker.launcher.records.records import (
    Boot,
    Exit,
    Exited,
    Gone,
    NoticeRecord,
    Over,
    Read,
    Spawned,
    Started,
)


@dataclass(slots=True)
class StoredProcess:
    """The records of one attempt.

    ``reused``: its slot was given to a later attempt, so its output is stored. ``result``: of a
    call that is over.
    """

    started: Started
    positions: tuple[int, int] = (0, 0)
    exit: Exit | None = None
    over: Stage | None = None
    result: CallResult | None = None
    reused: bool = False
    notices: tuple[GivenNotice, ...] = ()

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs. Its container may, when only its process has ended."""
        return self.over is not None or (self.exit is not None and self.started.container is None)

    @property
    def is_build(self) -> bool:
        """Whether the process builds the attempt's environment."""
        return self.started.environment is not None and self.started.environment.building

    def records(self) -> Iterator[Started | NoticeRecord | Exited | Over | Read]:
        yield self.started
        yield from (NoticeRecord(self.started.ref, notice) for notice in self.notices)
        if any(self.positions):
            yield Read(self.started.ref, *self.positions)
        if self.exit is not None:
            yield Exited(self.started.ref, self.exit)
        if self.over is not None:
            yield Over(self.over, self.result)


@dataclass(slots=True)
class ProcessTable:
    """The attempts whose ends are not acknowledged, oldest first."""

    entries: dict[AttemptRef, StoredProcess] = field(default_factory=dict)
    boot: str = ""
    _slots: dict[int, StoredProcess] = field(default_factory=dict)

    def apply(self, record: object) -> None:
        """Enter a record; what is said of an unknown attempt is ignored."""
        if (enter := _ENTER.get(type(record))) is not None:
            enter(self, record)

    def _started(self, record: Started) -> None:
        if (before := self._slots.get(record.slot)) is not None and not record.early:
            before.reused = True
        self.entries[record.ref] = self._slots[record.slot] = StoredProcess(record)

    def _spawned(self, record: Spawned) -> None:
        if (entry := self.entries.get(record.ref)) is not None:
            pid = record.pid
            after_s = record.after_s
            before_s = record.before_s
            at_ms = record.at_ms
            entry.started = structs.replace(
                entry.started,
                pid=pid,
                after_s=after_s,
                before_s=before_s,
                at_ms=at_ms,
                cgroup=record.cgroup,
            )

    def _noticed(self, record: NoticeRecord) -> None:
        if (entry := self.entries.get(record.ref)) is not None:
            entry.notices = (*entry.notices, record.notice)

    def _exited(self, record: Exited) -> None:
        if (entry := self.entries.get(record.ref)) is not None:
            entry.exit = record.exit

    def _over(self, record: Over) -> None:
        if (entry := self.entries.get(record.stage.ref)) is not None:
            entry.over = record.stage
            entry.result = record.result

    def _read(self, record: Read) -> None:
        if (entry := self.entries.get(record.ref)) is not None:
            entry.positions = (record.out, record.err)

    def _gone(self, record: Gone) -> None:
        for ref in record.refs:
            self.entries.pop(ref, None)

    def _boot(self, record: Boot) -> None:
        self.boot = record.boot


_ENTER: dict[type, Callable[[ProcessTable, Any], None]] = {
    Started: ProcessTable._started,
    Spawned: ProcessTable._spawned,
    NoticeRecord: ProcessTable._noticed,
    Exited: ProcessTable._exited,
    Over: ProcessTable._over,
    Read: ProcessTable._read,
    Gone: ProcessTable._gone,
    Boot: ProcessTable._boot,
}
