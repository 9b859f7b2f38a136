"""Confined tasks on workers of their own: what they cannot do, and what settings and ends of a
worker do to them.

What leaves a worker as it found it is in `test_sandbox_tasks`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psutil
import pytest

from iris_bus.contract import Connection
from iris_bus.jetstream import connect
from iris_core import codec, subjects
from iris_core.messages.gateway_worker import ExecutionTaken, StartExecution
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Gang, Stop
from iris_core.states import Cause, KernelStatus
from iris_service.settings import BadSetting
from iris_worker.attempt.slots import task_users
from iris_worker.attempt.slots.task_users import UserPool, take_users
from iris_worker.launcher.cgroups.cgroup import OPEN_FILES
from iris_worker.launcher.starts.sandbox import IDLE
from tests.support import escapes
from tests.support.escapes import ESCAPES, MODES
from tests.support.hosts import (
    SANDBOXED,
    USER,
    command,
    on_hosts,
    open_directory,
    until,
    until_gone,
    worker_of,
)
from tests.support.nats import OpenServer
from tests.support.samples import one_in
from tests.support.state import GRANT, FakeState, template
from tests.support.worker import WorkerProcess, environ, opened_way

pytestmark = [
    pytest.mark.integration,
    pytest.mark.needs("root"),
]

K = KernelStatus
PYTHON = next(
    path for path in ("/usr/local/bin/python3", "/usr/bin/python3") if os.path.exists(path)
)
CLONES = (MODES[0], MODES[1], MODES[3])
"""Kinds of host on which tasks are cloned from templates."""
ONE_IN = 3
SIGNALS_ALL = """import os, sys
print("ready", flush=True)
while True:
    try:
        os.kill(-1, int(sys.argv[1]))
    except OSError:
        pass
"""
NEIGHBOURS = ("a worker of the same cluster", "a worker of another cluster")
_FIRST = 1_900_000_000 + os.getpid() % 100_000 * 64
OWN_USERS = f"pool:{_FIRST}-{_FIRST + 63}"
"""Of no other test: a task without a sandbox can signal all processes of its user on this host."""


@pytest.fixture(params=on_hosts(SANDBOXED))
async def worker(
    request: pytest.FixtureRequest, state: FakeState, nats_url: str, place: Path
) -> AsyncIterator[WorkerProcess]:
    async with worker_of(request.param, state, nats_url, place, stop_grace_s=1) as process:
        yield process


def task_pid(worker: WorkerProcess, mark: str) -> int:
    """The process of a task that has ``mark`` in its command, as the host sees it."""
    [found] = [
        one.pid for one in psutil.Process(worker.launcher_pid).children() if mark in command(one)
    ]
    return found


# ── escapes ───────────────────────────────────────────────────────────────────────────────────────


FIRST = """import os
open("/tmp/MARK", "w")
print(os.environ["IRIS_WORKDIR"], "iris_template" in open("/proc/self/cmdline").read())
"""
SECOND = """import os
print(os.environ["IRIS_WORKDIR"], os.path.exists("/tmp/MARK"), end=" ")
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        print(*("template" for word in [open(f"/proc/{pid}/cmdline").read()] if "iris_template" in word), end="")
    except OSError:
        continue
"""


@pytest.mark.parametrize("mode", on_hosts(CLONES))
async def test_nothing_of_a_template_is_left_for_another_job(
    mode: str, state: FakeState, nats_url: str, place: Path, mark: str
):
    (place / "shown").mkdir()
    for name, text in {"first": FIRST, "second": SECOND}.items():
        (place / "shown" / f"{name}.py").write_text(text.replace("MARK", mark))
    async with worker_of(mode, state, nats_url, place):
        first = await state.run(PYTHON, str(place / "shown" / "first.py"), preload=("json",))
        assert (await state.ended(first)).exit_code == 0
        second = await state.run(PYTHON, str(place / "shown" / "second.py"))
        assert (await state.ended(second)).exit_code == 0
        before, cloned = (await state.output(first)).decode().split()
        after, left, *templates = (await state.output(second)).decode().split()
        assert (cloned, Path(after).parent) == ("True", Path(before).parent)
        if mode in SANDBOXED:
            assert (left, templates) == ("False", [])
    Path("/tmp", mark).unlink(missing_ok=True)


TRACES = """import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        users = [line.split()[1] for line in open(f"/proc/{pid}/status") if line.startswith("Uid:")]
        if "iris_template" in open(f"/proc/{pid}/cmdline").read() and users == [str(os.getuid())]:
            open(f"/proc/{pid}/mem").close()
            print("traced")
    except (FileNotFoundError, ProcessLookupError):
        continue
    except PermissionError:
        print("refused")
"""


@pytest.mark.parametrize("mode", on_hosts(MODES[:2]))
async def test_what_outlives_a_job_cannot_be_traced_by_it(
    mode: str, state: FakeState, nats_url: str, place: Path
):
    """Of the two templates in its slot one is of its job, and serves no other; it may read itself
    too.
    """
    (place / "shown").mkdir()
    (place / "shown" / "traces.py").write_text(TRACES)
    async with worker_of(mode, state, nats_url, place, **own_users(mode)):
        ref = await state.run(PYTHON, str(place / "shown" / "traces.py"), preload=("json",))
        assert (await state.ended(ref)).exit_code == 0
        assert sorted((await state.output(ref)).decode().split()) == ["refused", "traced", "traced"]


@pytest.mark.parametrize("mode", on_hosts(CLONES))
async def test_a_bare_template_serves_its_owner_only(
    mode: str, state: FakeState, nats_url: str, place: Path
):
    (place / "shown").mkdir()
    script = place / "shown" / "place.py"
    script.write_text(
        "import sys; print(id(sys))"
    )  # each program that is started is at other addresses
    async with worker_of(mode, state, nats_url, place):
        found = []
        for user in ("ann", "ann", "bob", "ann"):
            ref = await state.run(PYTHON, str(script), preload=("json",), user=user)
            assert (await state.ended(ref)).exit_code == 0
            found.append(await state.output(ref))
    assert found[0] == found[1]
    assert found[2] not in (found[0], found[3])


@pytest.mark.parametrize(
    ("mode", "cgroups", "preload", "elsewhere"),
    [
        *on_hosts((mode, False, (), "") for mode in MODES),
        *on_hosts((MODES[1], False, (), elsewhere) for elsewhere in NEIGHBOURS),
        *one_in(
            ONE_IN,
            [
                *on_hosts((mode, True, (), "") for mode in MODES[:2]),
                *on_hosts((mode, mode in MODES[:2], ("json",), "") for mode in CLONES),
            ],
        ),
    ],
)
async def test_what_a_task_is_refused_is_what_the_security_page_says(
    mode: str,
    cgroups: bool,
    preload: tuple[str, ...],
    elsewhere: str,
    state: FakeState,
    nats_url: str,
    place: Path,
    mark: str,
    monkeypatch: pytest.MonkeyPatch,
):
    """``elsewhere``: the other task is of another worker on this host."""
    monkeypatch.setenv("WORKERS_SECRET", "a")
    key, shown, shared = place / "w0.seed", place / "shown", place / "shared"
    for directory in (shown, shared):
        directory.mkdir()
    shared.chmod(0o777)
    shutil.copy(escapes.__file__, shown / "escapes.py")
    shutil.copy("/usr/bin/id", shown / "id")
    (shown / "id").chmod(0o4755)
    key.write_text("SU")
    key.chmod(0o600)
    if mode.startswith("ordinary"):
        os.chown(key, USER, USER)
    binds = f"{shown}:ro,{shared}"
    async with (
        worker_of(
            mode, state, nats_url, place, cgroups=cgroups, pids_limit=60, binds=binds
        ) as tries,
        neighbour(elsewhere, mode, state, tries, nats_url, binds=binds) as (theirs, worker),
    ):
        program, told = (PYTHON, str(shown / "escapes.py")), shared / "facts"
        tried = await state.run(*program, "try", str(told), preload=preload)
        await state.printed(tried, b"listening\n")
        before = await state.ended(await state.run(*program, "leave", str(told), grant=GRANT))
        assert (before.exit_code, before.stderr_tail) == (0, "")
        after = await state.run(*program, "keys")
        assert (await state.ended(after)).exit_code == 0
        name = f"{place.name}-{mark}"
        script = 'cat $IRIS_TOKEN_FILE >/dev/null && echo private > secret; exec "$@" listen "$0"'
        other = await theirs.run("sh", "-c", script, name, *program, grant=GRANT)
        await theirs.printed(other, b"ready\n")
        variables = environ(task_pid(worker, mark))
        slot = Path(variables["IRIS_WORKDIR"]).parent
        places = (worker.data, slot, variables["IRIS_WORKDIR"], "/etc")
        facts = {
            "worker": worker.pid,
            "launcher": worker.launcher_pid,
            "task": task_pid(worker, mark),
            "data": str(worker.data),
            "places": {str(path): os.stat(path).st_dev for path in places},
            "file": f"{variables['IRIS_WORKDIR']}/secret",
            "output": str(
                worker.data / f"output/{slot.name}/{Path(variables['IRIS_WORKDIR']).name}.out"
            ),
            "token": variables["IRIS_TOKEN_FILE"],
            "key": str(key),
            "setuid": str(shown / "id"),
            "secret": "WORKERS_SECRET",
            "tmp": os.stat("/tmp").st_dev,
            "name": name,
            "printed": "ready",
            "keys": int(await state.output(after)),
            "processes": 60,
        }
        (shared / "draft").write_text(json.dumps(facts))
        (shared / "draft").rename(told)
        for turn in itertools.count():
            if state.end_of(tried) is not None:
                break
            with contextlib.suppress(AssertionError):
                await execute(state.connection, str(turn), tried)
        ended = await state.ended(tried)
        assert all(
            stage.detail == ""
            for stage in state.stages
            if stage.ref == tried and stage.status is K.RUNNING
        )
        Path("/tmp", facts["name"]).unlink(missing_ok=True)
        assert (ended.exit_code, ended.error) == (0, "")
        succeeded = json.loads((await state.output(tried)).splitlines()[-1])
        assert succeeded == [escape.what for escape in ESCAPES if escape.succeeds(mode)]
        assert theirs.end_of(other) is None


@asynccontextmanager
async def neighbour(
    elsewhere: str, mode: str, state: FakeState, worker: WorkerProcess, url: str, **settings: object
) -> AsyncIterator[tuple[FakeState, WorkerProcess]]:
    """Another worker of this host and its state service, of the same cluster or of another one;
    without ``elsewhere`` the same.
    """
    if not elsewhere:
        yield state, worker
        return
    same = elsewhere == NEIGHBOURS[0]
    async with AsyncExitStack() as stack:
        place = stack.enter_context(open_directory())
        if not same:
            server = OpenServer(place / "nats")
            server.start()
            stack.callback(server.stop)
            url = server.url
        connection = await connect(url, name="test")
        stack.push_async_callback(connection.close)
        await connection.streams.ensure()
        theirs = await FakeState(connection, name := "w1" if same else "w0").start()
        settings["worker"] = name
        yield (
            theirs,
            await stack.enter_async_context(worker_of(mode, theirs, url, place, **settings)),
        )


async def test_users_stay_taken_while_tasks_run_without_their_worker(
    state: FakeState, nats_url: str, place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(task_users, "_WAIT_S", 0.0)
    other = place / "other"
    other.mkdir()
    async with worker_of(MODES[1], state, nats_url, place) as worker:
        user = int(await state.line(await state.run("sh", "-c", "id -u; exec sleep 1000")))
        await worker.kill()
        with pytest.raises(BadSetting, match="no users are left on this host"):
            await take_users(UserPool(range(user, user + 1), share=1), other)
        await worker.start()
        await state.registration(2)
        found = int(await state.line(await state.run("sh", "-c", "id -u; exec sleep 1000")))
        assert found == user + 1
    await until(lambda: not worker.launchers())
    os.close((await take_users(UserPool(range(user, user + 1), share=1), other)).lock)


# ── all else is as without ────────────────────────────────────────────────────────────────────────


@pytest.mark.needs("bwrap")
async def test_a_sandbox_serves_all_attempts_of_a_slot_and_members_of_gangs(
    state: FakeState, nats_url: str, place: Path
):
    made, program, slots = place / "made", place / "bwrap", 2
    program.write_text(f'#!/bin/sh\necho >> {made}\nexec bwrap "$@"\n')
    program.chmod(0o755)
    async with worker_of(MODES[0], state, nats_url, place, bubblewrap=program) as worker:
        before = made.read_text().count("\n")
        for job in range(4_301, 4_309):  # no test beside this has gangs with the ports of these
            refs = [AttemptRef(job, index, 0) for index in range(slots)]
            write = template(
                "sh", "-c", "ls -A; touch a; cat $IRIS_HOSTFILE", job=job, replicas=slots
            )
            gang = Gang(job, ("h0", "h1"))
            await state.tell([write], run=refs, gangs=[gang])
            for ref in refs:
                assert (await state.ended(ref)).exit_code == 0
                assert await state.output(ref) == b"h0 slots=1\nh1 slots=1\n"
        assert made.read_text().count("\n") - before <= slots
        assert not list((worker.data / "attempts").glob("*/*"))


@pytest.mark.needs("bwrap")
async def test_a_launcher_keeps_few_sandboxes_and_descriptors_to_copy(
    state: FakeState, nats_url: str, place: Path
):
    async with worker_of(MODES[0], state, nats_url, place) as worker:
        launcher = psutil.Process(worker.launcher_pid)
        before = launcher.num_fds()
        refs = [await state.run("sleep", "1000") for _ in range(IDLE + 6)]
        for ref in refs:
            await state.running(ref)
        await state.order(stop=[Stop(ref, 0) for ref in refs])
        for ref in refs:
            await state.ended(ref)
        await until(
            lambda: (
                len(launcher.children()) <= IDLE
                and launcher.num_fds() - before <= IDLE + OPEN_FILES
            )
        )


@pytest.mark.parametrize("also_launcher", [False, True])
async def test_a_confined_task_is_adopted_and_ends_with_all_it_started(
    state: FakeState, worker: WorkerProcess, place: Path, mark: str, also_launcher: bool
):
    go = place / "shown" / "go"
    ref = await state.run(
        "sh",
        "-c",
        f"setsid sleep {mark} & echo before; while ! test -e {go}; do sleep 0.01; done; echo after; exit 7",
    )
    await state.printed(ref, b"before\n")
    if also_launcher:
        os.kill(worker.launcher_pid, signal.SIGKILL)
        await worker.ended()
    else:
        await worker.kill()
    await worker.start()
    register = await state.registration(2)
    assert [(stage.ref, stage.status) for stage in register.attempts] == [(ref, K.RUNNING)]
    go.touch()
    ended = await state.ended(ref)
    unknown = (
        {(Cause.WORKER_CRASHED, None)} if also_launcher else set()
    )  # another process may have reaped it
    assert (ended.cause, ended.exit_code) in {(Cause.EXITED, 7)} | unknown
    assert await state.output(ref) == b"before\nafter\n"
    await until_gone(mark)


# ── settings ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_worker_that_needs_a_sandbox_does_not_start_without(nats_url: str, place: Path):
    log = place / "log"
    settings = {"sandbox": "required", "bubblewrap": "no-such-program"}
    async with WorkerProcess(nats_url, place / "w0", log=log, **settings) as worker:
        assert await worker.ended() == 2
    assert (
        "[worker] sandbox: it is required, and cannot be made: no-such-program is not installed"
        in log.read_text()
    )


@pytest.mark.needs("bwrap")
async def test_a_task_runs_as_the_account_of_who_submitted_it(
    state: FakeState, nats_url: str, place: Path
):
    settings = {"run_as": "submitter", "accounts": "ann=nobody"}
    async with worker_of(MODES[0], state, nats_url, place, **settings):
        ref = await state.run("sh", "-c", "id -un; touch a; echo $USER")
        assert (await state.ended(ref)).exit_code == 0
        assert await state.output(ref) == b"nobody\nnobody\n"
        refused = await state.ended(await state.run("id", user="bob"))
        assert (refused.exit_code, refused.error) == (
            126,
            "user 'bob' has no account on this host ([worker] accounts)",
        )


@pytest.mark.parametrize("mode", on_hosts(SANDBOXED))
async def test_a_task_may_be_given_a_network_with_nothing_but_loopback(
    mode: str, state: FakeState, nats_url: str, place: Path
):
    hosts_own = set(os.listdir("/proc/sys/net/ipv4/conf"))
    async with worker_of(mode, state, nats_url, place, abstract_sockets="network"):
        for _ in range(2):
            ref = await state.run("ls", "/proc/sys/net/ipv4/conf")
            assert (await state.ended(ref)).exit_code == 0
            assert set((await state.output(ref)).decode().split()) & hosts_own <= {
                "all",
                "default",
                "lo",
            }
            kinds = "import socket; a, b = (socket.socket(socket.AF_UNIX) for _ in '12'); a.bind('\\0a'); a.listen()"
            own = await state.run(PYTHON, "-c", f"{kinds}; b.connect('\\0a')")
            assert (await state.ended(own)).exit_code == 0
            other = await state.run(
                PYTHON, "-c", f"{kinds}; print('ready', flush=True); a.accept()"
            )
            await state.printed(other, b"ready\n")
            refused = await state.ended(
                await state.run(
                    PYTHON, "-c", "import socket; socket.socket(socket.AF_UNIX).connect('\\0a')"
                )
            )
            assert refused.exit_code == 1
            assert "Connection refused" in refused.stderr_tail
            await state.order(stop=[Stop(other, 0)])
            await state.ended(other)


# ── signals ───────────────────────────────────────────────────────────────────────────────────────


def own_users(mode: str) -> dict[str, object]:
    return {} if mode.startswith("ordinary") else {"run_as": OWN_USERS}


async def execute(connection: Connection, name: str, ref: AttemptRef) -> None:
    """Execute a command beside a task."""
    request = codec.pack(StartExecution(name, ref, "ann", ("true",)))
    answer = await connection.bus.request(subjects.execution("w0"), request, timeout=30)
    assert codec.unpack(answer.data, ExecutionTaken) == ExecutionTaken()


@pytest.mark.parametrize("mode", on_hosts(MODES[:3]))
@pytest.mark.parametrize("number", one_in(2, [signal.SIGSTOP, signal.SIGKILL]))
async def test_a_task_that_signals_all_that_it_can_holds_up_nobody_else(
    number: signal.Signals, mode: str, state: FakeState, nats_url: str, place: Path
):
    async with worker_of(mode, state, nats_url, place, **own_users(mode)) as worker:
        launcher = worker.launcher_pid
        attacker = await state.run(PYTHON, "-c", SIGNALS_ALL, str(int(number)))
        await state.running(attacker)  # a command beside a task is taken from then on
        await state.printed(attacker, b"ready\n")
        for turn in range(8):
            await execute(state.connection, str(turn), attacker)
            assert (await state.ended(await state.run("true", user="bob"))).exit_code == 0
        assert worker.launchers() == [launcher]
        assert all(beat.healthy for beat in state.beats)


# ── the launcher ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.needs("bwrap")
def test_a_user_namespace_that_cannot_be_completed_is_not_entered():
    code = """
import os
from iris_worker.launcher.kernel.namespaces import enter_user_namespace
try:
    enter_user_namespace()
except OSError as error:
    print(error, os.getuid())
"""
    user = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
    read_only = ("bwrap", "--ro-bind", "/", "/")  # also /proc, whose files map the users
    done = subprocess.run(
        (*opened_way(), *read_only, *user, sys.executable, "-c", code),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"[Errno 30] user namespace: Read-only file system {USER}\n"


def test_limits_of_another_user_need_no_more_than_to_become_that_user():
    code = f"""
import os, resource
from iris_worker.launcher.starts.spawn import User, begin
null = os.open("/dev/null", os.O_RDWR)
limits = ((resource.RLIMIT_DATA, 1 << 30), (resource.RLIMIT_DATA, 1 << 31))
child = begin(("/bin/sleep", "1000"), {{}}, "/", (null, null, null), limits, user=User({USER}, {USER}))
assert not os.read(child.report, 1)
try:
    print(*[line.split()[3:5] for line in open(f"/proc/{{child.pid}}/limits") if line.startswith("Max data size")])
finally:
    os.kill(child.pid, 9)
"""
    container = ("setpriv", "--bounding-set=-sys_resource")
    done = subprocess.run(
        (*container, sys.executable, "-c", code), capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{[str(1 << 30)] * 2}\n"
