"""The process that runs a local cluster: starts the programs, restarts those that die, and stops
them all.

A worker represents a host, and a dead host stays dead: a dead worker is not restarted, and its
tasks are killed, unless ``cluster.restart_workers`` is set. Orphans of dead workers become children
of this process, so it finds them all. Out of
scope: the list of programs (`programs`), readiness (`launch`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from iris.client.http.address import ClusterFile
from iris.cluster.paths import ClusterPaths, note_damage, write_cluster
from iris.cluster.process import ISOLATED, children, is_of_program
from iris_bus.connection.keys import write_private
from iris_nats.nats_process import NatsProcess
from iris_service.child import (
    DAMAGED,
    ChildProcess,
    DamagedFiles,
    Program,
    StartFailed,
    end_with_parent,
)
from iris_service.slice_processes import running_hosts, signal_hosts
from iris_service.subreaper import adopt_orphans
from iris_service.wanted_keys import read_wanted

_STOP_PHASE = {"proxy": 0, "provisioner": 0, "worker": 1, "state": 3, "nats": 4}
"""The order of stopping; any other service ends in phase 2. Proxies end first, so that services can
answer the requests under way; then workers, so that they can report their tasks' ends.
"""
_PHASES = 5
_LAST_GRACE_S = 3.0
_FLEET_S = 12.0
_LOOK_S = 3.0
_ROUND_S = 0.05
_HOST_IS_GONE = (
    "; its host is gone: `iris down` and `iris up` bring it back, and with `restart_workers = true` in [cluster] "
    "a worker that ended is started again"
)
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """Runs the programs of one cluster.

    Args:
        url: where the gateway listens, for ``cluster.json``. proxy_url: where the proxy does.
        workers: those of them that are workers, each of which gets a key.
        programs: made once the bus' address is known.
        say: called with a sentence for the log at each event.
        token_file: the one with the token of an admin, for ``cluster.json``. ready_s: how long the
            start may take, too.
        nats_server: the program of the NATS server; empty: the one that is found.
    """

    def __init__(
        self,
        paths: ClusterPaths,
        url: str,
        proxy_url: str,
        workers: Sequence[str],
        programs: Callable[[str], Sequence[Program]],
        say: Callable[[str], None],
        token_file: str,
        ready_s: float,
        nats_server: str,
    ) -> None:
        self._paths = paths
        self._url = url
        self._proxy_url = proxy_url
        self._programs = programs
        self._say = say
        self._token_file = token_file
        self._ready_s = ready_s
        self._environ = {**os.environ, "IRIS_NATS_SERVER": nats_server} if nats_server else None
        self._nats = NatsProcess(paths.nats, workers, program=nats_server)
        self._children: list[ChildProcess] = [self._nats]
        self._gone: dict[str, float] = {}
        self._next_look = 0.0
        self._keys_trouble = ""
        self._stopping = False
        self._wake = -1

    def start(self) -> None:
        """Start all programs; returns before the cluster is ready. Raises what `NatsProcess.start`
        raises, OSError. One that is stopped meanwhile starts no more of them.
        """
        adopt_orphans()
        self._listen_to_signals()
        for report in (self._paths.damage, self._paths.failure):
            report.unlink(missing_ok=True)
        try:
            self._nats.start(is_given_up=self._is_stopping)
        except DamagedFiles as error:
            self._mend(error)
            self._nats.start(is_given_up=self._is_stopping)
        for program in self._programs(self._nats.url):
            if self._stopping:
                break
            child = ChildProcess(program, self._paths.logs)
            self._children.append(child)
            child.spawn(time.monotonic())
        self._report_ready()

    def _mend(self, error: DamagedFiles) -> None:
        """Have the journal written anew where what is damaged costs nothing. Raises ``error`` where
        it does not.
        """
        self._nats.stop()
        program = [
            sys.executable,
            *ISOLATED,
            "-m",
            "iris_state.admin",
            "--store",
            str(self._paths.nats),
        ]
        program += ["repair", "--lossless"]
        done = subprocess.run(
            program,
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=end_with_parent(),
        )
        if done.returncode:
            raise error
        self._say(f"{error}; it costs nothing: {done.stdout.strip().splitlines()[-1]}")

    def run(self) -> None:
        """Run until stopped; then all processes have ended."""
        while not self._stopping:
            self._sleep(self._until_due(time.monotonic()))
            self._round(time.monotonic())
        self.stop()

    def stop(self) -> None:
        """Stop the programs phase by phase, in bounded time."""
        self._stopping = True
        for phase, some in enumerate(self._by_phase()):
            if phase == _STOP_PHASE["worker"]:
                signal_hosts(running_hosts(self._paths.fleet), signal.SIGTERM)
            self._end(some)
            if phase == _STOP_PHASE["worker"]:
                self._await_fleet(time.monotonic() + _FLEET_S)
        self._kill_orphans(time.monotonic() + _LAST_GRACE_S)
        with contextlib.suppress(FileNotFoundError):
            self._paths.cluster_file.unlink()

    def _await_fleet(self, until: float) -> None:
        """Wait until the workers of slices have ended, which report the ends of their tasks; those
        that have not by then are killed.
        """
        while (left := running_hosts(self._paths.fleet)) and time.monotonic() < until:
            self._sleep(_ROUND_S)
        signal_hosts(left, signal.SIGKILL)

    def _round(self, now: float) -> None:
        """Collect ended processes and start those that are due."""
        before = self._pids()
        for child in self._children:
            self._look_after(child, now)
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            self._end_what_is_stuck()
            self._make_keys()
        self._sweep()
        if self._pids() != before:
            self._report_ready()

    def _look_after(self, child: ChildProcess, now: float) -> None:
        code = child.look(now)
        if code is not None:
            if not child.program.kept:
                self._gone[child.program.name] = time.time()
            self._say(
                f"{child.program.name} ended with {code}"
                + ("" if child.program.kept else _HOST_IS_GONE)
            )
            self._stopping |= child.never_began(code)
            if code and child.starts == 1 and not self._paths.failure.exists():
                self._note_failure(child, code)
            if code == DAMAGED:
                self._say(
                    note_damage(self._paths, f"{child.program.name} has found stored data damaged")
                )
        if child.due is not None and child.due <= now and not self._stopping:
            self._start_again(child, now)

    def _note_failure(self, child: ChildProcess, code: int) -> None:
        """Record why the first process that failed did, for whoever waits for the start."""
        ended = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        words = child.last_words() or ended
        write_private(self._paths.failure, f"{child.program.name} has ended: {words}")

    def _start_again(self, child: ChildProcess, now: float) -> None:
        try:
            try:
                child.spawn(now)
            except DamagedFiles as error:
                self._mend(error)
                child.spawn(now)
        except DamagedFiles as error:
            self._say(note_damage(self._paths, str(error)))
        except (StartFailed, OSError) as error:
            self._say(f"{child.program.name} did not become ready again: {error}")
            child.plan_restart(now)
        else:
            self._say(f"{child.program.name} started as {child.pid}")

    def _end_what_is_stuck(self) -> None:
        """End processes that hang; they are restarted afterwards."""
        for child in self._children:
            if child.pid and (reason := child.why_restart()):
                self._say(f"{child.program.name} is restarted: {reason}")
                child.signal(signal.SIGTERM)

    def _make_keys(self) -> None:
        """Make the keys of pools that were set since the start, and have the server read them."""
        wanted = read_wanted(self._paths.wanted_keys)
        try:
            trouble = self._nats.admit(wanted)
        except (StartFailed, OSError) as error:
            trouble = str(error)
        if trouble and trouble != self._keys_trouble:
            self._say(f"nats-server does not know the keys of new hosts of pools: {trouble}")
        self._keys_trouble = trouble

    def _until_due(self, now: float) -> float:
        """Seconds until a process is to be started or checked."""
        waiting = [child.due for child in self._children if child.due is not None]
        if self._orphans() and not waiting:
            return _ROUND_S
        return max(0.0, min([*waiting, self._next_look]) - now)

    def _orphans(self) -> set[int]:
        """Children that are not services: orphans of dead workers, unless a restarted worker adopts
        them. What programs of pools have started is theirs: elsewhere it would outlive them too.
        """
        if any(child.program.kept for child in self._children if child.program.service == "worker"):
            return set()
        found = children() - {child.pid for child in self._children}
        found -= {pid for pid in found if is_of_program(pid)}
        if not found or self._stopping:
            return found
        return found - {host.pid for host in running_hosts(self._paths.fleet)}

    def _sweep(self) -> None:
        """Kill and reap orphans; their own orphans are found in the next round."""
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

    def _end(self, some: Sequence[ChildProcess]) -> None:
        """Send TERM, then KILL after the grace period; returns when they have ended."""
        grace_s = max((child.program.stop_s for child in some), default=0.0)
        for number, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _LAST_GRACE_S)):
            for child in some:
                child.signal(number)
                child.signal(signal.SIGCONT)  # a stopped process (SIGSTOP) would not handle TERM
            until = time.monotonic() + seconds
            while any(child.pid for child in some) and time.monotonic() < until:
                self._sleep(_ROUND_S)
                for child in self._children:
                    child.look(time.monotonic())

    def _pids(self) -> dict[str, list[int]]:
        pids: dict[str, list[int]] = {"supervisor": [os.getpid()]}
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
        admin = self._nats.credentials("admin").nkey_seed
        stop_s = self._longest_stop_s()
        addresses = self._url, self._nats.url, self._pids(), self._metrics(), self._proxy_url
        found = ClusterFile(*addresses, stop_s, admin, self._token_file, self._ready_s, self._gone)
        write_cluster(self._paths, found)

    def _longest_stop_s(self) -> float:
        """How long `stop` may take."""
        longest = [max((c.program.stop_s for c in some), default=0.0) for some in self._by_phase()]
        return sum(longest) + _LAST_GRACE_S * (_PHASES + 1)

    def _by_phase(self) -> list[list[ChildProcess]]:
        return [
            [c for c in self._children if stop_phase(c.program.service) == phase]
            for phase in range(_PHASES)
        ]

    def _listen_to_signals(self) -> None:
        self._wake, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _STOPS:
            signal.signal(number, self._on_stop)

    def _is_stopping(self) -> bool:
        return self._stopping

    def _on_stop(self, *_: object) -> None:
        self._stopping = True

    def _sleep(self, seconds: float | None) -> None:
        """Wait for a signal, at most so many seconds."""
        ready, _, _ = select.select([self._wake], [], [], seconds)
        if ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)


def stop_phase(service: str) -> int:
    """When a service ends as the cluster stops."""
    return _STOP_PHASE.get(service, 2)
