"""The process that keeps a local cluster: starts everything, restarts what dies, stops everything when told.

A worker stands for a host, and a dead host stays dead: a worker that dies is not started again, and what it ran is
killed with it (`up.restart_workers` says otherwise). Orphans of dead workers become children of this process, so it
finds them all. Out of scope: which programs there are (`programs`), when the cluster can be used
(`launch`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from iris.client.address import ClusterFile
from iris.cluster.paths import ClusterPaths, note_damage, write_cluster
from iris.cluster.process import DAMAGED, ChildProcess, Program, adopt_orphans, children
from iris_bus.nats_process import DamagedFiles, NatsProcess, StartFailed

_WORKER_GRACE_S = 12.0
_SERVICE_GRACE_S = 6.0
_LAST_GRACE_S = 3.0
_NATS_GRACE_S = 5.0
_NATS_PAUSE_S = 0.2
_LONGEST_NATS_PAUSE_S = 5.0
_NATS_LOOK_S = 3.0
_ROUND_S = 0.05
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """Keeps the programs of one cluster.

    Args:
        url: where the gateway listens, for ``cluster.json``.
        programs: made once the bus' address is known.
        say: told each thing that happens, as a sentence for the log.
    """

    def __init__(
        self,
        paths: ClusterPaths,
        url: str,
        programs: Callable[[str], Sequence[Program]],
        say: Callable[[str], None],
    ) -> None:
        self._paths = paths
        self._url = url
        self._programs = programs
        self._say = say
        self._nats = NatsProcess(paths.nats)
        self._nats_pid = 0
        self._nats_due: float | None = None
        self._nats_pause = _NATS_PAUSE_S
        self._nats_look = 0.0
        self._children: list[ChildProcess] = []
        self._stopping = False
        self._wake = -1

    def start(self) -> None:
        """Start everything; returns before it can be used. Raises what `NatsProcess.start` raises, OSError."""
        adopt_orphans()
        self._listen_to_signals()
        self._paths.damage.unlink(missing_ok=True)
        self._nats.start()
        self._nats_pid = self._nats.pid
        self._children = [ChildProcess(program, self._paths.logs) for program in self._programs(self._nats.url)]
        for child in self._children:
            child.start(time.monotonic())
        self._report_ready()

    def run(self) -> None:
        """Return when told to stop; nothing is left then."""
        while not self._stopping:
            self._sleep(self._until_due(time.monotonic()))
            self._round(time.monotonic())
        self.stop()

    def stop(self) -> None:
        """Workers first, so that they can tell how their tasks ended; then the rest, then the bus. Bounded."""
        self._stopping = True
        self._end([child for child in self._children if child.program.service == "worker"], _WORKER_GRACE_S)
        self._end([child for child in self._children if child.program.service != "state"], _SERVICE_GRACE_S)
        self._end(self._children, _SERVICE_GRACE_S)
        self._nats.stop(_NATS_GRACE_S)
        self._kill_orphans(time.monotonic() + _LAST_GRACE_S)
        with contextlib.suppress(FileNotFoundError):
            self._paths.cluster_file.unlink()

    def _round(self, now: float) -> None:
        """See who has died and start again what is due."""
        before = self._pids()
        for child in self._children:
            self._look_after(child, now)
        self._look_after_nats(now)
        self._sweep()
        if self._pids() != before:
            self._report_ready()

    def _look_after(self, child: ChildProcess, now: float) -> None:
        code = child.look(now)
        if code is not None:
            self._say(f"{child.program.name} ended with {code}" + ("" if child.program.kept else "; its host is gone"))
            self._stopping |= child.never_began(code)
            if code == DAMAGED:
                self._say(note_damage(self._paths, f"{child.program.name} has found stored data damaged"))
        if child.due is not None and child.due <= now:
            child.start(now)
            self._say(f"{child.program.name} started as {child.pid}")

    def _look_after_nats(self, now: float) -> None:
        if self._nats_pid and self._nats.ended() is not None:
            self._say(f"nats-server ended with {self._nats.ended()}")
            self._nats_pid, self._nats_due = 0, now
        if self._nats_due is not None and self._nats_due <= now:
            self._start_nats_again(now)
        elif self._nats_pid and now >= self._nats_look:
            self._nats_look = now + _NATS_LOOK_S
            if stuck := self._nats.stuck():
                self._say(f"nats-server is stopped, to be started again: {stuck}")
                self._nats.signal(signal.SIGTERM)

    def _start_nats_again(self, now: float) -> None:
        try:
            self._nats.start()
        except DamagedFiles as error:
            self._say(note_damage(self._paths, str(error)))
            self._nats_due = None
            return
        except (StartFailed, OSError) as error:
            self._say(f"nats-server did not come back: {error}")
            self._nats_due = now + self._nats_pause
            self._nats_pause = min(2 * self._nats_pause, _LONGEST_NATS_PAUSE_S)
            return
        self._nats_pid, self._nats_due = self._nats.pid, None
        self._nats_pause = _NATS_PAUSE_S

    def _until_due(self, now: float) -> float:
        """Seconds until something is to be started or looked at."""
        dues = [child.due for child in self._children] + [self._nats_due]
        waiting = [due for due in dues if due is not None]
        if self._orphans() and not waiting:
            return _ROUND_S
        return max(0.0, min([*waiting, self._nats_look]) - now)

    def _orphans(self) -> set[int]:
        """Children that are no services: what dead workers left, unless a restarted worker is to adopt it."""
        if any(child.program.kept for child in self._children if child.program.service == "worker"):
            return set()
        return children() - {child.pid for child in self._children} - {self._nats.pid}

    def _sweep(self) -> None:
        """Kill and reap orphans; what they leave in turn is seen in the next round."""
        for pid in self._orphans():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) == pid:
                    os.killpg(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _kill_orphans(self, until: float) -> None:
        self._children = []
        while self._orphans() and time.monotonic() < until:
            self._sweep()
            self._sleep(_ROUND_S / 5)

    def _end(self, some: Sequence[ChildProcess], grace_s: float) -> None:
        """TERM, then KILL after the grace; returns when they are gone."""
        for number, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _LAST_GRACE_S)):
            for child in some:
                child.signal(number)
            until = time.monotonic() + seconds
            while any(child.pid for child in some) and time.monotonic() < until:
                self._sleep(_ROUND_S)
                for child in self._children:
                    child.look(time.monotonic())

    def _pids(self) -> dict[str, list[int]]:
        pids: dict[str, list[int]] = {"supervisor": [os.getpid()], "nats": [self._nats_pid] if self._nats_pid else []}
        for child in self._children:
            running = pids.setdefault(child.program.service, [])
            if child.pid:
                running.append(child.pid)
        return pids

    def _metrics(self) -> dict[str, list[str]]:
        shown: dict[str, list[str]] = {}
        for program in (child.program for child in self._children):
            if program.metrics:
                shown.setdefault(program.service, []).append(program.metrics)
        return shown

    def _report_ready(self) -> None:
        write_cluster(self._paths, ClusterFile(self._url, self._nats.url, self._pids(), self._metrics()))

    def _listen_to_signals(self) -> None:
        self._wake, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _STOPS:
            signal.signal(number, self._on_stop)

    def _on_stop(self, *_: object) -> None:
        self._stopping = True

    def _sleep(self, seconds: float | None) -> None:
        """Until a signal comes, at most so long."""
        ready, _, _ = select.select([self._wake], [], [], seconds)
        if ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)


def wait_for_end(pids: Sequence[int], seconds: float) -> list[int]:
    """The processes (of anybody) among ``pids`` that still live after at most ``seconds``."""
    until = time.monotonic() + seconds
    living = [pid for pid in pids if is_alive(pid)]
    while living and time.monotonic() < until:
        time.sleep(_ROUND_S / 5)
        living = [pid for pid in living if is_alive(pid)]
    return living


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return not Path("/proc/self").exists() and _answers(pid)
    return stat.rpartition(b") ")[2][:1] != b"Z"


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
