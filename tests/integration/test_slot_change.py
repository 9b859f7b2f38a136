"""What the templates of a job can do to the next job of their slot, on each kind of host that
clones confined tasks.
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from iris_bus.contract import Connection
from iris_core.messages.message import AttemptRef
from iris_core.states import KernelStatus
from tests.integration.test_builds import bundle
from tests.integration.test_sandbox import CLONES, PYTHON, own_users
from tests.integration.test_templates import lives
from tests.support.cluster import cluster_on, settings
from tests.support.hosts import command, on_hosts, until, worker_of
from tests.support.state import GRANT, FakeState, template
from tests.support.worker import WorkerProcess

pytestmark = [
    pytest.mark.integration,
    pytest.mark.needs("root"),
]

SPY = """import os, signal
HERE = os.path.dirname(os.getcwd())

def look(*_):
    for name in ("1-1-0/secret", "2-0-0/secret", "2-0-0", "3-0-0"):
        if os.path.exists(f"{HERE}/{name}"):
            open(f"SHARED/found-{name.replace('/', '-')}", "w").close()
    open("SHARED/looked", "w").close()

if not LEAVES or not os.fork():
    if LEAVES:
        os.setsid()
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    while LEAVES:
        signal.pause()
"""
"""A module with a handler that looks for the next jobs of its slot: in the template, or in a
process that it leaves.
"""


def below(worker: WorkerProcess) -> list[psutil.Process]:
    """The processes of this worker's tasks, of templates, and what those have left."""
    found = psutil.Process(worker.launcher_pid).children(recursive=True)
    return [one for one in found if lives(one) and "iris_template" in command(one)]


async def preload(
    state: FakeState, place: Path, mode: str, *, leaves: bool = False, **more: object
) -> None:
    """Run a task of ann's whose template then looks for other jobs."""
    shared = place / "shared"
    (place / "shown" / "spy.py").write_text(
        SPY.replace("SHARED", str(shared)).replace("LEAVES", str(leaves))
    )
    (place / "shown" / "nothing.py").touch()
    program = (PYTHON, str(place / "shown" / "nothing.py"))
    ref = await state.run(
        *program, preload=("spy",), env={"PYTHONPATH": str(place / "shown")}, **more
    )
    assert (await state.ended(ref)).exit_code == 0
    await until((shared / "looked").exists)


@pytest.fixture
def shared(place: Path) -> Path:
    """A directory that every task can write to."""
    for name in ("shown", "shared"):
        (place / name).mkdir()
    (place / "shared").chmod(0o777)
    return place / "shared"


@pytest.mark.parametrize("user", ["ann", "bob"])
@pytest.mark.parametrize("mode", on_hosts(CLONES))
async def test_a_template_is_gone_before_another_job_is_prepared(
    mode: str,
    user: str,
    state: FakeState,
    connection: Connection,
    nats_url: str,
    place: Path,
    shared: Path,
):
    binds = f"{place / 'shown'}:ro,{shared}"
    async with worker_of(mode, state, nats_url, place, binds=binds, **own_users(mode)) as worker:
        await preload(state, place, mode)
        before, ref = below(worker), AttemptRef(2, 0, 0)
        assert len(before) == 2
        code = await bundle(connection, {"secret": "s"})
        work = template("cat", "secret", job=2, bundle=code, user=user, grant=GRANT)
        assert (await state.order([work], prepare=[ref])).taken
        await state.until(lambda: KernelStatus.PREPARED in state.reported(ref))
        assert len([one for one in before if lives(one)]) == (1 if user == "ann" else 0)
        found = sorted(path.name for path in shared.iterdir())
        assert (await state.order(start=[ref])).taken
        assert (await state.ended(ref)).exit_code == 0
        assert found == ["looked"]


@pytest.mark.parametrize("mode", on_hosts(CLONES[:2]))
async def test_what_a_template_has_left_does_not_reach_what_is_prepared(
    mode: str, state: FakeState, connection: Connection, nats_url: str, place: Path, shared: Path
):
    """The worker, who is root, fills the directory of the next attempt by paths."""
    binds, code = f"{place / 'shown'}:ro,{shared}", await bundle(connection, {"secret": "s"})
    async with worker_of(mode, state, nats_url, place, binds=binds, **own_users(mode)):
        await preload(state, place, mode, leaves=True, replicas=2)
        program, ref = (PYTHON, str(place / "shown" / "nothing.py")), AttemptRef(1, 1, 0)
        variables = {"PYTHONPATH": str(place / "shown")}
        work = template(*program, job=1, preload=("spy",), env=variables, replicas=2, bundle=code)
        assert (await state.order([work], prepare=[ref])).taken
        await state.until(lambda: KernelStatus.PREPARED in state.reported(ref))
        (shared / "looked").unlink()
        await until((shared / "looked").exists)
        found = sorted(path.name for path in shared.iterdir())
        assert (await state.order(start=[ref])).taken
        assert (await state.ended(ref)).exit_code == 0
        assert found == ["looked"]


@pytest.mark.parametrize("cgroups", [True, False])
@pytest.mark.parametrize("mode", on_hosts(CLONES[:2]))
async def test_what_a_template_has_left_is_gone_before_another_job_has_its_slot(
    mode: str, cgroups: bool, state: FakeState, nats_url: str, place: Path, shared: Path
):
    binds = f"{place / 'shown'}:ro,{shared}"
    async with worker_of(
        mode, state, nats_url, place, binds=binds, cgroups=cgroups, **own_users(mode)
    ) as worker:
        await preload(state, place, mode, leaves=True)
        before = below(worker)
        assert len(before) == 3
        ref = await state.run("cat", "/dev/null", user="bob", grant=GRANT)
        await state.running(ref)
        assert not [one for one in before if lives(one)]
        assert (await state.ended(ref)).exit_code == 0
        assert [path.name for path in shared.iterdir()] == ["looked"]


@pytest.mark.parametrize("mode", on_hosts(CLONES[1:2]))
async def test_a_worker_that_was_restarted_empties_slots_that_it_does_not_know(
    mode: str, state: FakeState, nats_url: str, place: Path, shared: Path
):
    binds = f"{place / 'shown'}:ro,{shared}"
    async with worker_of(mode, state, nats_url, place, binds=binds, **own_users(mode)) as worker:
        held = await state.run("sleep", "1000")
        await state.running(held)
        await preload(state, place, mode)
        before = below(worker)
        await worker.kill()
        await worker.start()
        await state.registration(2)
        assert all(map(lives, before))
        ref = AttemptRef(3, 0, 0)
        assert (
            await state.order([template("true", job=3, preload=("json",))], prepare=[ref])
        ).taken
        await state.until(lambda: KernelStatus.PREPARED in state.reported(ref))
        assert not any(map(lives, before))
        assert not (shared / "found-3-0-0").exists()


@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("cgroups", ["true", "false"])
def test_calls_share_a_process_in_a_sandbox(place: Path, cgroups: str):
    def call(number: int) -> tuple[bytes, int, str, list[str]]:
        """Which process has made the call, as its how manieth, for which item, and what it found in
        its directory.
        """
        import math
        import subprocess

        if number == 30:
            subprocess.run(["setsid", "-f", "sleep", "100"], check=True)
        math.mine, math.calls = getattr(math, "mine", os.urandom(8)), getattr(math, "calls", 0) + 1
        open("mine", "w").close()
        open("/tmp/ours", "a").close()
        return (
            math.mine,
            math.calls,
            os.environ["IRIS_TASK_INDEX"],
            sorted(set(os.listdir(".")) - {".iris-call"}),
        )

    options = settings(place / "data", f"[worker]\ncgroups = {cgroups}\n")
    with cluster_on(place / "data", "--workers", "1", "--sandbox", *options) as cluster:
        found = cluster.client.map(call, range(40), cpu=8, reuse=20).results(60)
        assert [(index, files) for *_, index, files in found] == [
            (str(number), ["mine"]) for number in range(40)
        ]
        assert len({mine for mine, *_ in found}) < 40, "no process was reused"
        leaves, calls, *_ = found[30]
        assert calls == max(calls for mine, calls, *_ in found if mine == leaves), (
            "something was left beside it"
        )
