"""What the disk of a host makes of the end of a task."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.states import Cause
from iris_worker.attempt.ends import describe
from iris_worker.attempt.slots.workspaces import Workspace
from iris_worker.host import host, host_warnings
from iris_worker.launcher.records.records import Exit
from tests.unit.worker.test_executor import Open, bus, end_of, keeping, opened, until, uploads  # noqa: F401

MIB = 1 << 20


def disk(free_mib: int, inodes: int, free_inodes: int) -> os.statvfs_result:
    """A file system with blocks of a MiB."""
    return os.statvfs_result(
        (MIB, MIB, 1000, free_mib, free_mib, inodes, free_inodes, free_inodes, 0, 255)
    )


@pytest.mark.parametrize(
    ("found", "lack"),
    [
        (disk(64, 10_000, 1000), ""),
        (disk(64, 0, 0), ""),
        (disk(63, 10_000, 1000), "disk full: 63 MiB free"),
        (disk(64, 10_000, 999), "disk full: 999 inodes free"),
    ],
)
def test_a_disk_is_full_without_blocks_or_inodes(found: os.statvfs_result, lack: str) -> None:
    assert host.lack(found) == lack


def fail_with(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Have the disk refuse what is written to it."""

    def refuse(_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "utime", refuse)


async def exited(executor_of: Open, code: int) -> tuple[Cause, int | None, str]:
    """How a task with this exit code ends."""
    executor = await executor_of()
    keeping(executor, "sh", "-c", f"exit {code}")
    await until(lambda: end_of(executor) is not None)
    ended = end_of(executor)
    assert ended is not None
    return ended.cause, ended.exit_code, ended.error


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO])
async def test_where_nothing_can_be_written_a_failure_is_that_of_the_host(
    opened: Open,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    fail_with(monkeypatch, number)
    error = f"exit code 3; the disk of its host takes nothing any more: {os.strerror(number)}"
    assert await exited(opened, 3) == (Cause.INFRASTRUCTURE, None, error)


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EROFS, 0), (errno.EPERM, 3), (errno.ENOSPC, 3)]
)
async def test_other_ends_are_those_of_the_task(
    opened: Open,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    code: int,
) -> None:
    fail_with(monkeypatch, number)
    assert await exited(opened, code) == (Cause.EXITED, code, "")


@pytest.mark.parametrize(
    ("exit_", "words"),
    [
        (Exit(126), "exit code 126"),
        (Exit(126, error="./run: permission denied"), "./run: permission denied"),
    ],
)
def test_a_command_that_cannot_be_run_for_its_mount_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_: Exit, words: str
) -> None:
    monkeypatch.setattr(os, "fstatvfs", lambda _: noexec())
    with (tmp_path / "err").open("w+b") as err:
        slot = Workspace(AttemptRef(1, 0, 1), 0, "", str(tmp_path), "", err.fileno(), err.fileno())
        ended = describe(slot, exit_)

    assert (ended.cause, ended.exit_code) == (Cause.EXITED, 126)
    assert ended.error == (
        f"{words}; the directories of tasks on its host are on a file system mounted noexec, where no file can be "
        "executed: run it by its interpreter, or have the worker's data on another file system"
    )


def noexec() -> os.statvfs_result:
    return os.statvfs_result((*disk(64, 0, 0)[:8], os.ST_NOEXEC, 255))


def test_data_where_nothing_can_be_executed_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dict(host_warnings.of_data(str(tmp_path))) == {}

    monkeypatch.setattr(os, "statvfs", lambda _: noexec())
    assert dict(host_warnings.of_data("/data")) == {
        "noexec_data": "its data, /data, is on a file system mounted noexec"
    }
