"""Directories of attempts, reused, because making one costs as much as starting a process.

``attempts/<n>`` is the directory of the attempt in slot n, ``output/<n>.out`` and ``.err`` hold its output until that
is sent. Output goes to files and not through pipes: a worker that restarts
finds them, and a task is never blocked or killed because nothing reads its output. A slot is given to the next attempt
when no process of the last one is left, its output is sent, and its directory is empty again. The token of the attempt
is in a directory of the worker's own, where no task can put anything in its place.
Out of scope: processes; what is read from the files (tail).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from iris_core.messages import AttemptRef

ERROR_FILE = ".iris-error"
HOST_FILE = ".iris-hosts"
NOBODY = AttemptRef(0, 0, 0)
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_SPARES = 64
_FRESH_MODE = stat.S_IFDIR | 0o700
_ERROR_LIMIT = 2000
_THROWN = itertools.count(1)
"""Numbers names in the trash."""
_CLOCK_TICK_NS = 50_000_000
"""The resolution of a file system's change times, with a margin."""


@dataclass(slots=True, eq=False)
class Workspace:
    """The directory and output files of one attempt.

    Attributes:
        ref: the attempt that uses it now.
        workdir: its directory. out, err: open files that its process writes to.
        tokens: the directory of its token, which stays the slot's.
        made: whether the directory exists and was empty when the slot was last released.
        empty_ns: the directory's change time then; 0 when it was too recent to show later changes.
        broken: its directory could not be cleaned; it is not used again.
        owner: user and group of its directory and files; None: this process'.
        output: the output directory of the attempt, below its own; empty: it has none.
        ends_s: when an attempt that is stopped is over at the latest; 0: it is not stopped.
    """

    ref: AttemptRef
    number: int
    workdir: str
    out: int
    err: int
    tokens: str
    made: bool = False
    empty_ns: int = 0
    broken: bool = False
    owner: tuple[int, int] | None = None
    output: str = ""
    ends_s: float = 0.0

    def give_to(self, owner: tuple[int, int] | None) -> None:
        """Make a user the owner of its directory, which is empty, and files. Raises OSError."""
        if owner is not None and owner != self.owner:
            for place in (self.workdir, self.out, self.err):
                os.chown(place, *owner)
            self.owner, self.empty_ns = owner, 0

    @property
    def token_file(self) -> str:
        """The file of the attempt's token, which is only there while it runs."""
        return f"{self.tokens}/token"


class Workspaces:
    """The directories under a worker's data directory, and that of tokens. Raises OSError when the disk fails.

    Attributes:
        tokens: has a directory for each slot.
    """

    def __init__(self, root: Path, memory: str = "/dev/shm") -> None:
        self.attempts = str(root / "attempts")
        self._output = str(root / "output")
        self._trash = str(root / "trash")
        self._spares: list[Workspace] = []
        self._next = 0
        self._free: list[int] = []
        for path in (self.attempts, self._output, self._trash):
            os.makedirs(path, mode=0o700, exist_ok=True)
        self.tokens = _token_directory(root, memory)

    def begin(self, alive: Collection[int], unreported: Collection[int]) -> None:
        """A worker starts: everything goes to the trash except slots of live attempts and output that is not sent."""
        for name in os.listdir(self.attempts):
            if not (name.isdigit() and int(name) in alive):
                self.throw(f"{self.attempts}/{name}")
        for name in os.listdir(self._output):
            number = name.partition(".")[0]
            if not (number.isdigit() and (int(number) in alive or int(number) in unreported)):
                os.unlink(f"{self._output}/{name}")
        for name in os.listdir(self.tokens):
            if not (name.isdigit() and int(name) in alive):
                self._take_apart(f"{self.tokens}/{name}", [])
        used = {*alive, *unreported}
        self._next = max(used, default=-1) + 1
        self._free = [number for number in range(self._next) if number not in used]

    @property
    def trouble(self) -> str:
        """Why attempts cannot be given a token; empty when they can. Tasks may fill the memory in which tokens are."""
        with contextlib.suppress(OSError):  # somebody has deleted it; the next token brings it back
            found = os.statvfs(self.tokens)
            if found.f_blocks and not found.f_bavail:
                return f"tokens: {os.path.dirname(self.tokens)} is full"
        return ""

    def take(self, ref: AttemptRef) -> Workspace:
        """A slot for ``ref`` with an empty directory and empty files."""
        if self._spares:
            slot = self._spares.pop()
        else:
            number = self._free.pop() if self._free else self._next
            slot = self.open(number)
            self._next = max(self._next, number + 1)
        if not slot.made:
            try:
                os.mkdir(slot.workdir, 0o700)
            except OSError:
                self._close(slot)
                raise
            slot.made, slot.empty_ns, slot.owner = True, 0, None
        slot.ref = ref
        return slot

    def open(self, number: int) -> Workspace:
        """Slot ``number`` with its files, without an attempt."""
        tokens = _passable(f"{self.tokens}/{number}")
        out = os.open(f"{self._output}/{number}.out", _FLAGS, 0o600)
        try:
            err = os.open(f"{self._output}/{number}.err", _FLAGS, 0o600)
        except OSError:
            os.close(out)
            raise
        return Workspace(NOBODY, number, f"{self.attempts}/{number}", out, err, tokens)

    def clean(self, slot: Workspace, now_ns: int) -> bool:
        """No process is left in the slot: empty its directory. Whether `empty_trash` has something to delete."""
        with contextlib.suppress(FileNotFoundError):  # it had no token
            os.unlink(slot.token_file)
        try:
            seen = os.stat(slot.workdir)
            slot.made = True  # an adopted one was made by an earlier worker process
            if seen.st_ctime_ns == slot.empty_ns:
                return False  # neither its content nor its permissions were ever changed
            if seen.st_mode == _FRESH_MODE and not os.listdir(slot.workdir):
                slot.empty_ns = seen.st_ctime_ns if now_ns - seen.st_ctime_ns > _CLOCK_TICK_NS else 0
                return False
            slot.made = False
            self.throw(slot.workdir)
        except FileNotFoundError:
            slot.made = False  # the task deleted it itself
            return False
        return True

    def give(self, slot: Workspace, printed: bool) -> None:
        """The output is sent and the directory is empty: release the slot for another attempt."""
        slot.ref = NOBODY
        if printed:
            os.ftruncate(slot.out, 0)
            os.ftruncate(slot.err, 0)
        if len(self._spares) < _SPARES and not slot.broken:
            self._spares.append(slot)
        else:
            self._close(slot)

    def empty_trash(self) -> None:
        """Delete the trash; slow, for a thread."""
        left = [f"{self._trash}/{name}" for name in os.listdir(self._trash)]
        while left:
            self._take_apart(left.pop(), left)

    def _take_apart(self, path: str, left: list[str]) -> None:
        """Delete a file, or a directory whose subdirectories are first moved beside it.

        This handles any depth and removed permissions; what cannot be deleted is tried again the next time.
        """
        with contextlib.suppress(OSError):
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                os.unlink(path)
                return
            os.chmod(path, 0o700)
            with os.scandir(path) as entries:
                inside = list(entries)
            for entry in inside:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        left.append(self.throw(entry.path))
                    else:
                        os.unlink(entry.path)
            os.rmdir(path)

    def close(self) -> None:
        """Close the files of unused slots, and remove the directories of tokens that hold none."""
        while self._spares:
            self._close(self._spares.pop())
        for path, _, _ in os.walk(self.tokens, topdown=False):
            with contextlib.suppress(OSError):  # that of an attempt that runs on without the worker
                os.rmdir(path)

    def _close(self, slot: Workspace) -> None:
        os.close(slot.out)
        os.close(slot.err)
        with contextlib.suppress(OSError):  # what cannot be deleted now is deleted by the next worker process
            os.unlink(f"{self._output}/{slot.number}.out")
            os.unlink(f"{self._output}/{slot.number}.err")
            os.rmdir(slot.tokens)
            with contextlib.suppress(FileNotFoundError):  # it is in the trash
                os.rmdir(slot.workdir)
            self._free.append(slot.number)

    def throw(self, path: str) -> str:
        """Move a file or directory to the trash, and return its new path."""
        target = f"{self._trash}/{os.getpid()}-{next(_THROWN)}"
        try:
            os.rename(path, target)
        except PermissionError:  # a directory without permissions, which only root can move as it is
            os.chmod(path, 0o700)
            os.rename(path, target)
        return target


def data_id(root: Path) -> str:
    """What tells the worker with this data directory from all others of its host. Raises OSError."""
    found = root.stat()
    return f"{found.st_dev:x}-{found.st_ino:x}"


def _token_directory(root: Path, memory: str) -> str:
    """Make the directory of a worker's tokens, if it is missing: in memory, or else on its disk. Raises OSError.

    Only root's is in memory: systemd-logind deletes there what is another user's when that user logs out. Whoever comes
    first may have put something else in its place.
    """
    if os.geteuid() == 0:
        path = f"{memory}/iris-{data_id(root)}"
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
            found = os.lstat(path)
            if stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and not found.st_mode & 0o022:
                return _passable(path)
    return _passable(str(root / "tokens"))


def _passable(path: str) -> str:
    """Make a directory that others may pass and nobody else may list or change, if it is missing."""
    os.makedirs(path, 0o700, exist_ok=True)
    os.chmod(path, 0o711)
    return path


def write_token(slot: Workspace, token: str) -> None:
    """Replace the file of an attempt's token, for the owner of its directory only; who reads it finds the old or the
    new one. Raises OSError.
    """
    try:
        _write_new(slot, slot.token_file, token)
    except FileExistsError:
        draft = f"{slot.token_file}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        _write_new(slot, draft, token)
        os.rename(draft, slot.token_file)
    except FileNotFoundError:  # somebody has deleted the directory
        _passable(slot.tokens)
        _write_new(slot, slot.token_file, token)


def _write_new(slot: Workspace, path: str, token: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    try:
        os.write(file, token.encode())
        owner = os.stat(slot.workdir)
        if owner.st_uid != os.geteuid():
            os.fchown(file, owner.st_uid, owner.st_gid)
    finally:
        os.close(file)


def read_error_file(workdir: str) -> str:
    """The text a task wrote into its IRIS_ERROR_FILE, as one line; empty when there is none. Never raises."""
    try:
        fd = os.open(f"{workdir}/{ERROR_FILE}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        if os.fstat(fd).st_uid != os.stat(workdir).st_uid:
            return ""  # a link to what the task may not read
        return " ".join(os.read(fd, _ERROR_LIMIT).decode(errors="replace").split())
    except OSError:
        return ""
    finally:
        os.close(fd)


def write_host_file(workdir: str, text: str) -> str:
    """Write the hosts of a task's gang into its directory, and return the path. Raises OSError."""
    path = f"{workdir}/{HOST_FILE}"
    with contextlib.suppress(FileNotFoundError):  # a bundle may hold such a file, or a link to another
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
    return path
