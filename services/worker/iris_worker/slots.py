"""Where an attempt works and where its output goes; both are used again, because making them costs as much as a fork.

``attempts/<job>-<index>-<attempt>`` is the attempt's own directory, ``output/<n>.out`` and ``.err`` hold what it
prints until that is told. Output goes to files and not through pipes: a worker that restarts finds them, and a task
is never held up or killed because nobody reads. An empty directory and emptied files serve the next attempt.
Not in this room: processes; what is read from the files (logs).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from iris_core.messages import AttemptRef

ERROR_FILE = ".iris-error"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_SPARES = 64
_FRESH = stat.S_IFDIR | 0o700
_ERROR_LIMIT = 2000


@dataclass(slots=True, eq=False)
class Output:
    """Two open files, shared with the process that writes them."""

    number: int
    out: int
    err: int


@dataclass(slots=True, eq=False)
class Slot:
    """One attempt's place on disk."""

    ref: AttemptRef
    workdir: str
    output: Output


def label(ref: AttemptRef) -> str:
    """The attempt's name on this host's disk."""
    return f"{ref.job}-{ref.index}-{ref.attempt}"


def read_label(text: str) -> AttemptRef | None:
    """What `label` wrote, None for anything else."""
    parts = text.split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return AttemptRef(*map(int, parts))


class Slots:
    """The directories under a worker's data directory. Raises OSError when the disk does not do its part."""

    def __init__(self, root: Path) -> None:
        self.attempts = str(root / "attempts")
        self._output = str(root / "output")
        self._trash = str(root / "trash")
        self._spare_outputs: list[Output] = []
        self._spare_dirs: list[str] = []
        self._next = 0
        self._thrown = 0
        for path in (self.attempts, self._output, self._trash):
            os.makedirs(path, mode=0o700, exist_ok=True)

    def begin(self, keep: set[AttemptRef], keep_outputs: set[int]) -> None:
        """A worker starts: everything but what lives on, or is still to be told, goes to the trash."""
        for name in os.listdir(self.attempts):
            if read_label(name) not in keep:
                self._throw(f"{self.attempts}/{name}")
        for name in os.listdir(self._output):
            number = name.partition(".")[0]
            if not number.isdigit() or int(number) not in keep_outputs:
                os.unlink(f"{self._output}/{name}")
        self._next = max(keep_outputs, default=-1) + 1

    def take(self, ref: AttemptRef, prepared: bool = False) -> Slot:
        """A place for ``ref``; its directory exists already when it was ``prepared``."""
        workdir = self.workdir(ref)
        if not prepared:
            self._make(workdir)
        return Slot(ref, workdir, self._spare_outputs.pop() if self._spare_outputs else self.open_output(None))

    def workdir(self, ref: AttemptRef) -> str:
        return f"{self.attempts}/{label(ref)}"

    def open_output(self, number: int | None) -> Output:
        """The files of slot ``number``, or of a new one."""
        if number is None:
            number, self._next = self._next, self._next + 1
        out = os.open(f"{self._output}/{number}.out", _FLAGS, 0o600)
        try:
            return Output(number, out, os.open(f"{self._output}/{number}.err", _FLAGS, 0o600))
        except OSError:
            os.close(out)
            raise

    def give_output(self, output: Output, used: bool) -> None:
        """Nothing of what the files hold is needed any more, and no process holds them open."""
        if used:
            os.ftruncate(output.out, 0)
            os.ftruncate(output.err, 0)
        if len(self._spare_outputs) < _SPARES:
            self._spare_outputs.append(output)
            return
        os.close(output.out)
        os.close(output.err)
        os.unlink(f"{self._output}/{output.number}.out")
        os.unlink(f"{self._output}/{output.number}.err")

    def give_workdir(self, workdir: str) -> bool:
        """The attempt is over; whether something was thrown into the trash that `empty_trash` has to delete."""
        try:
            if os.stat(workdir).st_mode == _FRESH and not os.listdir(workdir):
                if len(self._spare_dirs) < _SPARES:
                    self._spare_dirs.append(workdir)
                else:
                    os.rmdir(workdir)
                return False
            self._throw(workdir)
        except FileNotFoundError:
            return False  # the task deleted it itself
        return True

    def empty_trash(self) -> None:
        """Delete what was thrown away; slow, for a thread."""
        for name in os.listdir(self._trash):
            shutil.rmtree(f"{self._trash}/{name}", ignore_errors=True)
            with contextlib.suppress(OSError):
                os.unlink(f"{self._trash}/{name}")

    def _make(self, workdir: str) -> None:
        while self._spare_dirs:
            with contextlib.suppress(OSError):  # somebody removed it, or put something into it
                os.rename(self._spare_dirs.pop(), workdir)
                return
        os.mkdir(workdir, 0o700)

    def _throw(self, path: str) -> None:
        self._thrown += 1
        os.rename(path, f"{self._trash}/{os.getpid()}-{self._thrown}")


def read_error_file(workdir: str) -> str:
    """What a task wrote into its IRIS_ERROR_FILE, in one line; empty when nothing. Never raises."""
    try:
        fd = os.open(f"{workdir}/{ERROR_FILE}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        return " ".join(os.read(fd, _ERROR_LIMIT).decode(errors="replace").split())
    except OSError:
        return ""
    finally:
        os.close(fd)
