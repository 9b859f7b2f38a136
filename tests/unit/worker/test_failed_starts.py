"""Which failed starts put a host in trouble, and how it finds out that it can start processes
again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Stage, TaskTemplate
from iris_core.spec.resources import Device, ResourceRequest
from iris_core.states import Cause, KernelStatus
from iris_worker.agent.local_attempt import LocalAttempt
from iris_worker.attempt.artifacts.directory import NoDirectory
from iris_worker.attempt.executor import Executor
from iris_worker.attempt.health.failed_starts import FailedStarts
from iris_worker.attempt.slots.isolation import NoAccount
from iris_worker.host.devices import Accelerators
from iris_worker.launcher.processes.exits import to_refusal
from iris_worker.launcher.records.records import Exit
from iris_worker.launcher.starts.spawn import NotRunnable, failure
from iris_worker.launcher.starts.starts import Stopped
from iris_worker.service.start_trials import StartTrials
from tests.unit.worker.test_executor import Open, bus, opened, until, uploads  # noqa: F401

NO_ENV: Mapping[str, str] = {}
FAULT = OSError(errno.EROFS, "Read-only file system")


class Host:
    """The failed starts of a host, and how often its trouble began or ended."""

    def __init__(self, limit: int = 3) -> None:
        self.changes = 0
        self.starts = FailedStarts(limit, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def fail(self, times: int = 1, *needs: str) -> None:
        for _ in range(times):
            assert self.starts.refused(FAULT, frozenset(needs)).cause is Cause.INFRASTRUCTURE


def test_starts_that_fail_in_a_row_are_trouble_until_one_succeeds() -> None:
    host = Host()
    host.fail(2)
    assert (host.starts.trouble, host.changes) == ("", 0)
    host.fail()
    assert host.starts.trouble == "3 starts in a row failed: [Errno 30] Read-only file system"
    host.fail()
    assert host.changes == 1
    host.starts.started()
    assert (host.starts.trouble, host.changes) == ("", 2)


def test_a_task_that_starts_between_failures_ends_their_row() -> None:
    host = Host()
    for _ in range(5):
        host.fail(2)
        host.starts.started()
    assert (host.starts.trouble, host.changes) == ("", 0)


def test_one_failure_after_a_trial_is_trouble_again() -> None:
    host = Host()
    host.fail(3)
    host.starts.started(trial=True)
    assert not host.starts.trouble
    host.fail()
    assert host.starts.trouble
    host.starts.started()
    host.fail()
    assert not host.starts.trouble


def test_only_starts_that_need_as_much_end_a_row() -> None:
    host = Host()
    host.fail(2, "devices", "a terminal")
    host.starts.started()
    host.starts.started(frozenset({"devices", "a bundle"}))
    host.fail(1, "devices")
    assert (
        host.starts.trouble
        == "3 starts in a row with devices failed: [Errno 30] Read-only file system"
    )
    host.starts.started()
    assert host.starts.trouble
    host.starts.started(frozenset({"devices", "a terminal"}))
    assert (host.starts.trouble, host.changes) == ("", 2)


def test_failures_with_nothing_in_common_are_those_of_the_host() -> None:
    host = Host()
    host.fail(1, "devices")
    host.starts.started()
    host.fail(2, "a terminal")
    assert host.starts.trouble == "3 starts in a row failed: [Errno 30] Read-only file system"


def test_what_failures_have_in_common_is_said_when_others_succeed() -> None:
    host = Host()
    host.fail(3, "a bundle")
    assert host.starts.trouble == "3 starts in a row failed: [Errno 30] Read-only file system"


def test_a_trial_proves_nothing_of_what_failed_but_that_it_may_be_tried() -> None:
    host = Host()
    host.fail(3, "an output directory")
    host.starts.started(trial=True)
    host.starts.started()
    assert not host.starts.trouble
    host.fail(1, "an output directory")
    assert host.starts.trouble


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_disk_that_gives_no_bundles_is_trouble(number: int) -> None:
    host = Host()
    for _ in range(3):
        host.starts.not_fetched(number, "bundle: the disk")
        host.starts.started()
    assert host.starts.trouble == "3 starts in a row with a bundle failed: bundle: the disk"


@pytest.mark.parametrize(
    "number", [None, errno.ENOSPC, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EEXIST]
)
def test_what_is_in_a_bundle_is_no_fault_of_its_host(number: int | None) -> None:
    host = Host(limit=1)
    host.starts.not_fetched(number, "bundle: what is in it")
    assert not host.starts.trouble


def test_a_limit_of_zero_counts_nothing() -> None:
    host = Host(limit=0)
    host.fail(9)
    assert not host.starts.trouble


def test_what_the_launcher_says_of_its_host_is_counted() -> None:
    host = Host(limit=1)
    host.starts.exited(to_refusal(OSError("bubblewrap: No permissions to create new namespace")))
    assert (
        host.starts.trouble
        == "1 starts in a row failed: bubblewrap: No permissions to create new namespace"
    )


OF_TASKS = [
    OSError(errno.EADDRINUSE, "port 10000, its gang's coordinator port, is in use"),
    OSError(errno.EBUSY, "4 of 4 devices asked for; free: none"),
    NoAccount("user 'ada' has no account on this host"),
    NoDirectory("--output a/b: a is not a directory in the bundle"),
]


@pytest.mark.parametrize("error", OF_TASKS, ids=str)
def test_what_a_task_asks_for_is_no_fault_of_its_host(error: OSError) -> None:
    host = Host(limit=1)
    host.starts.refused(error)
    assert not host.starts.trouble


OF_PROGRAMS = [
    failure(f"OSError:{errno.EIO:x}:".encode(), "./truncated"),
    failure(f"OSError:{errno.ELIBBAD:x}:".encode(), "./interpreted"),
    failure(f"OSError:{errno.E2BIG:x}:".encode(), "./long"),
    failure(f"OSError:{errno.EAGAIN:x}:".encode(), "./many"),
    failure(f"OSError:{errno.ENOMEM:x}:".encode(), "./large"),
    Stopped("it was stopped again and again before it began"),
    NotRunnable(127, "x: command not found"),
]


@pytest.mark.parametrize("error", OF_PROGRAMS, ids=str)
def test_what_a_program_does_is_no_fault_of_its_host(error: Exception) -> None:
    assert not to_refusal(error).of_host
    host = Host(limit=1)
    host.starts.exited(to_refusal(error))
    assert not host.starts.trouble


def test_a_program_of_the_host_that_cannot_be_read_is_a_fault_of_it() -> None:
    host = Host(limit=1)
    host.starts.exited(
        to_refusal(failure(f"OSError:{errno.EIO:x}:".encode(), "python3", of_host=True))
    )
    assert (
        host.starts.trouble == "1 starts in a row failed: [Errno 5] Input/output error: 'python3'"
    )


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ELIBBAD, errno.EAGAIN, errno.ENOMEM])
def test_other_errors_of_a_program_of_the_host_are_no_fault_of_it(number: int) -> None:
    assert not to_refusal(failure(f"OSError:{number:x}:".encode(), "python3", of_host=True)).of_host


@pytest.mark.parametrize("number", [errno.ELIBBAD, errno.EAGAIN, errno.E2BIG])
def test_a_program_that_cannot_be_run_is_a_failure_of_its_task(number: int) -> None:
    assert to_refusal(failure(f"OSError:{number:x}:".encode(), "./program")).code == 126


def test_what_fails_before_the_program_is_a_fault_of_the_host() -> None:
    exit_ = to_refusal(failure(f"OSError:{errno.ENOENT:x}:noexec".encode(), "true"))
    assert exit_ == Exit(error="[Errno 2] No such file or directory", of_host=True)


# ── with a launcher ───────────────────────────────────────────────────────────────────────────────


async def launch(
    executor: Executor,
    *indexes: int,
    command: str = "true",
    gpus: int = 0,
    env: Mapping[str, str] = NO_ENV,
) -> None:
    """Start tasks of one job, and wait until that is decided."""
    device = Device("gpu", "auto", gpus) if gpus else None
    template = TaskTemplate(1, "/t", (command,), dict(env), 9, ResourceRequest(device=device))
    for index in indexes:
        ref = AttemptRef(1, index, 0)
        executor.launch(LocalAttempt(ref, template, Stage(ref, KernelStatus.PREPARING, 1)))
    executor.flush()
    await until(lambda: not executor.attempts.starting)


async def test_a_host_in_trouble_is_well_when_a_trial_start_succeeds(
    opened: Open,  # noqa: F811
    tmp_path: Path,
) -> None:
    executor = await opened()
    attempts = tmp_path / "attempts"
    gone = attempts.rename(tmp_path / "gone")
    attempts.touch()
    await launch(executor, 0, 1, 2)
    assert executor.trouble().startswith("3 starts in a row failed: [Errno 20] Not a directory")
    trials = asyncio.ensure_future(StartTrials(executor, 0.01).run())
    await until(lambda: executor.trouble().startswith("5 starts"))
    attempts.unlink()
    gone.rename(attempts)
    await until(lambda: not executor.trouble())
    trials.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await trials
    await until(lambda: not executor.attempts.by_ref)
    await launch(executor, 3)
    assert not executor.trouble()


async def test_a_host_is_in_trouble_while_directories_cannot_be_deleted(
    opened: Open,  # noqa: F811
    tmp_path: Path,
) -> None:
    executor = await opened()
    first = await executor.prepare(AttemptRef(1, 0, 0))
    attempts = tmp_path / "attempts"
    gone = attempts.rename(tmp_path / "gone")
    attempts.touch()
    executor.finisher.discard(executor.attempts.by_ref[first.ref])
    for _ in range(2):
        assert executor.trouble() == (
            "the directories of an attempt cannot be deleted: Not a directory: " + first.workdir
        )
    attempts.unlink()
    gone.rename(attempts)
    assert not executor.trouble()
    assert not Path(first.workdir).exists()
    second = await executor.prepare(AttemptRef(1, 1, 0))
    assert second.number != first.number


async def test_programs_that_do_not_exist_are_no_trouble(opened: Open) -> None:  # noqa: F811
    executor = await opened()
    await launch(executor, 0, 1, 2, 3, command="no-such-program")
    assert not executor.trouble()


async def test_a_device_that_is_gone_is_trouble_until_it_is_back(
    opened: Open,  # noqa: F811
    tmp_path: Path,
) -> None:
    files = [tmp_path / f"nvidia{number}" for number in range(2)]
    for file in files:
        file.touch()
    executor = await opened(found=Accelerators("gpu", tuple(map(str, files))))
    await launch(executor, 0, gpus=2)
    await until(lambda: not executor.running)
    files[1].unlink()
    for index in (1, 3, 5):
        await launch(executor, index, gpus=2)
        await launch(executor, index + 1)
    gone = f"starts in a row with devices failed: [Errno 2] No such file or directory: '{files[1]}'"
    assert executor.trouble() == f"3 {gone}"
    trials = asyncio.ensure_future(StartTrials(executor, 0.01).run())
    await until(lambda: executor.trouble().startswith(f"5 {gone}"))
    files[1].touch()
    await until(lambda: not executor.trouble())
    trials.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await trials


def cut_off() -> bytes:
    """A program that names its interpreter behind its end: the kernel says EIO of it."""
    header = bytearray(Path(sys.executable).read_bytes()[:64])
    struct.pack_into("<Q", header, 32, 64)  # where its one segment is described
    struct.pack_into("<HH", header, 54, 56, 1)
    return bytes(header) + struct.pack("<IIQQQQQQ", 3, 4, 4096, 0, 0, 28, 28, 1)


@pytest.mark.parametrize(
    "place", ["on the path of the host", "on a path of the task", "named by its path"]
)
async def test_a_program_that_cannot_be_read_is_the_hosts_on_its_path(
    opened: Open,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    directory = tmp_path / "bin"
    directory.mkdir()
    program = directory / "cut-off"
    program.write_bytes(cut_off())
    program.chmod(0o755)
    path = f"{os.environ['PATH']}:{directory}"
    if place == "on the path of the host":
        monkeypatch.setenv("PATH", path)
    executor = await opened()
    command = str(program) if place == "named by its path" else program.name
    await launch(executor, 0, 1, 2, command=command, env={"PATH": path} if "task" in place else {})
    assert bool(executor.trouble()) == (place == "on the path of the host")
