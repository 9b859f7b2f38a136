"""The processes of attempts, and what runs beside them, as the launcher knows them. Types."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import TaskUsage
from iris_worker.launcher.cgroups.files import Cgroup
from iris_worker.launcher.cgroups.group import Group
from iris_worker.launcher.kernel.event_loop import DelayedCall
from iris_worker.launcher.records.records import Exit, SpawnCommand, Started

GIVE_UP_ROUNDS = 500


@dataclass(slots=True, eq=False)
class Process:
    """One attempt's first process.

    Attributes:
        started: its record, as it was before the start.
        workdir: the attempt's directory.
        group: its control group; None without.
        cloned: from a template, so it shares memory with that. template: its key.
        before: what it had used when this attempt began, of a process that has made calls of
            others; None: of another.
        link: where the only call of a clone sends its result; None: it has ended, or is another
            process.
        begun: it has its call, as far as that is known; else nothing of the attempt has run.
        terminal: the end that is not its own of the terminal that it reads and writes; -1: it has
            none. seen: whether a worker has that too.
        error: why it has not become its program, or why it was ended.
        strays: processes of this attempt that left its group, and when each was started, in ticks
            since boot.
        commands: what runs beside it, probes and what people execute, by process group, until all
            of that is gone.
        sampled: the most memory it was seen to hold. over_bytes: what all of the attempt held when
            a sample found that it was over its limit; 0: none has.
        rounds: how often what it has left was killed.
        terminated: it was sent its stop signal, and ``killer`` will send KILL; before that
            ``killer`` sends the signal. in_grace: what is left of its group may run on until
            then, also after its first process has ended.
    """

    started: Started
    workdir: str
    pid: int
    pidfd: int = -1
    group: Group | None = None
    cloned: bool = False
    template: str = ""
    before: TaskUsage | None = None
    link: socket.socket | None = None
    begun: bool = True
    terminal: int = -1
    seen: bool = False
    exit: Exit | None = None
    error: Exception | None = None
    strays: dict[int, int] = field(default_factory=dict)
    commands: dict[int, SpawnedCommand] = field(default_factory=dict)
    sampled: int = 0
    over_bytes: int = 0
    rounds: int = 0
    terminated: bool = False
    killer: DelayedCall | None = None
    in_grace: bool = False

    @property
    def ref(self) -> AttemptRef:
        return self.started.ref

    @property
    def slot(self) -> int:
        return self.started.slot

    @property
    def cgroup(self) -> Cgroup | None:
        return self.group.limits if self.group is not None else None

    @property
    def is_given_up(self) -> bool:
        """Whether what it has left cannot be killed."""
        return self.rounds > GIVE_UP_ROUNDS


@dataclass(slots=True, eq=False)
class SpawnedCommand:
    """A process group beside an attempt, of which the first process is ``pid``.

    ``stdio``: its descriptors, which stay open here until it is its program. ``rounds``: how often
    the rest of it was killed since its first process has ended.
    """

    request: SpawnCommand
    process: Process
    pid: int
    stdio: list[int]
    group: Group | None = None
    rounds: int = 0


@dataclass(slots=True)
class KnownProcesses:
    """Those of one launcher: of attempts that have not ended, and the commands beside them."""

    by_ref: dict[AttemptRef, Process] = field(default_factory=dict)
    by_pid: dict[int, Process] = field(default_factory=dict)
    by_slot: dict[int, list[Process]] = field(default_factory=dict)
    commands: dict[int, SpawnedCommand] = field(default_factory=dict)

    def add(self, process: Process) -> None:
        self.by_pid[process.pid] = self.by_ref[process.ref] = process
        self.by_slot.setdefault(process.slot, []).append(process)

    def remove(self, process: Process) -> None:
        del self.by_pid[process.pid], self.by_ref[process.ref]
        self.by_slot[process.slot].remove(process)
        if not self.by_slot[process.slot]:
            del self.by_slot[process.slot]
