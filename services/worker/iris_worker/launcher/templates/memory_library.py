"""Builds the library by which processes restore their memory, where the kernel and a compiler can.

Out of scope: what it does (call_memory.c), and who loads it (template_memory).
Source: docs/adr/0162-calls-restore-their-memory.md.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("call_memory.c")
COMPILERS = ("cc", "gcc", "clang")
_OPTIONS = (
    "-O2",
    "-Wall",
    "-Wextra",
    "-shared",
    "-fPIC",
    "-fno-stack-protector",
    "-U_FORTIFY_SOURCE",
    "-Wl,-z,now",
)
"""Nothing may be resolved or checked by the C library while memory is restored."""
_BUILD_S = 60.0
_NO_COMPILER = f"there is no compiler: none of {', '.join(COMPILERS)} is in the PATH of the worker"
_USERFAULTFD, _USER_MODE_ONLY = 323, 1
_UFFDIO_API, _UFFD_API, _WP_ASYNC = 0xC018AA3F, 0xAA, 1 << 15


class NotBuilt(Exception):
    """There is no library, for the reason given."""


class MemoryLibrary(NamedTuple):
    """The file, and else why there is none."""

    path: str
    why: str = ""


NO_LIBRARY = MemoryLibrary("")


class LibraryBuilder:
    """Builds the library of one worker once. ``is_wanted``: else there is none."""

    def __init__(self, directory: Path, *, is_wanted: bool) -> None:
        self._directory = directory
        self._is_wanted = is_wanted
        self._built: asyncio.Future[MemoryLibrary] | None = None

    @property
    def refusal(self) -> str:
        """Why there is no library, as far as is known without building it; empty: there is."""
        if not self._is_wanted:
            return "restored_calls of [worker] is off"
        if why := kernel_refusal():
            return why
        if _place(self._directory).exists() or _compiler():
            return ""
        return _NO_COMPILER

    @property
    def present(self) -> MemoryLibrary:
        """The library if it was built, without waiting for that."""
        place = _place(self._directory)
        return MemoryLibrary(str(place)) if self._is_wanted and place.exists() else NO_LIBRARY

    async def library(self) -> MemoryLibrary:
        """The library, or why there is none."""
        if self._built is None:
            self._built = asyncio.ensure_future(asyncio.to_thread(self._build))
        return await asyncio.shield(self._built)

    def _build(self) -> MemoryLibrary:
        if why := self.refusal:
            return MemoryLibrary("", why)
        try:
            return MemoryLibrary(str(build(self._directory)))
        except NotBuilt as error:
            return MemoryLibrary("", str(error))


def kernel_refusal() -> str:
    """Why this kernel does not tell which pages a process writes; empty: it does."""
    if (machine := os.uname().machine) != "x86_64":
        return f"it was not tried on {machine}"
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(_USERFAULTFD, os.O_CLOEXEC | _USER_MODE_ONLY)
    if fd < 0:
        return f"the kernel refuses userfaultfd: {os.strerror(ctypes.get_errno())}"
    try:
        fcntl.ioctl(fd, _UFFDIO_API, struct.pack("QQQ", _UFFD_API, _WP_ASYNC, 0))
    except OSError:
        return "the kernel is older than Linux 6.7"
    finally:
        os.close(fd)
    return ""


def _compiler() -> str | None:
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def _place(directory: Path) -> Path:
    digest = hashlib.sha256(SOURCE.read_bytes() + repr(_OPTIONS).encode()).hexdigest()[:16]
    return directory / f"call_memory-{digest}.so"


def build(directory: Path) -> Path:
    """The library in a directory, which is built if it is not there. Raises NotBuilt."""
    library = _place(directory)
    if library.exists():
        return library
    compiler = _compiler()
    if compiler is None:
        raise NotBuilt(_NO_COMPILER)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as draft:
            made = Path(draft, library.name)
            subprocess.run(
                [compiler, *_OPTIONS, "-o", str(made), str(SOURCE)],
                check=True,
                capture_output=True,
                timeout=_BUILD_S,
            )
            made.chmod(0o444)
            os.replace(made, library)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        raise NotBuilt(f"{compiler} failed: {said[0] if said else error}") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise NotBuilt(f"{compiler}: {error}") from None
    return library
