"""Tasks in control groups of their own, with the controllers of this host; skipped where it lets us
make none.
"""

from __future__ import annotations

import asyncio
import glob
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from iris_core.messages.state_worker import Stop
from iris_core.spec.resources import ResourceRequest
from iris_core.states import Cause
from iris_service.child import MISUSED
from iris_worker.launcher.cgroups import access
from iris_worker.launcher.cgroups.cgroup import NoGroups
from iris_worker.launcher.cgroups.files import UNIFIED, Cgroup, own_directories
from iris_worker.launcher.cgroups.hierarchies import groups_below, name_of, open_groups
from tests.house.repository import ROOT
from tests.support.hosts import open_directory
from tests.support.needs import needs
from tests.support.state import FakeState
from tests.support.worker import WorkerProcess, as_user, forget_tokens, lives, number_from, until

pytestmark = [pytest.mark.integration, pytest.mark.needs("control groups")]


@pytest.fixture(scope="module")
def controllers(tmp_path_factory: pytest.TempPathFactory) -> str:
    groups = open_groups(tmp_path_factory.mktemp("groups"))
    groups.close()
    return str(groups.support)


@pytest.fixture
async def worker(state: FakeState, nats_url: str, tmp_path: Path) -> AsyncIterator[WorkerProcess]:
    async with WorkerProcess(
        nats_url, tmp_path / "w0", stop_grace_s=1, pids_limit=64, heartbeat_interval_s=0.2
    ) as process:
        await state.registration()
        yield process


def groups_of(pid: int | str) -> dict[str, str]:
    """The control groups of a process, by controller."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return {
        name: path
        for _, names, path in (line.split(":", 2) for line in lines)
        for name in names.split(",")
    }


GREEDY = "import sys; sys.stderr.write('eats\\n'); x = bytearray(200 << 20)"


@pytest.mark.needs("a cpuset of version 1")
def test_why_no_group_can_be_entered_names_the_file():
    home = Path("/sys/fs/cgroup/cpuset")
    try:
        with pytest.raises(
            NoGroups, match=r"^\d+/tasks: No space left on device$"
        ):  # a new group has no processors
            groups_below({"pids": str(home)}, "iris-test-entry")
    finally:
        (home / "iris-test-entry").rmdir()


async def test_a_task_at_its_memory_limit_ends_with_the_limit_and_its_peak(
    state: FakeState, worker: WorkerProcess
):
    ended = await state.ended(await state.run("python3", "-c", GREEDY, memory_bytes=64 << 20))
    assert (ended.cause, ended.signal) == (Cause.EXITED, signal.SIGKILL)
    assert ended.error == "memory limit 64MiB reached, peak 64MiB"
    assert ended.usage is not None
    assert (ended.usage.memory_limit_bytes, ended.stderr_tail) == (64 << 20, "eats")


async def test_a_task_of_which_only_a_child_was_killed_for_memory_says_so(
    state: FakeState, worker: WorkerProcess
):
    ref = await state.run("sh", "-c", f'python3 -c "{GREEDY}"; exit 3', memory_bytes=64 << 20)
    ended = await state.ended(ref)
    assert (ended.exit_code, ended.error) == (3, "memory limit 64MiB reached, peak 64MiB")


async def test_a_task_without_a_memory_request_is_not_limited(
    state: FakeState, worker: WorkerProcess
):
    ended = await state.ended(await state.run("python3", "-c", GREEDY))
    assert (ended.exit_code, ended.error) == (0, "")
    assert 200 << 20 <= ended.peak_rss_bytes < 300 << 20


async def test_a_processor_limit_is_the_groups_quota_and_a_request_its_share(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    ask = ResourceRequest(cpu_millis=500, cpu_limit_millis=1500)
    ref = await state.run("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 1000", resources=ask)
    path = f"/sys/fs/cgroup/cpu{groups_of(await number_from(tmp_path / 'pid'))['cpu']}"
    assert Path(f"{path}/cpu.shares").read_text() == "512\n"
    async with asyncio.timeout(
        60
    ):  # the launcher leaves the group before it sets what would slow it too
        while Path(f"{path}/cpu.cfs_quota_us").read_text() != "150000\n":
            await asyncio.sleep(0.01)
    await state.order(stop=[Stop(ref, 0)])
    await state.ended(ref)


async def test_a_fork_bomb_is_contained_and_its_neighbours_are_well(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    ref = await state.run(
        "sh",
        "-c",
        f"echo $$ > {tmp_path}/bomb; bomb() {{ bomb | bomb & }}; (bomb) & exec sleep 1000",
    )
    pid = await number_from(tmp_path / "bomb")
    path = f"/sys/fs/cgroup/pids{groups_of(pid)['pids']}/pids"
    await until(lambda: Path(f"{path}.events").read_text() != "max 0\n")  # none was refused
    assert Path(f"{path}.max").read_text() == "64\n"
    assert (await state.ended(await state.run("sh", "-c", "echo well | cat"))).exit_code == 0
    await state.order(stop=[Stop(ref, 0)])
    await state.ended(ref)
    assert not lives(pid)


async def test_a_daemon_that_hides_from_its_task_ends_with_it(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    hide = (
        f"env -i setsid sh -c '(setsid sh -c \"echo \\$\\$ > {tmp_path}/left; exec sleep 1000\" &)'"
    )
    ref = await state.run(
        "sh", "-c", f"{hide}; while ! test -s {tmp_path}/left; do sleep 0.01; done"
    )
    pid = await number_from(tmp_path / "left")
    await state.ended(ref)
    assert not lives(pid)


async def test_a_task_keeps_its_group_when_worker_and_launcher_are_killed(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    daemon = f"setsid env -i sh -c 'echo $$ > {tmp_path}/left; exec sleep 1000' &"
    eat = f'while ! test -e {tmp_path}/go; do sleep 0.01; done; python3 -c "{GREEDY}"; exit 3'
    ref = await state.run(
        "sh", "-c", f"echo $$ > {tmp_path}/pid; {daemon} {eat}", memory_bytes=64 << 20
    )
    pid, left = await number_from(tmp_path / "pid"), await number_from(tmp_path / "left")
    before = groups_of(pid)
    await worker.kill()
    await worker.start()
    await state.registration(2)
    os.kill(worker.launcher_pid, signal.SIGKILL)
    await worker.ended()
    await worker.start()
    register = await state.registration(3)
    assert [stage.ref for stage in register.attempts] == [ref]
    assert groups_of(pid) == before == groups_of(left)
    (tmp_path / "go").touch()
    ended = await state.ended(ref)
    assert ended.usage is not None
    assert ended.usage.memory_limit_bytes == 64 << 20
    assert not lives(left)


async def test_heartbeats_hold_what_running_tasks_use(state: FakeState, worker: WorkerProcess):
    ref = await state.run(
        "python3", "-c", "x = bytearray(50 << 20); sum(range(10**6)); import time; time.sleep(1000)"
    )
    await state.until(
        lambda: any(beat.usage and beat.usage[0].rss_bytes > 50 << 20 for beat in state.beats)
    )
    live = state.beats[-1].usage[0]
    assert (live.ref, live.usage.cpu_ms > 0, 50 << 20 < live.peak_bytes < 100 << 20) == (
        ref,
        True,
        True,
    )
    await state.order(stop=[Stop(ref, 0)])
    ended = await state.ended(ref)
    assert ended.usage is not None
    assert ended.usage.cpu_ms >= live.usage.cpu_ms
    await state.until(lambda: state.beats[-1].usage == ())


async def test_a_worker_reports_its_controllers_and_leaves_no_group_behind(
    state: FakeState, worker: WorkerProcess, controllers: str, tmp_path: Path
):
    assert state.registered[-1].attributes["cgroup"] == controllers
    groups = tmp_path / "groups"
    await state.ended(await state.run("sh", "-c", f"cat /proc/self/cgroup > {groups}"))
    held = [line.split(":", 2) for line in groups.read_text().splitlines()]
    [path] = [path for _, names, path in held if names == "pids"]
    assert await worker.stop() == 0
    await until(lambda: not worker.launchers())
    assert not Path(f"/sys/fs/cgroup/pids{path}").parent.exists()


async def test_groups_of_a_deleted_data_directory_are_removed_by_another_worker(
    state: FakeState, worker: WorkerProcess, nats_url: str, tmp_path: Path
):
    await state.run("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    pid = await number_from(tmp_path / "pid")
    groups = [
        Path(f"/sys/fs/cgroup/{name}{path}").parent
        for name, path in groups_of(pid).items()
        if "/iris-" in path
    ]
    assert len(groups) >= 3
    assert all(
        group.exists() for group in groups
    )  # a worker of another test may remove them once nothing holds them
    await worker.kill()
    for process in (worker.launcher_pid, pid):
        os.kill(process, signal.SIGKILL)
    while worker.launchers() or lives(pid):
        await asyncio.sleep(0.01)
    (tmp_path / "w1").mkdir()  # before the other's number is free again
    forget_tokens(worker.data)
    shutil.rmtree(worker.data)
    async with WorkerProcess(nats_url, tmp_path / "w1"), asyncio.timeout(60):
        await state.registration(2)
        while any(group.exists() for group in groups):
            await asyncio.sleep(0.01)
        assert (await state.ended(await state.run("true"))).exit_code == 0


def test_only_the_thread_that_starts_processes_moves_between_groups(tmp_path: Path):
    groups, stop = open_groups(tmp_path), threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        home = groups_of(f"self/task/{other.native_id}")
        group = groups.take(Cgroup(pids=64))
        assert groups_of("thread-self")["pids"].endswith(f"/{group.number}")
        assert groups_of(f"self/task/{other.native_id}") == home
        groups.give(group)
    finally:
        stop.set()
        other.join()
        groups.close()
    assert groups_of("thread-self") == home


def test_a_launcher_that_ends_leaves_the_groups_to_the_next_one(tmp_path: Path):
    first, second = open_groups(tmp_path), open_groups(tmp_path)
    first.close()
    try:
        group = second.take(Cgroup(pids=64))
        assert groups_of("thread-self")["pids"].endswith(f"/{group.number}")
        second.give(group)
    finally:
        second.close()
    assert not Path(
        f"/sys/fs/cgroup/pids{groups_of('thread-self')['pids']}", name_of(tmp_path)
    ).exists()


@pytest.mark.parametrize("keys", [("cpu",), ("cpu", "pids", "memory")])
@pytest.mark.parametrize("below", ["", "/[0-9]*"])
def test_groups_that_something_else_has_removed_are_made_anew(
    tmp_path: Path, keys: tuple[str, ...], below: str
):
    """A systemd of a container that shares them does so, with those that are empty."""
    own = own_directories(
        Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()
    )
    groups, bases = open_groups(tmp_path), [f"{own[key]}/{name_of(tmp_path)}" for key in keys]
    try:
        groups.give(groups.take(Cgroup(pids=64)))
        groups.go_home()
        for path in [path for base in bases for path in glob.glob(f"{base}{below}")]:
            access.remove(path)
        group = groups.take(Cgroup(pids=64))
        entered = groups_of("thread-self")
        assert all(entered[key].endswith(f"/{name_of(tmp_path)}/{group.number}") for key in keys)
        groups.give(group)
    finally:
        groups.close()


@pytest.mark.parametrize("mib", [0, 4])
def test_a_group_to_which_files_in_memory_are_charged_is_not_used_again(tmp_path: Path, mib: int):
    """They would be part of what the next attempt may hold."""
    groups, path = open_groups(tmp_path), Path("/dev/shm") / f"iris-test-{os.getpid()}"
    try:
        group = groups.take(Cgroup(memory_limit_bytes=64 << 20))
        subprocess.run(["sh", "-c", f"head -c {mib << 20} /dev/zero > {path}"], check=True)
        groups.leave()
        groups.end(group)
        assert group.spoilt == bool(mib)
    finally:
        path.unlink(missing_ok=True)
        groups.close()


@pytest.mark.needs("control groups of version 2")
def test_all_in_a_group_of_version_2_are_killed_at_once(tmp_path: Path):
    own = own_directories(
        Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()
    )
    groups = groups_below({UNIFIED: own[UNIFIED]}, "iris-test")
    group = groups.take(Cgroup())
    try:
        leader = subprocess.Popen(["sh", "-c", "setsid sleep 1000 & exec sleep 1000"])
        groups.leave()
        assert groups.kill(group)
        assert leader.wait() == -signal.SIGKILL
        deadline = time.monotonic() + 20
        while groups.kill(group) and time.monotonic() < deadline:
            pass
        assert not groups.kill(group)
        assert groups.end(group).cpu_us > 0
    finally:
        groups.close()


async def test_a_worker_without_control_groups_says_so_and_runs_tasks(
    state: FakeState, nats_url: str, tmp_path: Path
):
    async with WorkerProcess(nats_url, tmp_path / "w0", cgroups="false"):
        await state.registration()
        assert state.registered[-1].attributes["cgroup"] == "none: set so"
        ref = await state.run("cat", "/proc/self/cgroup")
        assert (await state.ended(ref)).exit_code == 0
        assert b"iris-" not in await state.output(ref)


async def test_a_kill_for_memory_is_reported_though_the_script_swallows_it(
    state: FakeState, worker: WorkerProcess
):
    asked = ResourceRequest(memory_bytes=64 << 20)
    script = f'{sys.executable} -c "{GREEDY}"; echo goes on'
    ended = await state.ended(await state.run("sh", "-c", script, resources=asked))
    assert ended.exit_code == 0
    assert ended.usage is not None
    assert ended.usage.memory_limit_bytes == 64 << 20


# ── limits that are not in force are refused ─────────────────────────────────────────────


@pytest.mark.parametrize(
    "settings",
    [{"require_limits": True, "cgroups": False}, {"require_limits": True, "limit_memory": "off"}],
    ids=["no groups", "memory off"],
)
async def test_a_worker_that_must_enforce_limits_does_not_start_without(
    settings: dict[str, object], nats_url: str, tmp_path: Path
):
    log = tmp_path / "log"
    worker = await WorkerProcess(nats_url, tmp_path / "w0", log=log, **settings).start()
    assert await worker.ended() == MISUSED
    assert "require_limits" in log.read_text()


USER = 4321


@pytest.fixture
def place() -> Iterator[Path]:
    with open_directory() as made:
        yield made


SUPPORT = """
import sys
from pathlib import Path
from iris_worker.launcher.cgroups.hierarchies import open_groups
groups = open_groups(Path(sys.argv[1]))
print(groups.support)
groups.close()
"""


WHERE = """
import subprocess, sys
from pathlib import Path
from iris_worker.launcher.cgroups.files import Cgroup
from iris_worker.launcher.cgroups.hierarchies import open_groups
groups = open_groups(Path(sys.argv[1]))
group = groups.take(Cgroup())
groups.go_home()
subprocess.run(["cat", "/proc/self/cgroup"], check=True)
groups.end(group)
groups.close()
"""


@pytest.fixture
@needs("root", "control groups")
def delegated() -> Iterator[list[Path]]:
    """A group in each hierarchy of version 1, for another user to be given."""
    own = own_directories(
        Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()
    )
    homes = [Path(own[key]) for key in ("cpu", "cpuacct", "memory", "pids") if key in own]
    made = [home / f"iris-unit-{os.getpid()}" for home in homes]
    for group in made:
        group.mkdir()
    try:
        yield made
    finally:
        for group in made:
            for below in (*group.glob("iris-*/*/"), *group.glob("iris-*/"), group):
                below.rmdir()


def in_groups(groups: list[Path], before: str, *words: str) -> str:
    """What a command of ``USER`` prints, started in groups in which root has run ``before``."""
    enter = "for group in $GROUPS_OF_UNIT; do echo $$ > $group/cgroup.procs; done"
    done = subprocess.run(
        ["sh", "-c", f'{enter}\n{before}\nexec "$@"', "sh", *as_user(USER), *words],
        env={**os.environ, "GROUPS_OF_UNIT": " ".join(map(str, groups))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def commands_of_the_unit() -> list[str]:
    """By which root gives groups of version 1, and of version 2, to ``USER``."""
    unit = (ROOT / "deploy" / "systemd" / "iris-worker.service").read_text()
    lines = [line for line in unit.splitlines() if line.startswith("ExecStartPre=+")]
    scripts = [shlex.split(line.removeprefix("ExecStartPre=+"))[-1] for line in lines]
    return [script.replace("$$", "$").replace("chown iris", f"chown {USER}") for script in scripts]


def test_the_unit_gives_its_groups_of_version_1_to_the_workers_user(
    delegated: list[Path], place: Path
):
    """The command of the unit in groups as systemd makes them, then a launcher of that user."""
    give, _ = commands_of_the_unit()
    said = in_groups(delegated, give, sys.executable, "-c", SUPPORT, str(place))
    assert said == "v1 cpu memory pids\n"


@pytest.mark.parametrize(
    ("given", "home"), [("$GROUPS_OF_UNIT", "launcher"), ("-R $GROUPS_OF_UNIT", "iris-unit-")]
)
def test_what_is_started_for_no_attempt_is_in_the_group_of_none(
    delegated: list[Path], place: Path, given: str, home: str
):
    """It would have the limits of an attempt, and be killed with it.

    Who is given the directory of a group may make groups in it, and not return to it.
    """
    said = in_groups(delegated, f"chown {USER} {given}", sys.executable, "-c", WHERE, str(place))
    found = [line.split(":", 2)[2] for line in said.splitlines() if "/iris-unit-" in line]
    assert len(found) == len(delegated)
    assert all(path.rpartition("/")[2].startswith(home) for path in found), found


BESIDE = """
import subprocess, sys
from pathlib import Path
from iris_worker.launcher.cgroups.files import UNIFIED, Cgroup, own_directories
from iris_worker.launcher.cgroups.hierarchies import groups_below
texts = [Path("/proc/self", name).read_text() for name in ("mountinfo", "cgroup")]
groups = groups_below({UNIFIED: own_directories(*texts)[UNIFIED]}, "iris-1-1")
group = groups.take(Cgroup())
subprocess.run(["cat", "/proc/self/cgroup"], check=True)
groups.go_home()
subprocess.run(["cat", "/proc/self/cgroup"], check=True)
groups.end(group)
groups.close()
"""


@pytest.fixture
@needs("root", "control groups of version 2")
def unit_of_version_2() -> Iterator[Path]:
    """The group of the unit in its slice, as systemd 252 makes it."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    [mounted] = {line.split()[4] for line in lines if " - cgroup2 " in line}
    above = Path(mounted, f"iris-{os.getpid()}.slice")
    unit = above / "iris.slice" / "iris-worker.service"
    unit.mkdir(parents=True)
    for path in (unit, *(unit / f"cgroup.{name}" for name in ("procs", "threads"))):
        os.chown(path, USER, USER)  # by Delegate= and User=
    try:
        yield unit
    finally:
        access.remove(str(above))
        assert not above.exists()


def test_an_older_systemd_has_the_groups_of_version_2_beside_the_unit(
    unit_of_version_2: Path, tmp_path: Path
):
    """The command of the unit, on a host that says it has systemd 252."""
    (tmp_path / "systemctl").write_text("#!/bin/sh\necho 'systemd 252 (252.38-1~deb12u1)'\n")
    (tmp_path / "systemctl").chmod(0o755)
    root = str(unit_of_version_2.parents[2])
    _, give = commands_of_the_unit()
    script = give.replace("/sys/fs/cgroup/cgroup.controllers", f"{root}/cgroup.controllers")
    script = f"PATH={tmp_path}:$PATH\n({script.replace('/sys/fs/cgroup$', f'{root}$')})"
    words = (sys.executable, "-c", BESIDE)
    said = in_groups([unit_of_version_2], script, *words)
    paths = [line.partition("::")[2] for line in said.splitlines() if line.startswith("0::")]
    assert [path.partition("/iris.slice")[2] for path in paths] == [
        "/iris-1-1/0",
        "/iris-worker.service",
    ]
    newer = script.replace("PATH=", "systemctl() { echo systemd 254; }\nPATH=")
    os.chown(unit_of_version_2.parent, 0, 0)
    in_groups([unit_of_version_2], newer, "true")
    assert unit_of_version_2.parent.stat().st_uid == 0, "it puts the worker beside by itself"
