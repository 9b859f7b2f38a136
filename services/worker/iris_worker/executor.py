"""Executes the agent's instructions: processes, workspaces, output and the process store.

Nothing here waits. Out of scope: which instructions (agent), and when (the shell).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from iris_core.messages import AttemptRef, Ended, Stage, TaskTemplate
from iris_core.states import Cause, KernelStatus
from iris_worker import environment, host
from iris_worker.agent import Agent, LocalAttempt
from iris_worker.clock import HostClock
from iris_worker.output.logs import Batch, OutputLogs
from iris_worker.output.tail import last_lines
from iris_worker.ports import PortUse
from iris_worker.probes.prober import Prober
from iris_worker.process import adopt
from iris_worker.process.limits import Limits, memory_limits
from iris_worker.process.runner import Exit, Loop, Runner
from iris_worker.process.spawn import NotRunnable
from iris_worker.process.store import ProcessStore, Started, StoredProbe, StoredProcess
from iris_worker.settings import WorkerSettings
from iris_worker.workspaces import ERROR_FILE, Workspace, Workspaces, read_error_file

_JOBS_KEPT = 100
"""Jobs whose environment is cached, of up to 256 KiB each."""
_SIGNALS = {9: " (SIGKILL: perhaps out of memory)", 11: " (SIGSEGV)", 6: " (SIGABRT)", 15: " (SIGTERM)"}


@dataclass(slots=True)
class AttemptReport:
    """An attempt that has ended and whose output is not stored completely; its end is reported afterwards."""

    slot: Workspace
    ended: Ended
    since_s: float


class Executor:
    """Runs real processes.

    Args:
        prober: runs the probes of attempts.
        on_started: called with the seconds a start took.
        on_limited: called with the seconds until an attempt has passed its timeout.
        on_change: called at the end of each round in which there may be something to report.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        agent: Agent,
        clock: HostClock,
        loop: Loop,
        prober: Prober,
        on_started: Callable[[float], None],
        on_limited: Callable[[AttemptRef, float], None],
        on_change: Callable[[], None],
    ) -> None:
        root = settings.root
        worker = host.worker_id(settings)
        self.logs = OutputLogs(worker, settings.log_limits)
        self.slots = Workspaces(root)
        self.runner = Runner(loop, self.slots.attempts, self._on_over, self.flush)
        self.has_trash = False
        self.trouble = ""
        self._agent = agent
        self._clock = clock
        self._prober = prober
        self._on_started = on_started
        self._on_limited = on_limited
        self._on_change = on_change
        self._store = ProcessStore(root / "processes", adopt.boot_id())
        self._limit_memory = settings.limit_memory
        self._place = environment.Place(worker, settings.gateway_url, host.variables())
        self._shared: dict[int, dict[str, str]] = {}
        self._alive: set[int] = set()
        self._ports = PortUse()
        self._prepared: dict[AttemptRef, Workspace] = {}
        self._report: dict[AttemptRef, AttemptReport] = {}

    # ── restarts of the worker ──────────────────────────────────────────────────────────────────────────────────

    def recover(self) -> tuple[int, int]:
        """Adopt the attempts of the previous worker process; returns how many run, and how many have ended."""
        findings = adopt.look(self._store.recover(), self._clock.wall_ms())
        alive = {entry.started.slot for entry in findings.alive.values()}
        self.slots.begin(alive, {entry.started.slot for entry, _ in findings.ended.values() if not entry.reused})
        self.has_trash = True
        self._alive = alive
        for ref, entry in findings.alive.items():
            self._adopt(ref, entry)
        for ref, (entry, stage) in findings.ended.items():
            self._adopt_end(ref, entry, stage)
        self._store.flush()
        return len(findings.alive), len(findings.ended)

    def kill_orphans(self) -> int:
        """Kill processes of attempts that were not adopted; returns how many there were."""
        return adopt.kill_orphans(self.slots.attempts, self._alive)

    def _adopt(self, ref: AttemptRef, entry: StoredProcess) -> None:
        slot = self.slots.open(entry.started.slot)
        slot.ref = ref
        probe = entry.started.probe
        self._agent.adopt(was_started(ref, entry), settle_ms=probe.settle_ms if probe is not None else 0)
        self.logs.follow(slot, self._clock.steady_s(), entry.positions)
        self._ports.hold(ref, entry.started.ports.values())
        if entry.started.timeout_ms is not None:
            self._on_limited(ref, (entry.started.at_ms + entry.started.timeout_ms - self._clock.wall_ms()) / 1000)
        if not self.runner.adopt(slot, entry.started.pid):
            self._on_over(slot, Exit(known=False))
        elif probe is not None:
            self._probe(entry.started, probe, adopted=True)

    def _adopt_end(self, ref: AttemptRef, entry: StoredProcess, stage: Stage) -> None:
        """Report an end with the registration, and send the output that is not stored yet."""
        self._agent.adopt(was_started(ref, entry), stage)
        self._ports.hold(ref, entry.started.ports.values())
        self._ports.free(ref, self._clock.steady_s())
        if entry.over is None:
            self._store.over(stage)
        if not entry.reused and stage.ended is not None:
            slot = self.slots.open(entry.started.slot)
            slot.ref = ref
            self.logs.follow(slot, self._clock.steady_s(), entry.positions)
            self._finish(slot, stage.ended)

    # ── the agent's instructions ────────────────────────────────────────────────────────────────────────────────

    def launch(self, held: LocalAttempt) -> None:
        """Start an attempt's process. An error becomes the attempt's end, never an exception."""
        template = held.template
        if template is None:
            return
        began_s = self._clock.steady_s()
        try:
            slot = self._prepared.pop(held.ref, None) or self.slots.take(held.ref)
        except OSError as error:
            self._agent.on_ended(held.ref, cannot_start(error), self._clock.wall_ms())
            return
        self.logs.follow(slot, began_s)
        try:
            limits = memory_limits(template.resources) if self._limit_memory else ()
            check_coordinator_port(held)
            ports = self._take_ports(held.ref, template.ports)
            env = self._environment(held, template, slot, ports)
            pid = self.runner.start(slot, template.command, env, limits)
        except NotRunnable as error:
            with contextlib.suppress(OSError):  # the disk is full: the report names that too
                os.write(slot.err, f"iris: {error}\n".encode(errors="replace"))
            self._end(slot, Ended(Cause.EXITED, error.code, error=str(error)))
        except OSError as error:
            self._end(slot, cannot_start(error))
        else:
            now_s, now_ms = self._clock.steady_s(), self._clock.wall_ms()
            probe = stored_probe(template, env, limits)
            self._started(
                Started(held.ref, pid, slot.number, began_s, now_s, now_ms, template.timeout_ms, ports, probe)
            )

    def _started(self, started: Started) -> None:
        ref, now_ms = started.ref, started.at_ms
        self._store.started(started)
        self._agent.on_started(ref, now_ms)
        self._on_started(started.before_s - started.after_s)
        if started.timeout_ms is not None:
            self._on_limited(ref, started.timeout_ms / 1000)
        if started.probe is not None:
            self._probe(started, started.probe)

    def _probe(self, started: Started, stored: StoredProbe, adopted: bool = False) -> None:
        """Probe a process until it has ended."""
        probe, ports = stored.probe, started.ports
        start = partial(self.runner.start_probe, started.ref, probe.command, stored.env, stored.limits)
        serves = ports.get(stored.serves or probe.port, 0)
        self._prober.begin(started.ref, probe, ports.get(probe.port, 0), serves, start, started.before_s, adopted)

    def _take_ports(self, ref: AttemptRef, names: tuple[str, ...]) -> dict[str, int]:
        if not names:
            return {}
        now_s = self._clock.steady_s()
        ports = host.free_ports(names, lambda port: self._ports.rest_s(port, now_s))
        self._ports.hold(ref, ports.values())
        return ports

    def _environment(
        self, held: LocalAttempt, template: TaskTemplate, slot: Workspace, ports: dict[str, int]
    ) -> dict[str, str]:
        shared = self._shared.get(held.ref.job)
        if shared is None:
            if len(self._shared) >= _JOBS_KEPT:
                self._shared.clear()
            shared = self._shared[held.ref.job] = environment.common(self._place, template)
        env = environment.own(shared, held.ref, slot.workdir, f"{slot.workdir}/{ERROR_FILE}", ports)
        if held.gang is not None:
            env |= environment.gang_words(held.gang, held.ref.index)
        return env

    def kill(self, ref: AttemptRef, grace_ms: int, settle_ms: int) -> None:
        self.runner.stop(ref, grace_ms, settle_ms)

    def kill_all(self) -> None:
        """Kill all processes at once, without a grace period."""
        self.runner.kill_all()

    @property
    def running(self) -> int:
        """Attempts with a process that has not ended."""
        return self.runner.running

    def prepare(self, ref: AttemptRef) -> str:
        """The directory for an attempt's bundle. Raises OSError."""
        slot = self._prepared[ref] = self.slots.take(ref)
        return slot.workdir

    def discard(self, ref: AttemptRef) -> None:
        """Delete what was prepared for an attempt that will not start."""
        slot = self._prepared.pop(ref, None)
        if slot is not None:
            self._clean(slot)
            self.slots.give(slot, printed=False)

    # ── ends ────────────────────────────────────────────────────────────────────────────────────────────────────

    def reap(self) -> None:
        """Children have ended: collect their exits."""
        self.runner.reap()
        self.flush()

    def _on_over(self, slot: Workspace, exit_: Exit) -> None:
        self._end(slot, describe(slot, exit_))

    def _end(self, slot: Workspace, ended: Ended) -> None:
        """An attempt has ended: report it at once when it has no output, otherwise when its output is stored."""
        self._prober.end(slot.ref)
        self._ports.free(slot.ref, self._clock.steady_s())
        self._clean(slot)
        reported = self._agent.as_reported(slot.ref, ended)
        self._store.over(Stage(slot.ref, KernelStatus.TERMINATED, self._clock.wall_ms(), reported))
        self._finish(slot, ended)

    def _finish(self, slot: Workspace, ended: Ended) -> None:
        if self.logs.finish(slot.ref):
            self._agent.on_ended(slot.ref, ended, self._clock.wall_ms())
            self.slots.give(slot, printed=False)
        else:
            self._report[slot.ref] = AttemptReport(slot, ended, self._clock.steady_s())

    def _clean(self, slot: Workspace) -> None:
        try:
            self.has_trash |= self.slots.clean(slot, self._clock.wall_ms() * 1_000_000)
        except OSError as error:
            self.trouble = f"attempts: {error.strerror}"
            slot.broken = True

    def stored(self, batch: Batch) -> None:
        """A batch of output is stored: report the ends that waited for it."""
        self._store.read_up_to(self.logs.stored(batch))
        for tail in batch.ended:
            self._reported(tail.ref, tail.dropped)
        self.flush()

    def give_up_logs(self, before_s: float) -> int:
        """Report the ends that have waited for their output since before this time without it; returns how many."""
        late = [ref for ref, report in self._report.items() if report.since_s < before_s]
        for ref in late:
            self._reported(ref, self.logs.forget(ref))
        self.flush()
        return len(late)

    def _reported(self, ref: AttemptRef, dropped_bytes: int) -> None:
        report = self._report.pop(ref, None)
        if report is not None:
            ended = structs.replace(report.ended, dropped_bytes=dropped_bytes)
            self._agent.on_ended(ref, ended, self._clock.wall_ms())
            self.slots.give(report.slot, printed=True)

    def acknowledged(self, refs: Iterable[AttemptRef]) -> None:
        """Ends are committed: drop the attempts."""
        self._store.gone(refs)

    def flush(self) -> None:
        """End of a round: write the process store for the next worker process; what cannot be written is kept for the
        next round.
        """
        try:
            self._store.flush()
        except OSError as error:
            self.trouble = f"process store: {error.strerror}"
        else:
            self.trouble = ""
        self._on_change()

    def close(self) -> None:
        self._store.flush()
        self._store.close()
        self.runner.close()
        self.slots.close()


def describe(slot: Workspace, exit_: Exit) -> Ended:
    """An exit as the end in a report."""
    if not exit_.known:
        return Ended(Cause.WORKER_CRASHED, error=adopt.UNKNOWN, peak_rss_bytes=exit_.peak_rss_bytes)
    if exit_.code == 0:
        return Ended(Cause.EXITED, 0, peak_rss_bytes=exit_.peak_rss_bytes)
    error = read_error_file(slot.workdir)
    if not error and exit_.signal is not None:
        error = f"killed by signal {exit_.signal}{_SIGNALS.get(exit_.signal, '')}"
    return Ended(Cause.EXITED, exit_.code, exit_.signal, error, last_lines(slot.err), exit_.peak_rss_bytes)


def stored_probe(template: TaskTemplate, env: dict[str, str], limits: Limits) -> StoredProbe | None:
    """The probe of a route as stored for the next worker process; only a command needs the environment."""
    probe = template.probe
    if probe is None:
        return None
    stored = StoredProbe(probe, template.serves, settle_ms=template.settle_ms)
    if probe.kind != "command":
        return stored
    return structs.replace(stored, env={**env, environment.PROBE_VARIABLE: "1"}, limits=limits)


def was_started(ref: AttemptRef, entry: StoredProcess) -> Stage:
    """Record in the process store that an attempt was started, which comes before its end."""
    return Stage(ref, KernelStatus.RUNNING, entry.started.at_ms)


def check_coordinator_port(held: LocalAttempt) -> None:
    """The first of a gang is to listen on a port that all members know already. Raises OSError when it is taken."""
    if held.gang is None or held.ref.index != 0:
        return
    port = environment.coordinator_port(held.gang)
    if not host.is_free(port):
        raise OSError(
            errno.EADDRINUSE, f"port {port}, its gang's coordinator port, is in use; another attempt has another"
        )


def cannot_start(error: OSError) -> Ended:
    """The end of an attempt that could not start because of this host."""
    return Ended(Cause.INFRASTRUCTURE, error=f"could not be started on this host: {error}")
