"""Disks for tests: loop-mounted ext4 files that fill up, turn read-only or lose power.

Power loss is ext4's own (`EXT4_IOC_SHUTDOWN` without flushing its journal): from then on the device
holds what was synced to it, plus what the kernel happened to have written back, and takes no more.
Nothing of it is left behind: unmounting frees the loop device, and the file lies in the test's
    directory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import cache
from io import RawIOBase
from pathlib import Path

import pytest

from tests.support.needs import needs

_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = struct.pack("I", 2)
_OPTIONS = "loop,errors=remount-ro,commit=600"
"""Until it is synced nothing is committed: a test may take longer than the usual five seconds."""
_BUSY_S = 10.0
_FILLER = "filler"
_PIECE = 64 << 10


class Disk:
    """One file system in ``image``, seen at ``path`` while it is mounted."""

    def __init__(self, image: Path, path: Path, megabytes: int = 0) -> None:
        self.image = image
        self.path = path
        path.mkdir(parents=True)
        if megabytes:
            image.touch()
            os.truncate(image, megabytes << 20)
            _run("mkfs.ext4", "-q", "-m", "0", image)
        _run("mount", "-o", _OPTIONS, image, path)

    def fill(self) -> None:
        """Take all the room there is, to the last block."""
        with (self.path / _FILLER).open("ab", buffering=0) as filler:
            while self._takes(filler):
                pass

    def _takes(self, filler: RawIOBase) -> bool:
        try:
            return bool(filler.write(bytes(_PIECE)))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return False

    def make_room(self) -> None:
        (self.path / _FILLER).unlink()

    def make_read_only(self) -> None:
        """As ext4 does by itself when it finds an error: files that are open for writing are no
        exception.
        """
        device = _run("findmnt", "--noheadings", "--output", "SOURCE", self.path).strip()
        Path("/sys/fs/ext4", Path(device).name, "trigger_fs_error").write_text("told to by a test")

    def repair(self) -> None:
        """What an operator does then: unmount, check, mount again.

        A copy of what is on the device: a process with mounts of its own (`ip netns exec`, a
        container) that started meanwhile holds the old file system, and the kernel would mount that
        again as it is.
        """
        self.unmount()
        shutil.copyfile(self.image, self.image.with_suffix(".copy")).replace(self.image)
        subprocess.run(["e2fsck", "-p", self.image], capture_output=True, check=False)
        _run("mount", "-o", _OPTIONS, self.image, self.path)

    def write_back(self) -> None:
        """Put on the device what the kernel still holds, as it does by itself within half a
        minute.
        """
        _run("sync", "--file-system", self.path)

    def lose_power(self) -> None:
        """What is not on the device by now never gets there."""
        root = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(root, _SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(root)

    def unmount(self) -> None:
        """Return when it is unmounted; whoever used it may still be about to end. Safe to call
        twice.
        """
        deadline = time.monotonic() + _BUSY_S
        while os.path.ismount(self.path):
            tried = subprocess.run(
                ["umount", self.path], capture_output=True, text=True, check=False
            )
            if tried.returncode and time.monotonic() > deadline:
                _run("umount", "--lazy", self.path)
                raise OSError(f"{tried.stderr.strip()}")
            time.sleep(0.02)


@cache
def refusal() -> str:
    """Why no disk can be mounted on this machine; empty when one can."""
    needed = ("mkfs.ext4", "e2fsck", "mount", "umount", "findmnt", "losetup")
    missing = [program for program in needed if shutil.which(program) is None]
    if missing:
        return f"no {', '.join(missing)} here"
    if os.geteuid() != 0:
        return "only root may mount"
    free = subprocess.run(["losetup", "--find"], capture_output=True, text=True, check=False)
    return free.stderr.strip() if free.returncode else ""


MakeDisk = Callable[..., Disk]


@pytest.fixture
@needs("a disk")
def make_disk(tmp_path: Path) -> Iterator[MakeDisk]:
    """Make disks that are unmounted at the end, whatever happens."""
    made: list[Disk] = []

    def make(name: str, megabytes: int = 0, *, copy: Path | None = None) -> Disk:
        image = tmp_path / f"{name}.img"
        if copy is not None:
            shutil.copyfile(copy, image)
        made.append(Disk(image, tmp_path / name, megabytes))
        return made[-1]

    yield make
    for disk in made:
        disk.unmount()


def _run(*words: object) -> str:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout
