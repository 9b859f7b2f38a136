"""A worker as a separate process that can be killed, paused and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import Self

import psutil

from iris_worker.data_directory import data_id
from tests.house.repository import ROOT
from tests.support import warm

UNCONFINED = {"sandbox": "off", "run_as": "worker", "container_runtime": "none"}
"""Settings of a worker of root for tests whose tasks use the test's own directory. Whether podman
works takes a quarter of a second of CPU to find out, every half a minute.
"""
END_S = 60
_NEEDED = tuple(dict.fromkeys(map(Path, (sys.base_prefix, sys.prefix, ROOT))))
"""What an interpreter of the tests is made of. One below another of these has its way already."""
_PASSABLE = 0o001


def as_user(user: int | None) -> list[str]:
    """The words before a command that run it as another user, for whom a way to this interpreter is
    opened.
    """
    if user is None:
        return []
    change = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    return [*opened_way(), *change]


def opened_way() -> list[str]:
    """The words before a command of root in whose mounts others can reach this interpreter and the
    checkout; empty where they can anyway.
    """
    closed = {path: place for path in _NEEDED if (place := closed_above(path)) is not None}
    if not closed:
        return []
    return ["unshare", "--mount", "sh", "-c", f'{_way_to(closed)} && exec "$@"', "sh"]


def closed_above(path: Path) -> Path | None:
    """The topmost directory above a path that others may not pass; None when they may pass all."""
    closed = [place for place in path.parents if not place.stat().st_mode & _PASSABLE]
    return closed[-1] if closed else None


def _way_to(closed: Mapping[Path, Path]) -> str:
    """Commands after which these paths are all that there is in the closed directories above
    them.
    """
    kept = {path: f"/mnt/{number}" for number, path in enumerate(closed)}
    return " && ".join(
        [
            "mount -t tmpfs none /mnt",
            *(f"mkdir {at} && mount --bind {quote(str(path))} {at}" for path, at in kept.items()),
            *(
                f"mount -t tmpfs -o mode=755 none {quote(str(place))}"
                for place in dict.fromkeys(closed.values())
            ),
            *(
                f"mkdir -p {quote(str(path))} && mount --bind {at} {quote(str(path))}"
                for path, at in kept.items()
            ),
        ]
    )


class WorkerProcess:
    """``python -m iris_worker`` on a data directory that outlives it.

    Args:
        log: a file for what it says on stderr. user: the id of the user that it runs as; None: this
            process'.
        program: its module. fresh: start an interpreter for it, which inherits what this process'
            children do.
        settings: keys of the section ``[worker]``; unless they say otherwise, tasks are not
            confined, and have no images.
    """

    def __init__(
        self,
        url: str,
        data: Path,
        worker: str = "w0",
        *,
        log: Path | None = None,
        user: int | None = None,
        program: str = "iris_worker",
        fresh: bool = False,
        **settings: object,
    ) -> None:
        self.data = data
        self._log = log
        self._user = user
        self._program = program
        self._fresh = fresh
        self._args = [f"nats.url={url}", f"worker.id={worker}", f"worker.data={data}"]
        self._args += [f"worker.{key}={value}" for key, value in {**UNCONFINED, **settings}.items()]
        self._process: warm.Fork | subprocess.Popen[bytes] | None = None

    async def start(self) -> Self:
        given = [word for text in self._args for word in ("--set", text)]
        environ = {key: value for key, value in os.environ.items() if not key.startswith("IRIS_")}
        leak = os.open(os.devnull, os.O_RDONLY)  # what a careless parent leaves open
        log = (
            os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            if self._log is not None
            else None
        )
        try:
            if self._user is None and not self._fresh:
                self._process = warm.start(
                    self._program, given, environ, stderr=log or 2, pass_fds=[leak]
                )
            else:
                command = [*as_user(self._user), sys.executable, "-m", self._program, *given]
                self._process = subprocess.Popen(command, env=environ, pass_fds=[leak], stderr=log)  # noqa: ASYNC220
        finally:
            os.close(leak)
            if log is not None:
                os.close(log)
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def launchers(self) -> list[int]:
        """The launchers of its data directory: one, or none while nothing runs without a worker."""
        return launchers_of(self.data)

    @property
    def launcher_pid(self) -> int:
        [pid] = self.launchers()
        return pid

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def kill(self) -> None:
        """As if it had crashed: what it runs goes on without it."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """In order. Returns its exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return 0
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        return await asyncio.to_thread(process.wait, END_S)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self._end(signal.SIGTERM)
        forget_tokens(self.data)

    async def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        process, self._process = self._process, None
        assert process is not None
        return await asyncio.to_thread(process.wait, END_S)


def forget_tokens(data: Path) -> None:
    """Remove the tokens that a worker on this data directory left when it was killed, as its next
    start would.
    """
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(f"/dev/shm/iris-{data_id(data)}")


def launchers_of(data: Path) -> list[int]:
    """The launchers of a data directory. What they start has their command too, until it has become
    the program.
    """
    found = {
        process.pid: process.info["ppid"]
        for process in psutil.process_iter(["cmdline", "ppid", "status"])
        if (process.info["cmdline"] or [])[3:] == ["iris_worker.launcher.launcher", str(data)]
        and process.info["status"] != psutil.STATUS_ZOMBIE
    }
    return [pid for pid, parent in found.items() if parent not in found]


def lives(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # before it was opened, or before it was read
        return False


async def until(true: Callable[[], object]) -> None:
    """Poll what no message tells."""
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


async def number_from(path: Path) -> int:
    """What a task wrote there, once it has."""
    await until(lambda: path.exists() and path.read_text().strip().isdigit())
    return int(path.read_text())


def environ(pid: int) -> dict[str, str]:
    """The initial environment of a process; empty when it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return psutil.Process(pid).environ()
    return {}
