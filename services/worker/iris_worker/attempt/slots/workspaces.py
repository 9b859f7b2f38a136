"""Directories of attempts. Nothing of one is used again by an attempt of another job.

``attempts/<n>`` belongs to slot n and to this process; a sandbox shows it, and outlives attempts.
Below it each attempt has a new directory, below ``output/<n>`` new files for its output until that
is sent, and a new directory for what Iris gives it, where no task can put anything in its place. So
a descriptor that a task has passed on to another shows nothing of who comes next. Output goes to
files and not through pipes: a worker that restarts finds them, and a task is never blocked or
killed because nothing reads its output. A slot is given to the next attempt when no process of the
last one is left, its output is sent, and its directories are gone; that of a call before its output
is sent, if another waits for its place, so that this has the same template. The next call of a job
has the directories and files of the one before too, if that has printed nothing and left nothing
    there. Out of scope: processes; what is read from the files (tail).
Source: docs/design/isolation.md#directories,
    docs/design/calls.md#directories.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from iris_core.messages.message import AttemptRef
from iris_worker.attempt.calls.given import GivenFiles, is_as_given
from iris_worker.attempt.slots.numbers import SlotNumbers
from iris_worker.attempt.slots.trash import Trash
from iris_worker.data_directory import data_id

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_GET_FLAGS = 0x8008_6601
_SET_FLAGS = 0x4008_6602
_TOP = 0x2_0000
"""ioctl_iflags(2): FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_TOPDIR_FL."""


@dataclass(slots=True, eq=False)
class Workspace:
    """The directories and output files of one attempt.

    Attributes:
        number: of its slot. directory: the name of its directories below those of the slot.
        workdir: its directory. given: the directory of what Iris gives it: its token, the hosts of
        its gang. out, err: open files that its process writes to.
        broken: its directory could not be taken away; the slot is not used again.
        user: who has submitted its job; empty: not known.
        output: the output directory of the attempt, below its own; empty: it has none.
        line: its line of the job's file; empty: the job has none.
        call: whether it is one of a map, and so leaves a result.
        ends_s: when an attempt that is stopped is over at the latest; 0: it is not stopped.
        previous_output_pending: the output of the attempt that had the slot before is perhaps not
            sent yet.
        handed_over: another attempt may have the slot before the output of this one is sent.
        owner: the user and group of its processes; None: the worker's.
        files: what a call was given there, if the next one may have it. reusable: the next call may
            have, or has, the directories and the open files. is_reused: they are those of the call
            before.
        code_version: of which Python the code of a call's function is, ``3.11``; empty: of any.
    """

    ref: AttemptRef
    number: int
    directory: str
    workdir: str
    given: str
    out: int
    err: int
    broken: bool = False
    user: str = ""
    output: str = ""
    line: str = ""
    ends_s: float = 0.0
    call: bool = False
    previous_output_pending: bool = False
    handed_over: bool = False
    owner: tuple[int, int] | None = None
    files: GivenFiles | None = None
    reusable: bool = False
    is_reused: bool = False
    code_version: str = ""

    def give_files_to(self, owner: tuple[int, int] | None) -> None:
        """Make a user the owner of its output files, and later of its directory. Raises OSError."""
        if (
            owner == self.owner
        ):  # also of those of the call before, which had this slot for the same job
            return
        self.owner = owner
        if owner is not None:
            for file in (self.out, self.err):
                os.chown(file, *owner)

    def give_directory(self) -> None:
        """Let the user of its processes into its directory, before the first of them starts. Raises
        OSError.

        Until then it is filled by paths, which another process of that user could redirect.
        """
        if self.owner is not None and not self.is_reused:
            os.chown(self.workdir, *self.owner)

    def leave_to_nobody(self) -> None:
        """The next call of its job may not have its directories."""
        if self.files is not None:
            os.close(self.files.items)
            self.files = None

    @property
    def below(self) -> str:
        """Where its files and directories are below those of all slots."""
        return f"{self.number}/{self.directory}".rstrip("/")

    @property
    def name(self) -> str:
        """Of its directory in the trash."""
        return f"{self.number}-{self.directory}"

    @property
    def token_file(self) -> str:
        """The file of the attempt's token, which is only there while it runs."""
        return f"{self.given}/token"


class Workspaces:
    """The directories under a worker's data directory, and those of tokens. Raises OSError when the
    disk fails.

    Attributes:
        tokens: has a directory for each slot, and below it one for each attempt.
        trash: has what was taken away. numbers: of the slots.
    """

    def __init__(self, root: Path, memory: str = "/dev/shm") -> None:
        self.attempts = str(root / "attempts")
        self._output = str(root / "output")
        self.trash = Trash(str(root / "trash"))
        self.numbers = SlotNumbers()
        self._early: set[int] = set()
        self._kept: dict[int, list[Workspace]] = {}
        self._unused: set[Workspace] = set()
        for path in (self.attempts, self._output):
            os.makedirs(path, mode=0o700, exist_ok=True)
        for path in (self.attempts, self._output):
            _spread(path)
        self.tokens = _token_directory(root, memory)
        self._in_memory = os.stat(self.tokens).st_dev != root.stat().st_dev

    def begin(self, alive: Collection[int], unreported: Collection[int]) -> None:
        """A worker starts: everything goes to the trash except slots of live attempts and output
        that is not sent.
        """
        self.trash.waits = True
        for name in os.listdir(self.attempts):
            if not (name.isdigit() and int(name) in alive):
                self.trash.throw(f"{self.attempts}/{name}")
        for name in os.listdir(self._output):
            number = name.partition(".")[0]
            if not (number.isdigit() and (int(number) in alive or int(number) in unreported)):
                self.trash.throw(f"{self._output}/{name}")
        for name in os.listdir(self.tokens):
            if not (name.isdigit() and int(name) in alive):
                shutil.rmtree(f"{self.tokens}/{name}", ignore_errors=True)
        self.numbers.begin({*alive, *unreported})

    @property
    def trouble(self) -> str:
        """Why attempts cannot be given a token; empty when they can. Tasks may fill the memory in
        which tokens are.
        """
        with contextlib.suppress(OSError):  # somebody has deleted it; the next token brings it back
            found = os.statvfs(self.tokens)
            if found.f_blocks and not found.f_bavail:
                return f"tokens: {os.path.dirname(self.tokens)} is full"
        return ""

    def take(self, ref: AttemptRef, reserved: int | None = None) -> Workspace:
        """A slot for ``ref``, the reserved one, with directories and files that are new, or of a
        call before it.
        """
        number = self.numbers.reserve() if reserved is None else reserved
        slot = self._reuse(ref, number) or self._take_new(ref, number)
        slot.previous_output_pending = number in self._early or self.numbers.is_shared(
            number, ref.job
        )
        return slot

    def _reuse(self, ref: AttemptRef, number: int) -> Workspace | None:
        """What a call of the same job has left in this slot; anything else that was kept there is
        taken away.
        """
        kept = self._kept.get(number, [])
        while kept:
            one = kept.pop()
            files = one.files
            if one.ref.job == ref.job and files is not None and _is_empty(one):
                opened = (one.directory, one.workdir, one.given, one.out, one.err)
                one.files = None
                return Workspace(
                    ref,
                    number,
                    *opened,
                    owner=one.owner,
                    files=files,
                    is_reused=True,
                )
            self._drop(one)
        return None

    def begun(self, slot: Workspace) -> None:
        """The launcher is told of an attempt, and whether it is early: it has the slot from now
        on.
        """
        self._early.discard(slot.number)

    def restore(self, slot: Workspace) -> None:
        """Bring back what an attempt left of which a worker before has not recorded the end."""
        self.trash.restore(slot.name, slot.workdir)

    def _take_new(self, ref: AttemptRef, number: int) -> Workspace:
        try:
            slot = self._open(ref, number, f"{ref.job}-{ref.index}-{ref.attempt}")
        except OSError:
            self.numbers.give(number)
            raise
        try:
            _make(slot.workdir, 0o700)
            _make(slot.given, 0o711)
        except OSError:
            with contextlib.suppress(OSError):
                self.clean(slot)
            self.give(slot)
            raise
        return slot

    def open(
        self, ref: AttemptRef, number: int, directory: str, *, reusable: bool = False
    ) -> Workspace:
        """The attempt that has this directory of slot ``number``, with the files of its output;
        ``reusable``: a later one has them.
        """
        self.numbers.join(number)
        return self._open(ref, number, directory, reusable=reusable)

    def _open(
        self, ref: AttemptRef, number: int, directory: str, *, reusable: bool = False
    ) -> Workspace:
        below = f"{number}/{directory}"
        files = (-1, -1) if reusable else _open_both(f"{self._output}/{below}")
        directories = (f"{self.attempts}/{below}", f"{self.tokens}/{below}")
        return Workspace(ref, number, directory, *directories, *files, reusable=reusable)

    def clean(self, slot: Workspace) -> None:
        """No process is left in the slot: take its directories out of the sight of the next, into
        the trash.
        """
        with contextlib.suppress(FileNotFoundError):  # it had no token
            os.unlink(slot.token_file)
        with contextlib.suppress(FileNotFoundError):
            self._take_given(slot.given)
        with contextlib.suppress(FileNotFoundError):  # the task deleted it itself
            self.trash.throw(slot.workdir, slot.name)

    def _take_given(self, path: str) -> None:
        """Nothing can be moved to the disk from the memory, where it is deleted quickly."""
        if not self._in_memory:
            self.trash.throw(path)
            return
        try:
            os.rmdir(path)
        except (
            OSError
        ):  # it has files, of which each is the worker's; `rmtree` takes several times as long
            with contextlib.suppress(OSError):
                for name in os.listdir(path):
                    os.unlink(f"{path}/{name}")
                os.rmdir(path)

    def give(self, slot: Workspace) -> None:
        """The output is sent and the directories are gone, or kept: the slot is free for another
        attempt.
        """
        if not slot.reusable:
            self._close(slot)
        if not slot.handed_over:
            self._leave(slot)

    def _close(self, slot: Workspace) -> None:
        for file in (slot.out, slot.err, *([slot.files.items] if slot.files is not None else [])):
            os.close(file)
        self.trash.delete(*(f"{self._output}/{slot.below}.{stream}" for stream in ("out", "err")))

    def keep(self, slot: Workspace) -> bool:
        """Keep what a call that has printed nothing has for the next one, if nothing was added to
        it.
        """
        slot.reusable = slot.files is not None and not slot.broken and is_as_given(slot, slot.files)
        return slot.reusable

    def clean_unused(self) -> None:
        """Take away what was kept since before the last time this was called, and no call has
        had.
        """
        for number, kept in list(self._kept.items()):
            for one in self._unused.intersection(kept):
                if self.numbers.is_free(number) or self.numbers.is_shared(
                    number, one.ref.job
                ):  # else it is taken soon
                    kept.remove(one)
                    with contextlib.suppress(OSError):
                        self._drop(one)
        self._kept = {number: kept for number, kept in self._kept.items() if kept}
        self._unused = {one for kept in self._kept.values() for one in kept}

    def _drop(self, kept: Workspace) -> None:
        """Raises OSError when the directories could not be taken away; then nobody gets the slot
        any more.
        """
        self._close(kept)
        try:
            self.clean(kept)
        except OSError:
            self.numbers.spoil(kept.number)
            raise

    def pass_on(self, slot: Workspace) -> None:
        """No process is left and the directories are gone: another attempt may have the slot before
        the output is sent.
        """
        if not slot.broken:
            slot.handed_over = True
            self._early.add(slot.number)
            if slot.reusable:
                self._kept.setdefault(slot.number, []).append(slot)
            self._leave(slot)

    def _leave(self, slot: Workspace) -> None:
        if slot.broken:
            self.numbers.spoil(slot.number)
        self.numbers.give(slot.number)

    def close(self, alive: Collection[str] = ()) -> None:
        """Remove the tokens, but those of attempts that run on without the worker: ``alive``, where
        their directories are below those of all slots.
        """
        for path, directories, _ in os.walk(self.tokens):
            for name in list(directories):
                below = os.path.relpath(f"{path}/{name}", self.tokens)
                if below in alive:
                    directories.remove(name)
                elif not any(one.startswith(f"{below}/") for one in alive):
                    shutil.rmtree(f"{path}/{name}", ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(self.tokens)


def _token_directory(root: Path, memory: str) -> str:
    """Make the directory of a worker's tokens, if it is missing: in memory, or else on its disk.
    Raises OSError.

    Only root's is in memory: systemd-logind deletes there what is another user's when that user
    logs out. Whoever comes first may have put something else in its place.
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


def _spread(path: str) -> None:
    """Tell the file system that what is in the directories of this one is not read together.

    Without it ext4 has all slots in one group of inodes, and without a journal it passes over each
    one there that was deleted in the last minute to find one that is free. Others need no such
        word. Source: chattr(1), attribute T.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            [flags] = struct.unpack("l", fcntl.ioctl(fd, _GET_FLAGS, bytes(struct.calcsize("l"))))
            fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", flags | _TOP))
    finally:
        os.close(fd)


def _is_empty(slot: Workspace) -> bool:
    """Whether nothing was printed there."""
    return not (os.fstat(slot.out).st_size or os.fstat(slot.err).st_size)


def _open_both(path: str) -> tuple[int, int]:
    """Open the two files of an attempt's output. Raises OSError."""
    out = _open(f"{path}.out")
    try:
        return out, _open(f"{path}.err")
    except OSError:
        os.close(out)
        raise


def _open(path: str) -> int:
    """Open a file of an attempt's output; make it, and the directory of its slot, if it is missing.
    Raises OSError.
    """
    try:
        return os.open(path, _FLAGS, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        return os.open(path, _FLAGS, 0o600)


def _make(path: str, mode: int) -> None:
    """Make a directory of an attempt, and that of its slot if it is missing. Raises OSError."""
    try:
        os.mkdir(path, mode)
    except FileNotFoundError:
        _passable(os.path.dirname(path))
        os.mkdir(path, mode)
    if mode & 0o011:
        os.chmod(path, mode)  # whatever the umask is


def _passable(path: str) -> str:
    """Make a directory that others may pass and nobody else may list or change, if it is
    missing.
    """
    os.makedirs(path, 0o700, exist_ok=True)
    os.chmod(path, 0o711)
    return path


def write_token(slot: Workspace, token: str) -> None:
    """Replace the file of an attempt's token, as `write_given` does. Raises OSError."""
    try:
        _write_new(slot, slot.token_file, token)
    except FileExistsError:
        write_given(slot, "token", token)
    except FileNotFoundError:  # somebody has deleted the directory
        _make(slot.given, 0o711)
        _write_new(slot, slot.token_file, token)


def write_given(slot: Workspace, name: str, text: str) -> None:
    """Replace a file that an attempt is given, for the owner of its directory only; who reads it
    finds the old or the new one. Raises OSError.
    """
    slot.leave_to_nobody()
    path = f"{slot.given}/{name}"
    draft = f"{path}.new"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        _write_new(slot, draft, text)
    except FileNotFoundError:  # somebody has deleted the directory
        _make(slot.given, 0o711)
        _write_new(slot, draft, text)
    os.rename(draft, path)


def _write_new(slot: Workspace, path: str, token: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    try:
        os.write(file, token.encode())
        owner = slot.owner or os.stat(slot.workdir)[4:6]  # it is not known of an adopted attempt
        if owner[0] != os.geteuid():
            os.fchown(file, *owner)
    finally:
        os.close(file)


def write_host_file(slot: Workspace, text: str) -> str:
    """Write the hosts of a task's gang for it to read, and return the path. Raises OSError."""
    slot.leave_to_nobody()
    path = f"{slot.given}/hosts"
    _write_new(slot, path, text)
    return path
