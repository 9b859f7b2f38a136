"""Confines the processes of tasks: users of their own, and namespaces that bubblewrap makes.

bubblewrap makes the namespaces of a slot once, and their first process, which sleeps, holds them.
The launcher enters them, forks the task, and returns, so a task is its child with or without a
sandbox: the same signals, exit codes and sessions. A sandbox in which an attempt left anything is
ended, with all that runs in it. Out of scope: what is visible in a sandbox, and who is whom
    (isolation).
Source: docs/design/isolation.md#sandboxes, docs/design/isolation.md#directories.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import TypeVar

from iris_worker.launcher.kernel import landlock, namespaces, tree
from iris_worker.launcher.kernel.keyrings import refuse_keyrings
from iris_worker.launcher.records.records import Confine, Confined, Sandbox
from iris_worker.launcher.starts.spawn import NotRunnable, User, must, spawn

T = TypeVar("T")

_BUILD_S = 10.0
IDLE = 64
"""Sandboxes that are kept while nothing runs in them, as many as a worker keeps slots; the oldest
end first.
"""
_HOLDER = ("--as-pid-1", "--", "/bin/sh", "-c", "trap '' CHLD; echo; exec sleep infinity")
"""Who ignores SIGCHLD has no zombies: the orphans of its namespace need nobody who waits for
them.
"""
_READY = b"\n"
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
_QUEUES = "/dev/mqueue"
OWN_NETWORK = "--unshare-net"
TRIED = ("/bin/sh", "-c", ":")
_MOST_LEFT_BYTES = 32 << 20
"""Files that attempts may leave in the memory of a sandbox: they count for no limit any more."""


@dataclass(slots=True, eq=False)
class _Namespaces:
    """What bubblewrap made for a slot.

    Attributes:
        plan: by which it was made. shown: the arguments for what it shows beyond that.
        init: the first process inside; all end with it. It starts nothing itself.
        places: the directories of attempts that it shows, and device and inode of each.
        fresh: what `_contents` found before the first attempt. checked: it found that before the
            present one.
        left_bytes: files in memory that attempts have left in it.
    """

    plan: Confine
    shown: tuple[str, ...]
    init: int
    pidfd: int
    places: dict[str, tuple[int, int]]
    fresh: tuple[int, ...] | None = None
    checked: bool = False
    left_bytes: int = 0

    def serves(self, plan: Confine, shown: tuple[str, ...]) -> bool:
        """Whether it is as wanted, with the directories that are there now."""
        return (
            self.checked
            and self.plan is plan
            and self.shown == shown
            and self.places == _identities(self.places)
        )

    def enter(self) -> None:
        """Enter it. Raises OSError, and Leftovers when an earlier attempt has left something there,
        or ended it.
        """
        network = OWN_NETWORK in self.plan.bubblewrap
        if self.checked:
            namespaces.enter(self.pidfd, network=network)
        else:
            self._check(lambda: namespaces.enter(self.pidfd, network=network))

    def look(self) -> None:
        """Enter what it shows, to find out whether it is as it was made. Raises as `enter` does."""
        self._check(lambda: namespaces.enter_view(self.pidfd))

    def _check(self, enter: Callable[[], None]) -> None:
        with contextlib.suppress(ProcessLookupError):
            enter()
            found = _contents()
            self.fresh = self.fresh or found
            self.checked = found == self.fresh
        if not self.checked:
            raise Leftovers("the sandbox has ended, or something was left in it")

    def end(self) -> None:
        """Kill all that runs in it."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        os.close(self.pidfd)


class Leftovers(OSError):
    """The namespaces that `prepare` returned cannot be used: it makes others when it is called
    again.
    """


class Sandboxes:
    """The sandboxes of one worker's slots.

    Args:
        attempts: the directory of the slots' directories.
        leave_group: called before a process is started that outlives the attempt for which it is
            needed.

    Attributes:
        pids: the processes of bubblewrap among this process' children.
    """

    def __init__(self, attempts: str, leave_group: Callable[[], None] = lambda: None) -> None:
        self.pids: set[int] = set()
        self._leave_group = leave_group
        self._attempts = attempts
        self._root = os.geteuid() == 0
        self._own = namespaces.own_namespaces()
        self._entered = self._forbids = False
        self._ruleset = -1
        self._plan = Confine()
        self._in_user_namespace = False
        self._by_slot: dict[int, _Namespaces] = {}
        self._idle: dict[int, None] = {}
        self._adopted: dict[int, int] = {}
        self._inits: dict[int, int] | None = None

    def confine(self, plan: Confine) -> Confined:
        """Start attempts as ``plan`` says from now on; returns what of it does not work."""
        self._plan = plan
        for slot in list(self._idle):
            self._end(slot)
        unscoped = ""
        try:
            if plan.no_new_privileges:
                self._forbid()
            unscoped = self._scope()
            if plan.bubblewrap:
                self._try()
        except (OSError, NotRunnable) as error:
            return Confined(str(error), unscoped)
        return Confined("", unscoped)

    def _scope(self) -> str:
        """Scope sockets from now on, or no longer; returns why this kernel cannot."""
        if self._ruleset >= 0:
            os.close(self._ruleset)
            self._ruleset = -1
        try:
            self._ruleset = landlock.make_ruleset() if self._plan.scopes_sockets else -1
        except OSError as error:
            return str(error.strerror)
        return ""

    def _forbid(self) -> None:
        """What everything that is started does without, once for all. Raises OSError."""
        if not self._forbids:
            namespaces.forbid_new_privileges()
            refuse_keyrings()
            self._forbids = True

    def _try(self) -> None:
        """Start something in a sandbox. Raises OSError, NotRunnable."""
        if not (self._root or self._in_user_namespace):
            namespaces.enter_user_namespace()
            self._in_user_namespace = True
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            held = self._by_slot[-1] = self._make(self._attempts, ())
            self.start(held, lambda: spawn(TRIED, {}, self._attempts, (null, null, null)))
            self._end(-1)
        finally:
            os.close(null)

    # ── starting ──────────────────────────────────────────────────────────────────────────────────

    def prepare(
        self, slot: int, sandbox: Sandbox | None, workdir: str, *, beside: bool = False
    ) -> _Namespaces | None:
        """The namespaces for the next process of a slot; ``beside``: a task runs in them. Raises
        OSError.
        """
        if sandbox is None or not self._plan.bubblewrap:
            return None
        held = self._by_slot.get(slot)
        more = shown(sandbox.devices, sandbox.reads, sandbox.writes)
        if held is not None and not beside and not (self._root and held.serves(self._plan, more)):
            self._end(slot)
            held = None
        if held is None:
            place = f"{self._attempts}/{slot}" if self._root else workdir
            held = self._by_slot[slot] = self._make(place, more)
        self._idle.pop(slot, None)
        held.checked = held.checked and beside
        return held

    def use(self, slot: int) -> None:
        """An attempt is cloned into a slot's sandbox: it is not ended to make room for others."""
        self._idle.pop(slot, None)

    def is_clean(self, slot: int, sandbox: Sandbox | None, workdir: str) -> bool:
        """Whether a slot's sandbox, if it is to have one, is there and as it was made. Raises
        OSError.
        """
        before = self._by_slot.get(slot)
        held = self.prepare(slot, sandbox, workdir)
        if held is not None and held is before:
            try:
                self._look(held)
            except Leftovers:
                return False
        return held is before or held is None

    def _look(self, held: _Namespaces) -> None:
        """Find out what is left in a sandbox. Root does without a thread: it starts nothing there,
        and returns.
        """
        if not self._root:
            self.start(held, lambda: None)
            return
        try:
            held.look()
        finally:
            must(lambda: namespaces.leave(self._own[:2]))

    def start(self, held: _Namespaces | None, begin: Callable[[], T], *, client: bool = False) -> T:
        """Have ``begin`` start a process in what `prepare` returned. Raises what it raises,
        OSError, Leftovers.

        ``client``: of a container runtime. Its sockets are not scoped: from a domain podman enters
        no other container.
        """
        if held is None:
            self._leave()
        scopes = self._ruleset >= 0 and not client
        if scopes or not (held is None or self._root):

            def enter() -> T:  # nobody leaves a domain, nor a sandbox who is not root
                if held is not None:
                    held.enter()
                if scopes:
                    landlock.enter_domain(self._ruleset)
                return begin()

            return namespaces.in_thread(enter, enters=held is not None)
        if held is None:
            return begin()
        self._entered = True
        try:
            held.enter()
            return begin()
        finally:
            must(lambda: namespaces.leave(self._own[:1]))

    def may_wait(self, held: _Namespaces | None, sandbox: Sandbox | None, *, beside: bool) -> bool:
        """Whether the launcher may wait until the next process is its program: no task can signal
        that, or the launcher while it has its user, that could not signal the launcher anyway.

        With namespaces, that of processes is empty unless it starts ``beside`` a task; with a user
        too, only one of a pool is nobody else's. Without either every task runs as the launcher's
        user, and sees it.
        """
        if user_of(sandbox) is None:
            return held is None or not beside
        return (
            self._root
            and held is not None
            and sandbox is not None
            and sandbox.of_pool
            and not beside
        )

    def _leave(self) -> None:
        """Return to the namespaces of processes and IPC, which matter only to what is started
        next.
        """
        if self._entered:
            must(lambda: namespaces.leave(self._own[1:]))
            self._entered = False

    # ── namespaces ────────────────────────────────────────────────────────────────────────────────

    def _make(self, place: str, shown: tuple[str, ...]) -> _Namespaces:
        """Have bubblewrap make the namespaces of a slot. Raises OSError with its words.

        ``place``: what they show of the slots' directories. Below the slot's own, which only root
        changes, each attempt gets another directory; an ordinary user could change it, and is shown
        one attempt's.
        """
        self._leave_group()
        given = self._plan.tokens + place.removeprefix(self._attempts)
        own = (
            *directories(given),
            "--ro-bind-try",
            given,
            given,
            *directories(place),
            "--bind",
            place,
            place,
        )
        command = (*self._plan.bubblewrap, *shown, *own, *_HOLDER)
        read_end, write_end = os.pipe()
        try:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._leave()
                pid = spawn(command, tree.marked(place), "/", (null, write_end, write_end))
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
        init = next(iter(tree.children(pid)), 0)
        if not init:
            raise OSError("the kernel does not list the children of a process")
        return _Namespaces(
            self._plan, shown, init, os.pidfd_open(init), places=_identities((place, given))
        )

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────

    def left(self, slot: int, *, empty: bool) -> int:
        """The process with which all that an attempt left in its sandbox ends; 0 when nothing is
        left.

        ``empty``: it is known already that no process is left.
        """
        held = self._by_slot.get(slot)
        if init := self._adopted.pop(slot, 0):
            if held is not None:  # of its probes
                self._end(slot)
            return init
        if held is None:
            return 0
        if self._root and (empty or not self.holds_orphans(slot)):
            self._idle[slot] = None
            if len(self._idle) > IDLE:
                self._end(next(iter(self._idle)))
            return 0
        init = held.init
        self._end(slot)
        return init

    def add_left(self, slot: int, left_bytes: int) -> bool:
        """An attempt has left so many bytes of files in a sandbox; returns whether that is full of
        them.
        """
        if (held := self._by_slot.get(slot)) is None:
            return False
        held.left_bytes += left_bytes
        return held.left_bytes > _MOST_LEFT_BYTES

    def end(self, slot: int) -> None:
        """End a sandbox, with all that is in it."""
        if slot in self._by_slot:
            self._end(slot)

    def holds_orphans(self, slot: int) -> bool:
        """Whether processes are in its sandbox whose parents have ended."""
        held = self._by_slot.get(slot)
        return held is not None and bool(tree.children(held.init))

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
        self._idle.pop(slot, None)
        self._by_slot.pop(slot).end()


def user_of(sandbox: Sandbox | None) -> User | None:
    """Whose process one of this attempt is; None: the launcher's user."""
    if sandbox is None or sandbox.uid is None or sandbox.gid is None:
        return None
    return User(sandbox.uid, sandbox.gid, sandbox.groups)


def directories(path: str) -> list[str]:
    """The arguments of bubblewrap for the directories above ``path``; what it makes unasked is
    closed to others.
    """
    above = [str(one) for one in reversed(PurePath(path).parents)][1:]
    return [word for one in above for word in ("--perms", "0755", "--dir", one)]


@lru_cache
def shown(
    devices: tuple[str, ...], reads: tuple[str, ...], writes: tuple[str, ...]
) -> tuple[str, ...]:
    """The arguments of bubblewrap for an attempt's device files and further directories."""
    options = {"--dev-bind": devices, "--ro-bind": reads, "--bind": writes}
    return tuple(
        word
        for option, paths in options.items()
        for path in paths
        for word in (*directories(path), option, path, path)
    )


def _first_line(fd: int) -> bytes:
    """What bubblewrap says: an empty line once the namespaces are made, or its error."""
    said = b""
    while not said.endswith(b"\n") and select.select([fd], [], [], _BUILD_S)[0]:
        data = os.read(fd, 4096)
        if not data:
            break
        said += data
    return said


def _identities(paths: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Device and inode of each directory that is there."""
    identities = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(path)
            identities[path] = (found.st_dev, found.st_ino)
    return identities


def _contents() -> tuple[int, ...]:
    """What these namespaces hold beside processes: files in each temporary file system, message
    queues by the size of their directory, objects of System V IPC.
    """
    try:
        queues = os.stat(_QUEUES).st_size
    except FileNotFoundError:  # the kernel has none
        queues = 0
    return (*map(_files, _TEMPORARY), queues, *namespaces.ipc_objects())


def _files(path: str) -> int:
    found = os.statvfs(path)
    return found.f_files - found.f_ffree
