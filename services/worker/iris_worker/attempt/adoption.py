"""Adopts attempts of the previous worker process: those that run, and ends that were not reported.

Out of scope: which there are (the launcher), what happens to those that run (executor).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from iris_core.messages.message import AttemptRef
from iris_worker.agent.agent import Agent
from iris_worker.attempt.ends import INTERRUPTED, describe, was_started
from iris_worker.attempt.finish import Finisher
from iris_worker.attempt.images.containers import Containers
from iris_worker.attempt.output.logs import OutputLogs
from iris_worker.attempt.running import HostUse, RunningAttempt, RunningAttempts
from iris_worker.attempt.slots.workspaces import Workspaces
from iris_worker.clock import HostClock
from iris_worker.launcher.records.process_table import StoredProcess
from iris_worker.launcher.records.records import Started


@dataclass(frozen=True, slots=True)
class Adoption:
    """Of the attempts of this host, once as the worker starts."""

    agent: Agent
    clock: HostClock
    use: HostUse
    attempts: RunningAttempts
    containers: Containers
    logs: OutputLogs
    slots: Workspaces
    finisher: Finisher

    def adopt(
        self,
        entries: Mapping[AttemptRef, StoredProcess],
        runtime: str,
        watch: Callable[[RunningAttempt, StoredProcess], None],
    ) -> tuple[tuple[Started, ...], int]:
        """Returns those that run, each of which ``watch`` was called with, and how many have
        ended.
        """
        ended = {ref: entry for ref, entry in entries.items() if entry.has_ended}
        alive = {ref: entry for ref, entry in entries.items() if ref not in ended}
        running = tuple(entry.started for entry in alive.values())
        self.slots.begin(
            {entry.started.slot for entry in entries.values() if entry.over is None},
            {entry.started.slot for entry in ended.values() if not entry.reused},
        )
        self.use.environments.begin(
            (one.ref, one.environment.directory) for one in running if one.environment
        )
        self.containers.begin(running, runtime)
        for ref, entry in alive.items():
            watch(self._begin(ref, entry), entry)
        last = {entry.started.below: ref for ref, entry in entries.items()}
        for ref, entry in ended.items():
            self._end(
                ref,
                entry,
                reusable=last[entry.started.below] != ref and bool(entry.started.directory),
            )
        return running, len(ended)

    def _begin(self, ref: AttemptRef, entry: StoredProcess) -> RunningAttempt:
        """An attempt whose process runs."""
        attempt = self._open(ref, entry)
        started = entry.started
        attempt.terminal = started.terminal
        attempt.pid = started.pid
        attempt.container = started.container
        self.attempts.adopted(attempt)
        self.agent.adopt(
            was_started(entry),
            settle_ms=started.probe.settle_ms if started.probe is not None else 0,
        )
        self.use.ports.hold(ref, started.ports.values())
        self.use.devices.hold(ref, started.devices)
        return attempt

    def _end(self, ref: AttemptRef, entry: StoredProcess, *, reusable: bool) -> None:
        """Report an end with the registration, and send the output that is not stored yet.
        ``reusable``: as of `_open`.
        """
        self.use.ports.hold(ref, entry.started.ports.values())
        self.use.ports.free(ref, self.clock.steady_s())
        stage = entry.over
        if entry.reused and stage is not None:
            self.agent.adopt(was_started(entry), stage)
            return
        attempt = self.attempts.add(self._open(ref, entry, reusable=reusable))
        slot = attempt.slot
        if (
            stage is None
            and entry.exit is not None
            and not entry.is_build
            and attempt.leaves_output(entry.exit)
        ):
            self.agent.adopt(was_started(entry))
            self.finisher.store(attempt, describe(slot, entry.exit))
            return
        if stage is None and entry.exit is not None:
            stage = self.finisher.over(
                attempt, INTERRUPTED if entry.is_build else describe(slot, entry.exit)
            )
        assert stage is not None
        assert stage.ended is not None
        self.agent.adopt(was_started(entry), stage)
        self.finisher.finish(attempt, stage.ended)

    def _open(
        self, ref: AttemptRef, entry: StoredProcess, *, reusable: bool = False
    ) -> RunningAttempt:
        """An attempt of an earlier worker process; its output is read from where that stored it.
        ``reusable``: a later one has its directories, because it has left nothing there.
        """
        slot = self.slots.open(ref, entry.started.slot, entry.started.directory, reusable=reusable)
        if entry.over is None:
            self.slots.restore(slot)
        slot.output = entry.started.output
        slot.user = entry.started.user
        slot.call = entry.started.call
        attempt = RunningAttempt(slot, self.use, result=entry.result)
        self.logs.follow(slot, self.clock.steady_s(), entry.positions)
        return attempt
