"""Confines the processes of tasks: users of their own, and namespaces that bubblewrap makes.

bubblewrap makes the namespaces of a slot once, and a process of its own that sleeps holds them. The launcher enters
them, starts the task, and returns, so a task is its child with or without a sandbox: the same signals, exit codes and
sessions. A sandbox in which an attempt left anything is ended, with all that runs in it.
Out of scope: what is visible in a sandbox, and who is whom (isolation).
Source: docs/adr/0039-a-sandbox-is-made-once-per-slot.md.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from iris_worker.process import namespaces, tree
from iris_worker.process.limits import Limits, hold
from iris_worker.process.records import Confine, Sandbox
from iris_worker.process.spawn import NotRunnable, spawn

_BUILD_S = 10.0
_HOLDER = ("/bin/sh", "-c", "echo; exec sleep infinity")
_READY = b"\n"
_LINES = 4096
_TEMPORARY = ("tmp", "var/tmp", "dev/shm")
_IPC = ("msg", "sem", "shm")
_TRIED = ("/bin/sh", "-c", ":")


@dataclass(slots=True, eq=False)
class _Namespaces:
    """What bubblewrap made for a slot.

    Attributes:
        plan: by which it was made. shown: the arguments for what it shows beyond that.
        init: the first process inside; all end with it.
        children: of ``init``. held: which it has while no task runs.
        workdir: device and inode of the directory that it shows.
        temporary: open directories that must be empty, and how many files each had at first.
        ipc: open lists of what System V IPC holds, which must be empty.
        queues: the open directory of message queues, and its size without any; empty where the kernel has none.
        busy: an attempt runs in it.
    """

    plan: Confine
    shown: tuple[str, ...]
    init: int
    pidfd: int
    children: tree.Children
    held: set[int]
    workdir: tuple[int, int]
    temporary: dict[int, int] = field(default_factory=dict)
    ipc: list[int] = field(default_factory=list)
    queues: dict[int, int] = field(default_factory=dict)
    busy: bool = False

    def serves(self, plan: Confine, shown: tuple[str, ...], workdir: str) -> bool:
        """Whether it is as wanted, with the directory that is there now, and nothing is left in it."""
        return (
            self.plan is plan
            and self.shown == shown
            and self._lives()
            and self.workdir == _identity(workdir)
            and all(_files(fd) == count for fd, count in self.temporary.items())
            and all(os.pread(fd, _LINES, 0).count(b"\n") <= 1 for fd in self.ipc)  # a line of titles
            and all(os.fstat(fd).st_size == size for fd, size in self.queues.items())
        )

    def _lives(self) -> bool:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, 0)
            return True
        return False

    def end(self) -> None:
        """Kill all that runs in it."""
        self.children.close()
        for fd in (*self.temporary, *self.ipc, *self.queues):
            os.close(fd)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        os.close(self.pidfd)


class Sandboxes:
    """The sandboxes of one worker's slots.

    Args:
        attempts: the directory of the slots' directories.
        leave_group: called before a process is started that outlives the attempt for which it is needed.

    Attributes:
        pids: the processes of bubblewrap among this process' children.
    """

    def __init__(self, attempts: str, leave_group: Callable[[], None] = lambda: None) -> None:
        self.pids: set[int] = set()
        self._leave_group = leave_group
        self._attempts = attempts
        self._root = os.geteuid() == 0
        self._ids = (os.getuid(), os.getgid(), os.getgroups())
        self._own = namespaces.own_namespaces()
        self._plan = Confine()
        self._in_user_namespace = False
        self._by_slot: dict[int, _Namespaces] = {}
        self._adopted: dict[int, int] = {}
        self._inits: dict[int, int] | None = None

    def confine(self, plan: Confine) -> str:
        """Start attempts as ``plan`` says from now on; returns why that does not work, in words."""
        self._plan = plan
        for slot in [slot for slot, held in self._by_slot.items() if not held.busy]:
            self._end(slot)
        try:
            if plan.no_new_privileges:
                namespaces.forbid_new_privileges()
            if plan.bubblewrap:
                self._try()
        except (OSError, NotRunnable) as error:
            return str(error)
        return ""

    def _try(self) -> None:
        """Start something in a sandbox. Raises OSError, NotRunnable."""
        if not (self._root or self._in_user_namespace):
            namespaces.enter_user_namespace()
            self._in_user_namespace = True
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            held = self.prepare(-1, Sandbox(), self._attempts)
            self.spawn(held, Sandbox(), _TRIED, {}, self._attempts, (null, null, null))
            self._end(-1)
        finally:
            os.close(null)

    # ── starting ────────────────────────────────────────────────────────────────────────────────────────────────

    def prepare(self, slot: int, sandbox: Sandbox | None, workdir: str, *, beside: bool = False) -> _Namespaces | None:
        """The namespaces for the next process of a slot; ``beside``: a task runs in them. Raises OSError."""
        if sandbox is None or not self._plan.bubblewrap:
            return None
        held, more = self._by_slot.get(slot), shown(sandbox)
        if held is not None and not beside and not (self._root and held.serves(self._plan, more, workdir)):
            self._end(slot)
            held = None
        if held is None:
            held = self._by_slot[slot] = self._make(workdir, more)
        held.busy = True
        return held

    def spawn(
        self,
        held: _Namespaces | None,
        sandbox: Sandbox | None,
        command: tuple[str, ...],
        env: Mapping[str, str],
        workdir: str,
        stdio: Sequence[int],
        tty: bool = False,
    ) -> int:
        """Start ``command`` as `spawn.spawn` does, confined in what `prepare` returned.

        Raises NotRunnable, OSError.
        """
        if sandbox is None:
            return spawn(command, env, workdir, stdio, tty)

        def start() -> int:
            with self._as(sandbox):
                return spawn(command, env, workdir, stdio, tty)

        if held is None:
            return start()
        if self._root:
            with self._inside(held):
                return start()

        def enter() -> int:  # who is not root cannot return
            namespaces.enter(held.pidfd)
            return start()

        return namespaces.in_thread(enter)

    def hold(self, pid: int, sandbox: Sandbox | None, limits: Limits) -> None:
        """Set limits on what `spawn` started, as its user: in a container not even root may limit others."""
        if limits:
            with self._as(sandbox or Sandbox()):
                hold(pid, limits)

    @contextlib.contextmanager
    def _inside(self, held: _Namespaces) -> Iterator[None]:
        try:
            namespaces.enter(held.pidfd)
            yield
        finally:
            _must(lambda: namespaces.leave(self._own))

    @contextlib.contextmanager
    def _as(self, sandbox: Sandbox) -> Iterator[None]:
        """Be another user, whose programs have no way back: exec drops the saved user."""
        if sandbox.uid is None or sandbox.gid is None:
            yield
            return
        try:
            os.setgroups(sandbox.groups)
            os.setresgid(sandbox.gid, sandbox.gid, self._ids[1])
            os.setresuid(sandbox.uid, sandbox.uid, self._ids[0])
            yield
        finally:
            _must(self._be_self)

    def _be_self(self) -> None:
        uid, gid, groups = self._ids
        os.setresuid(uid, uid, uid)
        os.setresgid(gid, gid, gid)
        os.setgroups(groups)

    # ── namespaces ──────────────────────────────────────────────────────────────────────────────────────────────

    def _make(self, workdir: str, shown: tuple[str, ...]) -> _Namespaces:
        """Have bubblewrap make the namespaces of a slot. Raises OSError with its words."""
        self._leave_group()
        command = (*self._plan.bubblewrap, *shown, *directories(workdir), "--bind", workdir, workdir, "--", *_HOLDER)
        read_end, write_end = os.pipe()
        try:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            try:
                pid = spawn(command, tree.marked(workdir), "/", (null, write_end, write_end))
            finally:
                os.close(write_end)
                os.close(null)
            self.pids.add(pid)
            said = _first_line(read_end)
        finally:
            os.close(read_end)
        if said != _READY:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            raise OSError(f"bubblewrap: {said.decode(errors='replace').strip() or 'no answer'}")
        below = tree.Children(pid)
        init = next(iter(below.pids()), 0)
        below.close()
        if not init:
            raise OSError("the kernel does not list the children of a process")
        children = tree.Children(init)
        held = _Namespaces(self._plan, shown, init, os.pidfd_open(init), children, children.pids(), _identity(workdir))
        if self._root:
            try:
                self._watch(held)
            except OSError:
                held.end()
                raise
        return held

    def _watch(self, held: _Namespaces) -> None:
        """Open what tells whether an attempt has left something. Raises OSError."""
        for name in _TEMPORARY:
            fd = os.open(f"/proc/{held.init}/root/{name}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            held.temporary[fd] = _files(fd)
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(f"/proc/{held.init}/root/dev/mqueue", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            held.queues[fd] = os.fstat(fd).st_size
        with self._inside(held), contextlib.suppress(FileNotFoundError):  # a kernel without System V IPC
            for name in _IPC:
                held.ipc.append(os.open(f"/proc/sysvipc/{name}", os.O_RDONLY | os.O_CLOEXEC))

    # ── ends ────────────────────────────────────────────────────────────────────────────────────────────────────

    def left(self, slot: int) -> int:
        """The process with which all that an attempt left in its sandbox ends; 0 when nothing is left."""
        held = self._by_slot.get(slot)
        if init := self._adopted.pop(slot, 0):
            if held is not None:  # of its probes
                self._end(slot)
            return init
        if held is None:
            return 0
        if self._root and held.children.pids() == held.held:
            held.busy = False
            return 0
        init = held.init
        self._end(slot)
        return init

    def adopt(self, slot: int, pid: int) -> None:
        """Find the sandbox that an earlier launcher made for a process."""
        if self._inits is None:
            self._inits = tree.namespace_inits()
        init = self._inits.get(tree.process_namespace(pid), 0)
        if init:
            self._adopted[slot] = init

    def close(self) -> None:
        for slot in list(self._by_slot):
            self._end(slot)

    def _end(self, slot: int) -> None:
        self._by_slot.pop(slot).end()


def directories(path: str) -> list[str]:
    """The arguments of bubblewrap for the directories above ``path``; what it makes unasked is closed to others."""
    above = [str(one) for one in reversed(PurePath(path).parents)][1:]
    return [word for one in above for word in ("--perms", "0755", "--dir", one)]


def shown(sandbox: Sandbox) -> tuple[str, ...]:
    """The arguments of bubblewrap for an attempt's device files and further directories."""
    options = {"--dev-bind": sandbox.devices, "--ro-bind": sandbox.reads, "--bind": sandbox.writes}
    return tuple(
        word for option, paths in options.items() for path in paths for word in (*directories(path), option, path, path)
    )


def _must(undo: Callable[[], None]) -> None:
    """Become oneself again, or end: nothing may go on as somebody else."""
    try:
        undo()
    except OSError as error:
        raise SystemExit(f"iris launcher: cannot return from a sandbox: {error}") from error


def _first_line(fd: int) -> bytes:
    """What bubblewrap says: an empty line once the namespaces are made, or its error."""
    said = b""
    while not said.endswith(b"\n") and select.select([fd], [], [], _BUILD_S)[0]:
        data = os.read(fd, 4096)
        if not data:
            break
        said += data
    return said


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _files(fd: int) -> int:
    """How many files and directories a temporary file system has."""
    found = os.fstatvfs(fd)
    return found.f_files - found.f_ffree
