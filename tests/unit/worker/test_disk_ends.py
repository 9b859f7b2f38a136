"""What the disk of a host makes of the end of a task."""

from __future__ import annotations

import errno
import os

import pytest

from iris_core.states import Cause
from iris_worker.agent.host import host
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
