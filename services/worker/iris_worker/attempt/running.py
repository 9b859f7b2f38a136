"""One attempt on this host with all that it holds, and the attempts together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from iris_core.messages.gateway_worker import CallResult
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, LiveUsage
from iris_worker.attempt.builds.store import EnvironmentStore
from iris_worker.attempt.calls.result import LARGE, is_stored, read_result
from iris_worker.attempt.notices import Notices
from iris_worker.attempt.probes.prober import Prober
from iris_worker.attempt.slots.ports import PortUse
from iris_worker.attempt.slots.workspaces import Workspace
from iris_worker.host.devices import Devices
from iris_worker.launcher.records.records import (
    Exit,
    Measured,
    Started,
    StartProcess,
    StoredContainer,
)


@dataclass(frozen=True, slots=True)
class HostUse:
    """What of this host attempts hold."""

    ports: PortUse
    devices: Devices
    environments: EnvironmentStore
    prober: Prober
    notices: Notices


@dataclass(slots=True, eq=False)
class RunningAttempt:
    """An attempt from its directory until its end is reported.

    Attributes:
        launched: its own process was requested, so it is no longer prepared only.
        starting: the request that the launcher has not answered. alive: it has a process, or is
            being started.
        container: that its process is the client of.
        on_build: called with the exit of the process that builds its environment; None while none
            does.
        template: the key of the template that it is cloned from; empty: it is a fresh process.
            fresh: why it is, for a person, when it was to be cloned.
        interpreter: by which other one than `python` its call is run, for a person; empty: none.
        terminal: whether it reads and writes one. on_exit: called with its exit, for whoever reads
            that.
        pid: of its process, 0 before that is there.
        blamed: its exit, when that is known before its process has ended.
        probe: the number of the command that probed it last.
        ended: its end, which is reported when its output is stored. result: that of a call.
        needs: what of this host its start uses that others do not.
        since_s: when it ended. left: the result of a call as that left it, once it was read.
        has_sent_result: the result of a call came with its exit, not as a file.
    """

    slot: Workspace
    use: HostUse
    launched: bool = False
    starting: Started | None = None
    alive: bool = False
    container: StoredContainer | None = None
    on_build: Callable[[Exit], None] | None = None
    template: str = ""
    fresh: str = ""
    interpreter: str = ""
    terminal: bool = False
    on_exit: Callable[[Exit], None] | None = None
    pid: int = 0
    blamed: Exit | None = None
    usage: LiveUsage | None = None
    probe: int = 0
    ended: Ended | None = None
    result: CallResult | None = None
    since_s: float = 0.0
    left: bytes | None = None
    has_sent_result: bool = False
    needs: frozenset[str] = frozenset()

    @property
    def ref(self) -> AttemptRef:
        return self.slot.ref

    def leaves_output(self, exit_: Exit) -> bool:
        """Whether its output directory is to be stored: its job's, or that of the large result of a
        call.
        """
        slot = self.slot
        if slot.call:
            self.left = exit_.result or read_result(slot.workdir)
            self.has_sent_result = bool(exit_.result)
        if self.left and not slot.output and is_stored(self.left):
            slot.output = LARGE
        return bool(slot.output) and not exit_.error

    @property
    def environment(self) -> str:
        """The directory of its environment in the store; empty: it has none."""
        return self.use.environments.used_by(self.ref)

    def release(self, now_s: float) -> None:
        """Nothing of it runs: others may have its ports, devices and environment. Its slot is free
        when its output is stored.
        """
        self.use.prober.end(self.ref)
        self.use.notices.end(self.ref)
        self.use.ports.free(self.ref, now_s)
        self.use.devices.free(self.ref)
        self.use.environments.release(self.ref)
        self.usage = None
        self.probe = 0


@dataclass(slots=True)
class RunningAttempts:
    """The attempts of this host that have a directory, by reference.

    Attributes:
        starting: how many the launcher has not answered for. alive: how many have a process, or are
            being started.
    """

    by_ref: dict[AttemptRef, RunningAttempt] = field(default_factory=dict)
    starting: int = 0
    alive: int = 0

    def add(self, attempt: RunningAttempt) -> RunningAttempt:
        self.by_ref[attempt.ref] = attempt
        return attempt

    def prepared(self, ref: AttemptRef) -> RunningAttempt | None:
        """An attempt whose own process was not requested yet; None for others."""
        found = self.by_ref.get(ref)
        return found if found is not None and not found.launched and found.ended is None else None

    def living(self, ref: AttemptRef) -> RunningAttempt | None:
        """An attempt that has a process, or is being started; None for others."""
        found = self.by_ref.get(ref)
        return found if found is not None and found.alive else None

    def all_living(self) -> Iterator[RunningAttempt]:
        return (attempt for attempt in self.by_ref.values() if attempt.alive)

    def requested(self, attempt: RunningAttempt, request: StartProcess) -> None:
        """The launcher is to start a process of it."""
        attempt.starting = request.record
        attempt.alive = True
        if request.record.container is not None:
            attempt.container = request.record.container
        self.starting, self.alive = self.starting + 1, self.alive + 1

    def adopted(self, attempt: RunningAttempt) -> None:
        """A process of an earlier worker process runs already."""
        attempt.launched = attempt.alive = True
        self.add(attempt)
        self.alive += 1

    def answered(self, attempt: RunningAttempt) -> Started | None:
        """The launcher has answered the request that is returned; None: it had before."""
        request = attempt.starting
        attempt.starting = None
        self.starting -= request is not None
        return request

    def exited(self, attempt: RunningAttempt) -> None:
        """Its process has ended, and is not waited for any more."""
        attempt.alive = False
        self.alive -= 1

    def on_measured(self, measured: Measured) -> None:
        for live in measured.usage:
            if (attempt := self.living(live.ref)) is not None:
                attempt.usage = live

    def late(self, before_s: float) -> list[RunningAttempt]:
        """Those that have ended before ``before_s`` and wait for their output."""
        return [
            one for one in self.by_ref.values() if one.ended is not None and one.since_s < before_s
        ]

    def drop(self, attempt: RunningAttempt) -> None:
        self.by_ref.pop(attempt.ref, None)
