"""What the check of a host says, how often it runs, and what the failures of attempts are charged
to. Real commands.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import psutil
import pytest

from iris_core.messages.state_worker import Ended, Order, TaskTemplate
from iris_core.spec.resources import ResourceRequest
from iris_core.states import Cause
from iris_service.settings import BadSetting, load
from iris_worker.attempt.executor import Executor
from iris_worker.attempt.health.host_checks import HostChecks
from iris_worker.background import BackgroundTasks
from iris_worker.settings import CheckSettings, WorkerSettings
from tests.unit.worker.test_executor import A, Open, bus, end_of, opened, until, uploads  # noqa: F401

FAILED = Ended(Cause.EXITED, 1)
SETTINGS = CheckSettings(("true",), interval_s=0.001, when=("after_failure",))
WELL = "[ ! -e broken ] || { echo no; echo disk is away; exit 3; }"


class Clock:
    """Stands still until it is set."""

    now_s = 100.0

    def steady_s(self) -> float:
        return self.now_s


class Host:
    """One with a check: a shell program that can see how often it ran, and whether the file
    `broken` is there.
    """

    def __init__(self, place: Path) -> None:
        self.place, self.clock, self.tasks = place, Clock(), BackgroundTasks()
        self.changes: list[str] = []
        self.ends: list[Ended] = []
        self.idle, self.asked = True, 0

    def checked(self, program: str = WELL, **more: object) -> HostChecks:
        command = ("sh", "-c", f"cd {self.place}; echo >> runs; {program}")
        settings = msgspec.structs.replace(SETTINGS, command=command, interval_s=60.0, **more)
        self.checks = HostChecks(
            *(settings, "w0", self.clock, self.tasks.spawn, self._is_idle),
            *(lambda: self.changes.append(self.checks.trouble), lambda passed, seconds: None),
        )
        return self.checks

    def _is_idle(self) -> bool:
        self.asked += 1
        return self.idle

    @property
    def runs(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return len((self.place / "runs").read_text())
        return 0

    def break_(self) -> None:
        (self.place / "broken").touch()

    def repair(self) -> None:
        (self.place / "broken").unlink()

    async def fail(self, times: int = 1) -> list[Ended]:
        """The ends of so many attempts that fail at once."""
        self.ends.clear()
        for _ in range(times):
            self.checks.judge(FAILED, self.ends.append)
        await until(lambda: len(self.ends) == times)
        return self.ends


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    made = Host(tmp_path)
    yield made
    await made.tasks.end()
    made.tasks.close()


SAID = [
    ("exit 0", ""),
    ("echo well; echo warning >&2; exit 0", ""),
    ("echo one; echo '  GPU 3 is  gone '; echo; exit 1", "GPU 3 is gone"),
    ("exit 7", "exit code 7"),
    ("kill -9 $$", "killed by signal 9"),
    ("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last; exit 1", "last"),
]


@pytest.mark.parametrize(("program", "reason"), SAID)
async def test_the_last_line_of_a_failing_check_is_the_reason(
    host: Host, program: str, reason: str
) -> None:
    assert await host.checked(program).verdict() == (
        f"host check failed: {reason}" if reason else ""
    )


async def test_a_program_that_cannot_be_run_fails_the_check(host: Host) -> None:
    checks = host.checked()
    checks._settings = msgspec.structs.replace(SETTINGS, command=("/no/such/program", "-x"))
    assert "/no/such/program" in await checks.verdict()


async def test_a_check_knows_its_worker_and_no_secret(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRIS_NATS_NKEY_SEED", "secret")
    assert await host.checked("echo $(env | grep ^IRIS) in $PWD; exit 1").verdict() == (
        f"host check failed: IRIS_WORKER_ID=w0 in {host.place}"
    )


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Timeout]:
    """The time limits that were set, the newest last."""
    found: list[asyncio.Timeout] = []
    make = asyncio.timeout

    def timeout(delay: float | None) -> asyncio.Timeout:
        if delay == SETTINGS.timeout_s:
            found.append(make(None))
            return found[-1]
        return make(delay)

    monkeypatch.setattr(asyncio, "timeout", timeout)
    return found


async def test_a_check_that_hangs_is_killed_with_its_group(
    host: Host, limits: list[asyncio.Timeout]
) -> None:
    checks = host.checked(
        "echo reading /mnt; sleep 1000 & echo $! > started; mv started child; wait"
    )
    asked = asyncio.ensure_future(checks.verdict())
    child = host.place / "child"
    await until(child.exists)
    limits[-1].reschedule(0.0)
    assert await asked == "host check failed: no end within 30 s: reading /mnt"
    await until(lambda: not psutil.pid_exists(int(child.read_text())))


async def test_a_check_that_is_not_awaited_any_more_is_killed(host: Host) -> None:
    asked = asyncio.ensure_future(
        host.checked("echo $$ > started; mv started child; sleep 1000").verdict()
    )
    child = host.place / "child"
    await until(child.exists)
    await host.tasks.end()
    await asked
    await until(lambda: not psutil.pid_exists(int(child.read_text())))


# ── when it runs ──────────────────────────────────────────────────────────────────────────────────


async def test_a_host_is_in_trouble_until_its_first_check_has_passed(host: Host) -> None:
    checks = host.checked(when=("start",))
    assert checks.trouble == "host check has not passed since the worker started"
    host.tasks.spawn(checks.run())
    await until(lambda: not checks.trouble)
    assert (host.changes, host.runs) == ([""], 1)


async def test_a_host_that_is_idle_is_checked_at_intervals(host: Host) -> None:
    host.idle = False
    checks = host.checked(when=("idle",))
    checks._settings = msgspec.structs.replace(checks._settings, interval_s=0.001)
    host.break_()
    host.tasks.spawn(checks.run())
    await until(lambda: host.asked > 1)
    assert (checks.trouble, host.runs) == ("", 0)
    host.idle = True
    await until(lambda: bool(checks.trouble))
    host.idle = False
    host.repair()
    await until(lambda: not checks.trouble)
    assert host.changes == ["host check failed: disk is away", ""]


async def test_nothing_runs_without_a_command() -> None:
    checks = HostChecks(
        CheckSettings(), "w0", Clock(), asyncio.ensure_future, bool, bool, lambda *_: None
    )
    await checks.run()
    assert (checks.trouble, checks.judges(FAILED), checks.runs("before_gang")) == ("", False, False)


def test_a_check_that_would_never_run_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"^\[worker\] check.when: it names no occasion"):
        load(None, {}, ["worker.check.command=true", "worker.check.when="]).section(
            "worker", WorkerSettings
        )
    with pytest.raises(BadSetting, match=r"\[worker\] check.when: Invalid enum value 'always'"):
        load(None, {}, ["worker.check.when=always"]).section("worker", WorkerSettings)


# ── failures of attempts ──────────────────────────────────────────────────────────────────────────


JUDGED = [
    (Ended(Cause.EXITED, 0), False),
    (Ended(Cause.EXITED, 1), True),
    (Ended(Cause.EXITED, None, 11), True),
    (Ended(Cause.CANCELLED, None, 15), False),
    (Ended(Cause.INFRASTRUCTURE), False),
]


@pytest.mark.parametrize(("ended", "judged"), JUDGED)
def test_only_failures_of_tasks_are_judged_by_the_check(ended: Ended, judged: bool) -> None:
    none = partial(
        HostChecks, SETTINGS, "w0", Clock(), asyncio.ensure_future, bool, bool, lambda *_: None
    )
    assert none().judges(ended) is judged


async def test_a_failure_is_charged_to_a_host_whose_check_fails(host: Host) -> None:
    host.checked()
    assert await host.fail() == [FAILED]
    host.break_()
    host.clock.now_s += 2
    [ended] = await host.fail()
    assert (ended.cause, ended.exit_code) == (Cause.INFRASTRUCTURE, 1)
    assert ended.error == "host check failed: disk is away; the task ended with exit code 1"


async def test_failures_at_the_same_time_share_a_check(host: Host) -> None:
    host.checked()
    host.break_()
    assert {ended.cause for ended in await host.fail(20)} == {Cause.INFRASTRUCTURE}
    assert host.runs == 1


async def test_many_short_failures_do_not_run_a_check_each(host: Host) -> None:
    host.checked()
    for _ in range(200):
        assert await host.fail() == [FAILED]
        host.clock.now_s += 0.01
    assert host.runs == 2


async def test_another_failure_soon_after_is_judged_by_the_check_before(host: Host) -> None:
    host.checked()
    host.break_()
    await host.fail()
    host.repair()
    [ended] = await host.fail()
    assert (ended.cause, host.runs) == (Cause.INFRASTRUCTURE, 1)
    host.clock.now_s += 2
    assert await host.fail() == [FAILED]


# ── with a launcher ───────────────────────────────────────────────────────────────────────────────


def run(executor: Executor, *command: str) -> None:
    template = TaskTemplate(1, "/t", command, {}, 1, ResourceRequest())
    executor._agent.on_order(Order("me", 1, templates=(template,), run=(A,)), 1)
    executor.launch(executor._agent.next_launch())
    executor.flush()


async def test_the_end_of_a_failed_attempt_waits_for_the_check(host: Host, opened: Open) -> None:  # noqa: F811
    host.break_()
    executor = await opened(
        checks=host.checked("while [ ! -e go ]; do sleep 0.01; done; [ ! -e broken ]")
    )
    run(executor, "sh", "-c", "exit 4")
    await until(lambda: host.runs == 1)
    assert end_of(executor) is None
    (host.place / "go").touch()
    await until(lambda: end_of(executor) is not None)
    assert end_of(executor).cause is Cause.INFRASTRUCTURE
    assert (
        end_of(executor).error == "host check failed: exit code 1; the task ended with exit code 4"
    )


async def test_a_stop_does_not_wait_for_the_check(host: Host, opened: Open) -> None:  # noqa: F811
    executor = await opened(checks=host.checked("sleep 1000"))
    run(executor, "sh", "-c", "exit 4")
    await until(lambda: host.runs == 1)
    executor.kill(A, 0, 0)
    ended = end_of(executor)
    assert (ended.cause, ended.exit_code) == (Cause.EXITED, 4)
