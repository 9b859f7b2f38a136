"""Confined tasks that leave their worker as they found it: those of a kind of host share one.

What tasks cannot do is in `test_sandbox`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio

from iris_bus.jetstream import connect
from iris_core.messages.state_worker import Stop
from iris_core.spec.jobs import Probe
from tests.support.hosts import SANDBOXED, on_hosts, open_directory, until_gone, worker_of
from tests.support.nats import OpenServer, emptied
from tests.support.state import GRANT, FakeState
from tests.support.worker import WorkerProcess

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.needs("root"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=on_hosts(SANDBOXED))
async def host(
    request: pytest.FixtureRequest, nats_server: OpenServer
) -> AsyncIterator[tuple[FakeState, WorkerProcess]]:
    connection = await connect(await emptied(nats_server.url), name="test")
    await connection.streams.ensure()
    state = await FakeState(connection, "w0").start()
    with open_directory() as place:
        async with worker_of(
            request.param, state, nats_server.url, place, stop_grace_s=1
        ) as worker:
            yield state, worker
    await connection.close()


@pytest.fixture
def state(host: tuple[FakeState, WorkerProcess]) -> FakeState:
    return host[0]


@pytest.fixture
def worker(host: tuple[FakeState, WorkerProcess]) -> WorkerProcess:
    return host[1]


async def test_ends_output_and_errors_of_confined_tasks_are_their_own(
    state: FakeState, worker: WorkerProcess
):
    commands = {
        "echo out; echo err > /dev/stderr; exit 7": (7, None, ""),
        "kill -9 $$": (None, 9, "killed by signal 9 (SIGKILL: perhaps out of memory)"),
        "echo no luck > $IRIS_ERROR_FILE; exit 1": (1, None, "no luck"),
        "echo a > /dev/stdout; test $HOME = $IRIS_WORKDIR && test $PWD = $HOME && touch a /tmp/a /dev/shm/a": (
            0,
            None,
            "",
        ),
        "test $(ps -o sid= -p $$) = $$": (0, None, ""),
    }
    refs = [await state.run("sh", "-c", command) for command in commands]
    found = [await state.ended(ref) for ref in refs]
    assert [(end.exit_code, end.signal, end.error) for end in found] == list(commands.values())
    assert await state.output(refs[0]) == b"out\n"
    missing = await state.ended(await state.run("no-such-program"))
    assert (missing.exit_code, missing.error) == (127, "no-such-program: command not found")


async def test_a_confined_task_reads_its_own_token_and_sees_no_other_slots(
    state: FakeState, worker: WorkerProcess, mark: str
):
    other = await state.run("sh", "-c", f"echo ready; exec sleep {mark}", grant=GRANT)
    await state.printed(other, b"ready\n")
    script = (
        'test "$(cat "$IRIS_TOKEN_FILE")" = "$IRIS_TOKEN" && cd "${IRIS_TOKEN_FILE%/token}" && ! touch a && '
        'echo $(ls ../..) is $(basename "${PWD%/*}")'
    )
    ref = await state.run("sh", "-c", script, grant=GRANT)
    assert (await state.ended(ref)).exit_code == 0
    seen, own = (await state.output(ref)).decode().split(" is ")
    assert seen == own.rstrip()
    await state.order(stop=[Stop(other, 0)])
    await state.ended(other)


async def test_nothing_of_an_attempt_is_left_for_the_next(
    state: FakeState, worker: WorkerProcess, mark: str
):
    leave = f"touch a /tmp/a /var/tmp/a /dev/shm/a; ls /proc | grep -c '^[0-9]'; (setsid sleep {mark} &)"
    for _ in range(3):
        ref = await state.run("sh", "-c", f"ls -A . /tmp /var/tmp /dev/shm; {leave}")
        assert (await state.ended(ref)).exit_code == 0
        await until_gone(mark)
        listing = (await state.output(ref)).split()
        assert b"a" not in listing
        assert int(listing[-1]) < 10


@pytest.mark.parametrize(
    ("leave", "look"),
    [
        ("touch /var/tmp/a", "ls -A /var/tmp"),
        ("ipcmk --shmem 4096 >/dev/null", "tail -n +2 /proc/sysvipc/shm"),
        ("touch /dev/mqueue/a", "ls -A /dev/mqueue"),
        ("ipcmk --semaphore 2 >/dev/null", "tail -n +2 /proc/sysvipc/sem"),
        ("ipcmk --queue >/dev/null", "tail -n +2 /proc/sysvipc/msg"),
    ],
)
async def test_nothing_that_outlives_an_attempt_is_there_for_the_next(
    state: FakeState, worker: WorkerProcess, leave: str, look: str
):
    for _ in range(2):
        ref = await state.run("sh", "-c", f"{look}; {leave}")
        assert (await state.ended(ref)).exit_code == 0
        assert await state.output(ref) == b""


async def test_a_sandbox_that_somebody_has_ended_is_made_again(
    state: FakeState, worker: WorkerProcess
):
    assert (await state.ended(await state.run("true"))).exit_code == 0
    for child in psutil.Process(worker.launcher_pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # of an attempt before this one
            for init in child.children():
                init.kill()
                await asyncio.to_thread(init.wait, 20)
    assert (await state.ended(await state.run("true"))).exit_code == 0


async def test_a_task_that_is_stopped_gets_term_and_its_grace(
    state: FakeState, worker: WorkerProcess, mark: str
):
    polite = await state.run(
        "sh", "-c", "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done"
    )
    deaf = await state.run(
        "sh", "-c", f"trap '' TERM; echo ready; setsid sleep {mark} & wait; sleep 1000"
    )
    plain = await state.run("sleep", "1000")
    for ref in (polite, deaf):
        await state.printed(ref, b"ready\n")
    await state.running(plain)
    await state.order(stop=[Stop(polite, 20_000), Stop(deaf, 100), Stop(plain, 20_000)])
    found = [await state.ended(ref) for ref in (polite, deaf, plain)]
    assert [(end.exit_code, end.signal) for end in found] == [(3, None), (None, 9), (None, 15)]
    await until_gone(mark)


async def test_a_probe_runs_beside_its_task_in_the_same_sandbox(
    state: FakeState, worker: WorkerProcess
):
    probe = Probe(kind="command", command=("sh", "-c", "test -e /tmp/ready"), interval_s=0.1)
    ref = await state.run("sh", "-c", "touch /tmp/ready; sleep 1000", probe=probe, ports=("http",))
    results = lambda: [  # noqa: E731
        result for beat in state.beats for result in beat.probes if result.ref == ref
    ]
    await state.until(lambda: any(result.passes for result in results()))
