"""What `iris down` kills of a cluster whose processes were killed, here processes that only have
the marks of tasks.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from iris.cli.cluster import teardown
from iris.cli.cluster.teardown import belongs, tear_down
from iris.cli.exit_codes import ExitCode
from iris.cluster.paths import ClusterPaths
from iris.cluster.process import is_alive, is_of_program

_CHROOT = "import os, sys; os.chroot(sys.argv[1]); print(flush=True); sys.stdin.read()"


@pytest.fixture
def task():
    """Starts a process whose environment names this directory; all are ended afterwards."""
    started = []

    def start(workdir: Path, *command: str) -> subprocess.Popen[bytes]:
        environ = {**os.environ, "IRIS_WORKDIR": str(workdir)}
        command = command or (
            sys.executable,
            "-c",
            "import sys; print(flush=True); sys.stdin.read()",
        )
        given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.append(subprocess.Popen(command, env=environ, **given))
        assert started[-1].stdout.readline() == b"\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_down_spares_tasks_of_another_data_directory_inside_its_own(tmp_path: Path, task, capsys):
    own = task(tmp_path / "workers/worker-0/attempts/0/work")
    others = [
        task(tmp_path / f"{name}/w/attempts/0/work")
        for name in ("other", "other/workers", "workers-2")
    ]
    assert tear_down(tmp_path) is ExitCode.SUCCEEDED
    assert [is_alive(process.pid) for process in (own, *others)] == [False, True, True, True]
    assert capsys.readouterr().err.endswith(
        f"processes that tasks of {tmp_path} had left, and are ended: 1\n"
    )


@pytest.mark.parametrize("exists", [True, False])
def test_down_finds_tasks_by_any_path_to_their_directory(tmp_path: Path, task, exists: bool):
    (tmp_path / "link").symlink_to(tmp_path / "data")
    if exists:
        (tmp_path / "data/workers/worker-0/attempts/0/work").mkdir(parents=True)
    for started, stopped in (
        ("link", "data"),
        ("data", "link"),
        ("link/../data", "data"),
        ("data", "link/../data"),
    ):
        found = task(tmp_path / started / "workers/worker-0/attempts/0/work")
        assert tear_down(tmp_path / stopped) is ExitCode.SUCCEEDED
        assert not is_alive(found.pid), (started, stopped)


def test_down_ends_launchers_also_of_an_earlier_version(tmp_path: Path, task, monkeypatch):
    """One that is alive would record the end of a task that is killed."""
    monkeypatch.setattr(teardown, "_KILL_S", 0.1)
    command = (sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()")
    modules = (
        "iris_worker.launcher.launcher",
        "iris_worker.process.launcher",
        "iris_worker.launcher",
    )
    launchers = [
        task(tmp_path, *command, module, str(tmp_path / "workers/worker-0")) for module in modules
    ]
    assert tear_down(tmp_path) is ExitCode.SUCCEEDED
    assert [launcher.wait(60) for launcher in launchers[:2]] == [-signal.SIGKILL] * 2
    assert is_alive(launchers[2].pid)


def test_a_service_belongs_to_its_cluster_by_any_path(tmp_path: Path, task, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path / "data")
    monkeypatch.setenv("IRIS_DATA", str(tmp_path / "link"))
    service = task(tmp_path)
    found = {
        name: belongs(service.pid, ClusterPaths(tmp_path / name))
        for name in ("link", "data", "other", ".")
    }
    assert found == {"link": True, "data": True, "other": False, ".": False}


def test_down_ends_services_that_no_file_names_and_nobody_elses_programs(
    tmp_path: Path, task, monkeypatch
):
    """Their supervisor was killed before it wrote that it has started them, or again."""
    monkeypatch.setattr(teardown, "_KILL_S", 0.1)
    command = (sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()")
    other = tmp_path / "other"
    servers = [task(other, *command, "-c", str(at / "nats/nats.conf")) for at in (tmp_path, other)]
    monkeypatch.setenv("IRIS_DATA", str(tmp_path))
    service, *programs = (
        task(other, *command, *words)
        for words in (("-m", "iris_state", "--set", "a=b"), (), ("-m", "iris.cli", "ls"))
    )
    monkeypatch.setenv("IRIS_DATA", str(other))
    programs.append(task(other, *command, "-m", "iris_state"))

    assert tear_down(tmp_path) is ExitCode.SUCCEEDED

    assert [process.wait(30) < 0 for process in (servers[0], service)] == [True, True]
    assert all(is_alive(process.pid) for process in (servers[1], *programs))


@pytest.mark.needs("root")
def test_down_spares_a_container_with_another_directory_of_that_name(tmp_path: Path, task):
    data, root = tmp_path / "data", tmp_path / "root"
    work = data / "workers/worker-0/attempts/0/work"
    for path in (work, root / work.relative_to("/")):
        path.mkdir(parents=True)
    own = task(work)
    other = task(work, sys.executable, "-c", _CHROOT, str(root))
    assert tear_down(data) is ExitCode.SUCCEEDED
    assert (is_alive(own.pid), is_alive(other.pid)) == (False, True)


@pytest.mark.parametrize(
    ("environ", "is_its"), [({"IRIS_CLUSTER": "iris"}, True), ({"IRIS_CLUSTER_HTTP": "x"}, False)]
)
def test_what_a_program_of_a_pool_has_started_is_known_and_no_orphan(
    environ: dict[str, str], is_its: bool
):
    pipe = subprocess.PIPE
    words = {**environ, "PATH": os.environ["PATH"]}
    with subprocess.Popen(["cat"], env=words, stdin=pipe, stdout=pipe, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"x")
        assert process.stdout.read(1) == b"x"  # before its start is over it has no environment
        assert is_of_program(process.pid) == is_its
        process.kill()
