"""Virtual environments that a worker builds for its tasks: real builds, of a package of the test,
without a network.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from iris_bus.contract import Connection
from iris_core import subjects
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Stop
from iris_core.spec.jobs import Environment
from iris_core.states import Cause, KernelStatus
from tests.support.state import FakeState
from tests.support.worker import WorkerProcess, until

pytestmark = pytest.mark.integration

K = KernelStatus
GREET = ("python", "-c", "import greet; print(greet.WORD)")
REQUIREMENTS = "--no-index\n-f wheels\ngreet\n"
PYTHON = next(
    path for path in ("/usr/local/bin/python3", "/usr/bin/python3") if os.path.exists(path)
)
"""An interpreter that every user may run."""
BUILT = Environment(packages="requirements.txt")


def quick_python(directory: Path, python: str) -> str:
    """The search path of a host whose Python puts no pip into environments, which would take
    several seconds.
    """
    directory.mkdir()
    program = directory / "python3"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in "-m venv"*) set -- "$@" --without-pip;; esac\nexec {python} "$@"\n'
    )
    program.chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", quick_python(tmp_path / "bin", os.path.realpath(sys.executable)))


@pytest.fixture
async def worker(state: FakeState, nats_url: str, tmp_path: Path) -> AsyncIterator[WorkerProcess]:
    async with WorkerProcess(
        nats_url, tmp_path / "w0", stop_grace_s=1, heartbeat_interval_s=0.2
    ) as process:
        await state.registration()
        yield process


def wheel(word: str) -> bytes:
    """A package ``greet`` whose ``WORD`` is this one."""
    about = "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n"
    files = {
        "greet.py": f"WORD = {word!r}\n",
        "greet-1.0.dist-info/METADATA": about,
        "greet-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, "greet-1.0.dist-info/RECORD"])
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        for name, text in {**files, "greet-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    return into.getvalue()


async def bundle(connection: Connection, files: dict[str, str | bytes]) -> str:
    """Store files as a bundle; returns its digest."""
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w") as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    digest = hashlib.sha256(into.getvalue()).hexdigest()
    await connection.blobs(subjects.BUNDLES_BUCKET).put(digest, into.getvalue())
    return digest


async def project(connection: Connection, word: str = "hello") -> str:
    name = "wheels/greet-1.0-py3-none-any.whl"
    return await bundle(connection, {"requirements.txt": REQUIREMENTS, name: wheel(word)})


def details(state: FakeState, ref: AttemptRef) -> list[str]:
    return list(
        dict.fromkeys(stage.detail for stage in state.stages if stage.ref == ref and stage.detail)
    )


def environments(worker: WorkerProcess) -> list[str]:
    """The directories of environments on its disk."""
    return sorted(path.name for path in (worker.data / "environments").iterdir() if path.is_dir())


def lines(file: Path) -> int:
    """How many whole lines it has; a shell makes a file before it writes into it."""
    return file.read_text().count("\n") if file.exists() else 0


async def test_a_task_has_its_packages_and_the_next_one_finds_them_cached(
    state: FakeState, worker: WorkerProcess, connection: Connection
):
    code = await project(connection)
    first = await state.run(*GREET, bundle=code, environment=BUILT)
    assert (await state.ended(first)).exit_code == 0
    assert await state.output(first) == b"hello\n"
    assert details(state, first) == ["builds its environment: requirements.txt"]
    assert b"iris: builds the environment: requirements.txt" in await state.output(first, "stderr")

    second = await state.run(*GREET, bundle=code, environment=BUILT)
    assert (await state.ended(second)).exit_code == 0
    assert (await state.output(second), await state.output(second, "stderr")) == (b"hello\n", b"")
    assert details(state, second) == []


async def test_tasks_that_need_the_same_environment_wait_for_one_build(
    state: FakeState, worker: WorkerProcess, connection: Connection, tmp_path: Path
):
    wanted = Environment(
        setup=f"echo built >> {tmp_path}/builds; while ! test -e {tmp_path}/go; do sleep 0.01; done"
    )
    refs = [
        await state.run("sh", "-c", 'test -n "$VIRTUAL_ENV"', environment=wanted) for _ in range(3)
    ]
    await state.until(lambda: all(details(state, ref) for ref in refs))
    await until(lambda: lines(tmp_path / "builds") == 1)
    assert (
        sum(details(state, ref)[-1].startswith("waits for /t/0, which builds") for ref in refs) == 2
    )
    last = {stage.ref: stage.waits for stage in state.stages if stage.detail}
    assert [last[ref] for ref in refs].count(True) == 2, "they are not in the building window"
    (tmp_path / "go").touch()

    assert [(await state.ended(ref)).exit_code for ref in refs] == [0, 0, 0]
    assert not any(stage.waits for stage in state.stages if stage.status is KernelStatus.RUNNING)
    assert (tmp_path / "builds").read_text() == "built\n"
    other = await state.run("true", environment=wanted, user="bob")
    await state.ended(other)
    assert (tmp_path / "builds").read_text() == "built\n" * 2, (
        "another user has an environment of his own"
    )


async def test_a_failing_build_is_the_owners_failure_with_the_end_of_its_output(
    state: FakeState, worker: WorkerProcess
):
    ref = await state.run("true", environment=Environment(setup="echo because >&2; exit 3"))
    ended = await state.ended(ref)

    assert (ended.cause, ended.exit_code) == (Cause.EXITED, 3)
    assert ended.error == "its environment could not be built (its setup command): exit code 3"
    assert ended.stderr_tail.endswith("because")
    assert (await state.output(ref, "stderr")).endswith(b"because\n")
    assert K.RUNNING not in state.reported(ref)
    await until(lambda: environments(worker) == [])


async def test_what_a_host_or_a_bundle_lacks_is_said(
    state: FakeState, worker: WorkerProcess, connection: Connection
):
    absent = await state.run("true", environment=Environment(python="3.99"))
    empty = await state.run("true", bundle=await bundle(connection, {"a": ""}), environment=BUILT)

    assert (await state.ended(absent)).exit_code
    ended = await state.ended(empty)
    assert (ended.cause, ended.exit_code) == (Cause.EXITED, 127)
    assert ended.error == "environment: requirements.txt is not in the bundle"


async def test_a_build_stops_with_its_job_and_the_next_job_builds_again(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    wanted = Environment(
        setup=f"echo $$ >> {tmp_path}/builds; while ! test -e {tmp_path}/go; do sleep 0.01; done"
    )
    first = await state.run("true", environment=wanted)
    await until(lambda: lines(tmp_path / "builds") == 1)
    second = await state.run("true", environment=wanted)
    await state.until(lambda: bool(details(state, second)))
    await state.order(stop=[Stop(first, grace_ms=100)])
    ended = await state.ended(first)
    assert ended.cause is Cause.CANCELLED
    await until(lambda: lines(tmp_path / "builds") == 2)
    stopped, running = (int(word) for word in (tmp_path / "builds").read_text().split())
    assert (os.path.exists(f"/proc/{stopped}"), os.path.exists(f"/proc/{running}")) == (False, True)
    (tmp_path / "go").touch()
    assert (await state.ended(second)).exit_code == 0


async def test_a_build_that_takes_too_long_is_stopped(
    state: FakeState, nats_url: str, tmp_path: Path
):
    async with WorkerProcess(
        nats_url, tmp_path / "w0", build_timeout_s=1, stop_grace_s=1
    ) as worker:
        await state.registration()
        ended = await state.ended(
            await state.run("true", environment=Environment(setup="sleep 1000"))
        )
        assert (ended.cause, ended.signal) == (Cause.EXITED, 15)
        assert ended.error == "its environment was not built within 1 s: its setup command"
        await until(lambda: environments(worker) == [])


async def test_an_unfinished_build_of_a_killed_worker_is_never_used(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    wanted = Environment(
        setup=f"echo $$ >> {tmp_path}/builds; while ! test -e {tmp_path}/go; do sleep 0.01; done"
    )
    first = await state.run("true", environment=wanted)
    await until(lambda: lines(tmp_path / "builds") == 1)
    await worker.kill()
    await worker.start()
    register = await state.registration(2)
    assert [(stage.ref, stage.status) for stage in register.attempts] == [(first, K.PULLING)]
    ended = await state.ended(first)
    assert (ended.cause, ended.error) == (
        Cause.INFRASTRUCTURE,
        "its worker was restarted while its environment was built",
    )
    (tmp_path / "go").touch()
    await until(lambda: environments(worker) == [])
    again = await state.run("true", environment=wanted)
    assert (await state.ended(again)).exit_code == 0
    assert (tmp_path / "builds").read_text().count("\n") == 2


async def test_an_environment_is_kept_while_an_adopted_task_runs_in_it(
    state: FakeState, nats_url: str, tmp_path: Path
):
    wait = f"while ! test -e {tmp_path}/go; do sleep 0.01; done; python -c 'import sys; print(sys.prefix)'"
    async with WorkerProcess(
        nats_url, tmp_path / "w0", environments_kept=1, stop_grace_s=1
    ) as worker:
        await state.registration()
        first = await state.run("sh", "-c", wait, environment=Environment(setup="true # 1"))
        await state.running(first)
        kept = environments(worker)
        await worker.kill()
        await worker.start()
        await state.registration(2)
        for number in (2, 3):
            other = await state.run("true", environment=Environment(setup=f"true # {number}"))
            assert (await state.ended(other)).exit_code == 0
        await until(lambda: len(environments(worker)) == 2)
        assert kept[0] in environments(worker)
        (tmp_path / "go").touch()
        assert (await state.ended(first)).exit_code == 0
        assert (
            await state.output(first)
        ).decode().strip() == f"{tmp_path}/w0/environments/{kept[0]}/venv"


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    "isolation", [pytest.param("sandbox", marks=pytest.mark.needs("bwrap")), "users"]
)
async def test_a_confined_task_uses_a_build_and_cannot_change_it(
    state: FakeState, nats_url: str, monkeypatch: pytest.MonkeyPatch, isolation: str
):
    place = Path(tempfile.mkdtemp(dir="/tmp", prefix="iris-builds-"))
    place.chmod(0o755)
    monkeypatch.setenv("PATH", quick_python(place / "bin", PYTHON))
    settings = {"run_as": "", "sandbox": "auto", "binds": f"{place}/bin:ro", "stop_grace_s": 1}
    settings |= {} if isolation == "sandbox" else {"bubblewrap": "no-such-program"}
    look = 'cat "$VIRTUAL_ENV/by"; python -c "import word; print(word.WORD)"; touch "$VIRTUAL_ENV/by" || echo kept; id -u'
    wanted = Environment(
        setup='id -u > "$VIRTUAL_ENV/by"; cd "$VIRTUAL_ENV"/lib/python3*/site-packages; echo "WORD = 1" > word.py'
    )
    try:
        async with WorkerProcess(nats_url, place / "w0", **settings) as worker:
            assert (await state.registration()).attributes["isolation"] == isolation
            for _ in range(2):
                ref = await state.run("sh", "-c", look, environment=wanted)
                assert (await state.ended(ref)).exit_code == 0, await state.output(ref, "stderr")
                by, word, kept, user = (await state.output(ref)).decode().split()
                assert (by == user != "0", word, kept) == (True, "1", "kept")
            [directory] = environments(worker)
            owners = {
                path.lstat().st_uid
                for path in (place / "w0" / "environments" / directory).rglob("*")
            }
            assert owners == {0}
    finally:
        shutil.rmtree(place)


@pytest.mark.needs("uv")
async def test_uv_installs_what_its_lock_file_lists(
    state: FakeState, worker: WorkerProcess, connection: Connection
):
    project = '[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["greet"]\n'
    project += '[tool.uv.sources]\ngreet = { path = "wheels/greet-1.0-py3-none-any.whl" }\n'
    data = wheel("locked")
    lock = (
        'version = 1\nrevision = 3\nrequires-python = ">=3.11"\n\n[[package]]\nname = "greet"\nversion = "1.0"\n'
        'source = { path = "wheels/greet-1.0-py3-none-any.whl" }\nwheels = [\n'
        f'    {{ filename = "greet-1.0-py3-none-any.whl", hash = "sha256:{hashlib.sha256(data).hexdigest()}" }},\n]\n\n'
        '[[package]]\nname = "mine"\nversion = "1"\nsource = { virtual = "." }\ndependencies = [\n'
        '    { name = "greet" },\n]\n\n[package.metadata]\n'
        'requires-dist = [{ name = "greet", path = "wheels/greet-1.0-py3-none-any.whl" }]\n'
    )
    files = {"pyproject.toml": project, "uv.lock": lock, "wheels/greet-1.0-py3-none-any.whl": data}
    ref = await state.run(
        *GREET, bundle=await bundle(connection, files), environment=Environment(packages="uv.lock")
    )
    ended = await state.ended(ref)
    assert (ended.exit_code, await state.output(ref)) == (0, b"locked\n"), ended
