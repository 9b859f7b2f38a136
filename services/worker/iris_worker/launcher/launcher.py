"""The process that owns the processes of one worker's tasks: ``python -m
iris_worker.launcher.launcher DIRECTORY``.

It records each start before it happens and each end with its exit, and outlives its worker: the
next worker connects to the same socket, and is sent the records of all attempts. It ends when no
worker is connected and nothing runs. The next launcher reads the records, and adopts what runs. The
listening socket is its standard input. Out of scope: what is reported of an attempt, and output,
    which is in files.
Source: docs/adr/0037-a-launcher-owns-the-processes-of-tasks.md.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec import structs

from iris_core import codec
from iris_core.messages.message import AttemptRef
from iris_service.boot import boot_id
from iris_service.subreaper import adopt_orphans
from iris_worker.launcher import adopt, rescue
from iris_worker.launcher.cgroups import abandoned
from iris_worker.launcher.cgroups.cgroup import Cgroups, NoGroups
from iris_worker.launcher.cgroups.files import CgroupSupport
from iris_worker.launcher.cgroups.hierarchies import name_of, open_groups
from iris_worker.launcher.kernel.event_loop import EventLoop
from iris_worker.launcher.processes.exits import to_refusal
from iris_worker.launcher.processes.process import Process
from iris_worker.launcher.processes.runner import Runner
from iris_worker.launcher.records.frames import frame, take_frames
from iris_worker.launcher.records.records import (
    VERSION,
    CommandExited,
    Confine,
    EmptySlot,
    EndTemplate,
    Exit,
    Exited,
    GiveNotice,
    Gone,
    HoldFile,
    KillAll,
    LauncherAnswer,
    LauncherRequest,
    Measured,
    NoticeRecord,
    OpenTerminal,
    Over,
    Pinged,
    PingLauncher,
    Read,
    Ready,
    SignalCommand,
    SlotEmptied,
    SpawnCommand,
    Spawned,
    StartProcess,
    StartTemplate,
    StopProcess,
    StoreTrouble,
    TemplateState,
)
from iris_worker.launcher.records.store import ProcessStore
from iris_worker.launcher.starts.spawn import NeedsShell, NotRunnable, as_script, handle_ignored
from iris_worker.launcher.starts.spawner import Spawner
from iris_worker.launcher.templates.reuse import DIFFERS
from iris_worker.launcher.templates.template_programs import CALL
from iris_worker.launcher.templates.templates import Templates, most_idle_bytes

_READ_BYTES = 1 << 16  # the memory for more is mapped and unmapped by each read
_FDS = 64
_MEASURE_S = 2.0
_ACCEPT_S = 1.0
_TIDY_S = 0.05
_ROUNDS = 200
_ROUND_S = 0.025
_RECORDS = (Over, Read, Gone)


class Launcher:
    """Serves one worker at a time; the newest connection is the worker's.

    Attributes:
        connection: to the worker, None while there is none.
    """

    def __init__(self, root: Path, listener: socket.socket) -> None:
        self.connection: socket.socket | None = None
        self._root = root
        self._loop = EventLoop()
        self._listener = listener
        self._store = ProcessStore(root / "processes", boot_id())
        self._groups, self._support = _find_groups(root)
        self._spawner = Spawner(self._loop, str(root), self._groups)
        self._runner = Runner(self._loop, self._spawner, self._groups, self)
        self._templates = Templates(
            self._loop,
            self._runner,
            self._spawner,
            self,
            root=root,
            idle_bytes=most_idle_bytes(),
        )
        self._inbox, self._outbox = bytearray(), bytearray()
        self._fds: list[int] = []
        self._held: list[int] = []
        self._starting: dict[AttemptRef, tuple[StartProcess, bytes]] = {}
        self._trouble = ""
        self._handlers: dict[type, Callable[[Any], object]] = {
            Confine: lambda m: self._send(self._spawner.sandboxes.confine(m)),
            StartProcess: self._start,
            StartTemplate: self._templates.start,
            EndTemplate: lambda m: self._templates.end(m.key),
            EmptySlot: self._empty,
            GiveNotice: lambda m: self._runner.give_notice(m.record.ref),
            StopProcess: self._stop,
            KillAll: lambda m: self._kill_all(),
            SpawnCommand: self._spawn_command,
            OpenTerminal: self._open_terminal,
            SignalCommand: lambda m: self._runner.commands.signal(m.number, m.signal),
            PingLauncher: lambda m: self._send(Pinged()),
            HoldFile: lambda m: self._hold_file(),
        }

    def run(self) -> None:
        """Serve until no worker is connected and nothing runs."""
        self._recover()
        self._listen()
        self._measure()
        if self._groups is not None:
            self._tidy(_find_abandoned(self._groups))
        while True:
            self._loop.turn()
            self._flush()
            if self.connection is None and not self._runner.running:
                break
        self._templates.close()
        self._spawner.close()

    def _recover(self) -> None:
        """Adopt what the previous launcher left, and kill what it has not recorded, or had only
        begun to start.
        """
        rescue.end(self._root)
        self._templates.kill_left()
        self._store.recover()
        alive = set()
        groups = set()
        for ref, entry in self._store.table.entries.items():
            if entry.exit is not None or entry.over is not None:
                continue
            exit_ = adopt.exit_of(
                entry, f"{self._spawner.workdir_of(entry.started.below)}/{CALL}/result"
            )
            if exit_ is None and not self._runner.adopt(entry.started):
                exit_ = Exit(known=False)
            if exit_ is None:
                alive.add(entry.started.slot)
                groups.add(entry.started.cgroup.number if entry.started.cgroup is not None else -1)
            else:
                self._store.add(Exited(ref, exit_))
        for _ in range(_ROUNDS):
            left = adopt.kill_orphans(self._spawner.attempts, alive)
            if self._groups is not None:
                left += self._groups.kill_others(groups)
            if not left:
                return
            time.sleep(_ROUND_S)
        _log("processes of an earlier launcher cannot be killed")

    # ── the worker ────────────────────────────────────────────────────────────────────────────────

    def _listen(self) -> None:
        self._loop.watch(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        """A worker has started: what the one before it sent comes first. Without a free descriptor
        it waits.
        """
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            _log(f"a worker cannot be accepted now: {error.strerror}")
            self._loop.forget(self._listener.fileno())
            self._loop.call_later(_ACCEPT_S, self._listen)
            return
        while self.connection is not None and self._read():
            pass
        self._disconnect()
        connection.setblocking(False)
        self.connection = connection
        self._starting = {ref: (request, b"") for ref, (request, _) in self._starting.items()}
        for entry in self._store.table.entries.values():
            for record in entry.records():
                self._send(record)
        self._send(Ready(self._support, VERSION))

    def _disconnect(self) -> None:
        """The worker is gone, and nobody waits for its commands."""
        if self.connection is not None:
            self._loop.forget(self.connection.fileno())
            self.connection.close()
            self.connection = None
        while self._fds:
            os.close(self._fds.pop())
        self._inbox.clear()
        self._outbox.clear()
        self._runner.commands.kill_all()

    def _read(self) -> bool:
        """Execute what has arrived; False when that was nothing, and when the worker is gone."""
        assert self.connection is not None
        try:
            data, fds, _, _ = socket.recv_fds(self.connection, _READ_BYTES, _FDS)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b""
            fds = []
        for fd in fds:  # the flag that would do so is ignored by Python 3.11
            os.set_inheritable(fd, False)
        self._fds += fds
        self._inbox += data
        self._execute(take_frames(self._inbox))
        if not data:
            self._disconnect()
        return bool(data)

    def _execute(self, frames: Iterable[bytes]) -> None:
        """Execute requests that have arrived together: first their records are written, all at
        once.
        """
        requests: list[Any] = []
        for data in frames:
            try:
                request: Any = codec.unpack(data, LauncherRequest)  # type: ignore[arg-type]
            except codec.Undecodable as error:
                _log(f"a request of a newer worker: {error}")
                continue
            kind = type(request)
            if kind in _RECORDS:
                self._store.add(request, data)
                continue
            if kind is GiveNotice:
                if not self._is_new(request.record):
                    continue
                self._store.add(request.record)
            if kind is StartProcess:
                self._store.add(request.record)
            requests.append(request)
        if requests:
            self._write()
        for request in requests:
            self._handlers[type(request)](request)

    def _send(self, answer: LauncherAnswer) -> None:
        if self.connection is not None:
            self._outbox += frame(answer)

    def _flush(self) -> None:
        """End of a round: write the new records, then send the answers."""
        self._write()
        if self.connection is None:
            return
        with contextlib.suppress(
            BlockingIOError, BrokenPipeError, ConnectionResetError
        ):  # `_read` finds out
            if self._outbox:
                del self._outbox[: self.connection.send(self._outbox)]
        self._loop.watch(self.connection.fileno(), self._read, writable=bool(self._outbox))

    def _write(self) -> None:
        """Write the new records; what cannot be written is tried again at the end of each round."""
        trouble = ""
        try:
            self._store.flush()
        except OSError as error:
            trouble = f"process store: {error.strerror}"
        if trouble != self._trouble:
            self._trouble = trouble
            self._send(StoreTrouble(trouble))

    def _measure(self) -> None:
        """Send what running attempts use, at intervals."""
        if self.connection is not None and (usage := self._runner.usage.measure()):
            self._send(Measured(usage))
        self._loop.call_later(_MEASURE_S, self._measure)

    def _tidy(self, directories: list[str]) -> None:
        """Remove groups of launchers that will not return, a few at a time: what is started does
        not wait.
        """
        if directories:
            if not abandoned.remove(directories[-1]):
                directories.pop()
            self._loop.call_later(_TIDY_S, self._tidy, directories)

    # ── processes ─────────────────────────────────────────────────────────────────────────────────

    def _start(self, request: StartProcess) -> None:
        """Start an attempt, unless it could not be recorded."""
        ref = request.record.ref
        after_s = _steady_s()
        try:
            if self._trouble:
                raise OSError(self._trouble)
            self._templates.end_in(request.record.slot, request.template)
            self._starting[ref] = (request, b"")
            if request.template and self._templates.clone(request):
                return
            child, cgroup = self._runner.start(request)
        except NeedsShell:
            self._start(structs.replace(request, command=as_script(request.command)))
        except (NotRunnable, OSError) as error:
            self.on_exit(ref, to_refusal(error))
        else:
            spawned = Spawned(
                ref,
                child.pid,
                after_s,
                _steady_s(),
                at_ms=time.time_ns() // 1_000_000,
                cgroup=cgroup,
            )
            self._starting[ref] = (request, self._store.add(spawned))
            if child.report < 0:
                self.on_begun(ref)

    def _is_new(self, record: NoticeRecord) -> bool:
        """Whether the attempt was given no notice of this reason before; a worker that was
        restarted repeats it.
        """
        entry = self._store.table.entries.get(record.ref)
        return entry is not None and all(
            given.reason is not record.notice.reason for given in entry.notices
        )

    def _stop(self, request: StopProcess) -> None:
        if not self._templates.stop(request.ref):
            self._runner.stop(
                request.ref, request.grace_ms, request.settle_ms, noticed=request.noticed
            )

    def _kill_all(self) -> None:
        self._templates.stop_all()
        self._runner.kill_all()

    def _empty(self, request: EmptySlot) -> None:
        """Empty a slot; the next worker gets no answer to what this one has asked."""
        asks = self.connection
        self._templates.empty(
            request,
            lambda text: (
                self._send(SlotEmptied(request.slot, text)) if self.connection is asks else None
            ),
        )

    def on_template(self, state: TemplateState) -> None:
        self._send(state)

    def on_cloned(
        self, request: StartProcess, process: Process, after_s: float, note: str = ""
    ) -> None:
        ref = request.record.ref
        at_ms = time.time_ns() // 1_000_000
        spawned = Spawned(
            ref, process.pid, after_s, _steady_s(), at_ms=at_ms, cgroup=process.cgroup, note=note
        )
        self._starting[ref] = (request, self._store.add(spawned))

    def on_again(self, request: StartProcess) -> None:
        self._start(request)

    def on_differs(self, job: int) -> None:
        _log(f"memory was not restored after a call of job {job}: {DIFFERS}")

    def on_begun(self, ref: AttemptRef) -> None:
        """Tell the worker who has asked for it; the next one has the record."""
        _, spawned = self._starting.pop(ref)
        if self.connection is not None:
            self._outbox += spawned

    def on_script(self, ref: AttemptRef) -> None:
        request, _ = self._starting.pop(ref)
        self._start(structs.replace(request, command=as_script(request.command)))

    def on_exit(self, ref: AttemptRef, exit_: Exit) -> None:
        self._starting.pop(ref, None)
        data = self._store.add(Exited(ref, exit_))
        if self.connection is not None:
            self._outbox += data

    def _spawn_command(self, request: SpawnCommand) -> None:
        count = 1 if request.tty else 3
        stdio = self._fds[:count]
        self._fds = self._fds[count:]
        self._runner.commands.begin(request, stdio)

    def _open_terminal(self, request: OpenTerminal) -> None:
        """Hand out a terminal by the socket that came with the request."""
        if not self._fds:  # the kernel drops what this process has no room for
            return
        terminal = self._runner.terminal(request.ref)
        with socket.socket(fileno=self._fds.pop(0)) as there, contextlib.suppress(OSError):
            if terminal >= 0:
                socket.send_fds(there, [b"t"], [terminal])

    def _hold_file(self) -> None:
        """Hold the newest that a worker has sent; what it locks has the same owner as before."""
        if self._fds:  # the kernel drops what this process has no room for
            self._held.append(self._fds.pop(0))

    def on_command_exit(self, exited: CommandExited) -> None:
        self._send(exited)


def _find_groups(root: Path) -> tuple[Cgroups | None, CgroupSupport]:
    try:
        groups = open_groups(root)
    except NoGroups as error:
        return None, CgroupSupport(trouble=str(error))
    return groups, groups.support


def _find_abandoned(groups: Cgroups) -> list[str]:
    """What other launchers have made, without those that live."""
    found = groups.of_others()
    living = set()
    for root in rescue.living() if found else ():
        with contextlib.suppress(OSError):
            living.add(name_of(Path(root)))
    return [directory for directory in found if os.path.basename(directory) not in living]


def _log(text: str) -> None:
    with contextlib.suppress(OSError):  # it is the worker's standard error, which may be gone
        sys.stderr.write(f"iris launcher: {text}\n")


def _steady_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def main() -> None:
    adopt_orphans()
    handle_ignored()
    Launcher(Path(sys.argv[1]), socket.socket(fileno=0)).run()


if __name__ == "__main__":
    main()
