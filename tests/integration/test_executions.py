"""`iris exec` and `iris cp`: commands beside running tasks, through a whole cluster and its
services.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import pty
import select
import signal
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from iris import Job
from iris.client.executions import RemoteCommand, TerminalSize
from iris.client.problems import Conflict, ExecutionLost
from iris_bus.contract import Connection
from iris_core import codec, subjects
from iris_core.messages.gateway_worker import (
    ExecutionOutput,
    ExecutionTaken,
    ReadExecution,
    StartExecution,
    WriteExecution,
)
from tests.support.cluster import IRIS, Cluster, cluster_on, settings, until
from tests.support.state import FakeState
from tests.support.worker import WorkerProcess

pytestmark = pytest.mark.integration

MIB = 1 << 20
GAVE_WAY = "ended for bob: one user may have half of a host's commands while others wait"
M = TypeVar("M")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("exec") / "data"
    with cluster_on(
        data, "--workers", "1", *settings(data, "[worker]\nexec_idle_s = 30\nexec_at_once = 4\n")
    ) as running:
        yield running


@pytest.fixture(scope="module")
def task(cluster: Cluster) -> Iterator[str]:
    job = running(cluster, "sleep", "1000", env={"COLOUR": "blue"})
    yield f"{job.name}/0"
    job.cancel()


def running(cluster: Cluster, *command: str, **options: object) -> Job:
    job = cluster.submit(*command, **options)
    until(lambda: cluster.client.task(f"{job.name}/0").state == "running", "it runs")
    return job


def remote(
    cluster: Cluster, task: str, *command: str, terminal: TerminalSize | None = None
) -> RemoteCommand:
    return RemoteCommand(cluster.client, task, command, terminal=terminal)


def printed(command: RemoteCommand) -> bytes:
    return b"".join(line.stdout for line in command)


def found(cluster: Cluster, *command: str) -> list[psutil.Process]:
    """The processes with this command line that the cluster runs."""
    processes = psutil.process_iter(["cmdline"])
    return [one for one in processes if one.info["cmdline"] == list(command) and cluster.owns(one)]


def memory(cluster: Cluster) -> int:
    """Bytes of the processes that a command's output passes."""
    return sum(
        psutil.Process(pid).memory_info().rss
        for name in ("worker", "gateway")
        for pid in cluster.pids(name)
    )


def test_a_command_has_the_environment_of_its_task_and_an_exit_code(cluster: Cluster, task: str):
    # that of the file may have been renewed
    tokens = 'test -n "$IRIS_TOKEN" && test -s "$IRIS_TOKEN_FILE"'
    script = f"echo $COLOUR $IRIS_TASK $TERM; pwd; echo no >&2; cat; {tokens} && exit 7"
    ended = cluster.iris("exec", "-n", task, "--", "sh", "-c", script)
    directory = str(cluster.data / "workers" / "worker-0" / "attempts")
    assert (ended.code, ended.err) == (7, "no\n")
    assert ended.out.startswith(f"blue {task} \n{directory}/".replace(" \n", "\n"))
    signalled = cluster.iris("exec", "-n", task, "--", "sh", "-c", "kill -TERM $$")
    missing = cluster.iris("exec", "-n", task, "no-such-command")
    assert (signalled.code, missing.code, missing.err) == (
        143,
        127,
        "no-such-command: command not found\n",
    )


def test_what_is_typed_reaches_it_whole_and_in_order(cluster: Cluster, task: str):
    data = os.urandom(4 * MIB)
    with remote(cluster, task, "sha256sum") as command:
        command.write(data, end=True)
        assert printed(command).split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_output_passes_in_bounded_memory_and_waits_for_its_reader(cluster: Cluster, task: str):
    with remote(cluster, task, "yes") as command:
        until(
            lambda: [one.status() for one in found(cluster, "yes")] == [psutil.STATUS_SLEEPING],
            "it waits",
        )
        before = memory(cluster)
        count = 0
        for line in command:
            count += len(line.stdout)
            if count > 100 * MIB:
                break
        assert memory(cluster) - before < 24 * MIB
    until(lambda: not found(cluster, "yes"), "it ends with its client")


def test_a_terminal_has_its_size_and_learns_of_changes(cluster: Cluster, task: str):
    script = "stty size; trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.05; done"
    with remote(
        cluster, task, "sh", "-c", script, terminal=TerminalSize(30, 100, "vt100")
    ) as command:
        seen = b""
        for line in command:
            seen += line.stdout
            if seen.endswith(b"ready\r\n"):
                command.resize(31, 101)
        assert (seen, command.exit_code) == (b"30 100\r\nready\r\n31 101\r\n", 5)


def test_a_shell_in_a_terminal_is_used_as_if_it_was_here(cluster: Cluster, task: str):
    here, there = pty.openpty()
    termios.tcsetwinsize(there, (33, 99))
    words = [*IRIS, "exec", "-t", task, "--", "sh"]
    with subprocess.Popen(
        words, env=cluster.environ, stdin=there, stdout=there, stderr=there
    ) as process:
        os.close(there)
        os.write(here, b"stty size; tty; echo $((6 * 7)); exit 9\n")
        seen = read_to_end(here)
        assert (process.wait(60), b"33 99\r\n" in seen, b"42\r\n" in seen) == (9, True, True)
    os.close(here)


def read_to_end(terminal: int) -> bytes:
    seen = b""
    while select.select([terminal], [], [], 100)[0]:
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # nobody has the other end open
            break
    return seen


def test_ctrl_c_interrupts_the_command_and_not_the_task(cluster: Cluster, task: str):
    script = "trap 'echo caught; exit 4' INT; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [*IRIS, "exec", "-n", task, "--", "sh", "-c", script],
        env=cluster.environ,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert (process.stdout.read(), process.wait(60)) == (b"caught\n", 4)
    assert cluster.client.task(task).state == "running"


def test_it_ends_with_its_task_and_says_so(cluster: Cluster):
    job = running(cluster, "sleep", "1000")
    with remote(cluster, f"{job.name}/0", "sh", "-c", "echo ready; sleep 1001") as command:
        assert next(iter(command)).stdout == b"ready\n"
        job.cancel()
        with pytest.raises(ExecutionLost, match="its task has ended"):
            printed(command)
    until(lambda: not found(cluster, "sleep", "1001"), "nothing is left")
    job.wait(60)
    with pytest.raises(Conflict, match="beside a running task only"):
        remote(cluster, f"{job.name}/0", "true")


def test_no_more_than_a_few_are_executed_on_one_host_at_a_time(cluster: Cluster, task: str):
    commands = [remote(cluster, task, "sleep", "1003") for _ in range(4)]
    with pytest.raises(Conflict, match="this host has 4 commands already"):
        remote(cluster, task, "true")
    for command in commands:
        command.__exit__(None, None, None)
    until(lambda: not found(cluster, "sleep", "1003"), "they end with their clients")


def test_files_and_directories_are_copied(cluster: Cluster, task: str, tmp_path: Path):
    made = cluster.iris(
        "exec", "-n", task, "--", "sh", "-c", "mkdir -p out/a && echo one > out/a/x && echo two > y"
    )
    wanted = (f"{task}:out", f"{task.rpartition('/')[0]}:y", f"{task}:nothing")
    copied = [cluster.iris("cp", path, tmp_path / "here").code for path in wanted]
    assert (made.code, copied) == (0, [0, 0, 1])
    assert {
        path.name: path.read_text() for path in (tmp_path / "here").rglob("*") if path.is_file()
    } == {
        "x": "one\n",
        "y": "two\n",
    }


def test_a_new_leader_does_not_matter_to_it(cluster: Cluster, task: str):
    with remote(cluster, task, "cat") as command:
        cluster.kill("state")
        command.write(b"there?\n", end=True)
        assert printed(command) == b"there?\n"
    assert cluster.client.task(task).state == "running"  # there is a leader again


@pytest.mark.soak
def test_without_its_gateway_or_worker_it_ends(cluster: Cluster, task: str):
    with remote(cluster, task, "sleep", "1002") as command:
        cluster.kill("gateway")
        with pytest.raises(ExecutionLost, match=r"the connection to the gateway broke|closed"):
            printed(command)
    until(
        lambda: not found(cluster, "sleep", "1002"), "nothing is left of it without its gateway", 40
    )
    until(lambda: cluster.iris("ls").code == 0, "the gateway listens again")
    with remote(cluster, task, "sleep", "1002") as command:
        os.kill(cluster.pids("worker")[0], signal.SIGKILL)
        with pytest.raises(ExecutionLost, match="is not connected"):
            printed(command)
    until(lambda: not found(cluster, "sleep", "1002"), "nothing is left of it without its worker")


async def test_a_command_beside_an_adopted_task_is_confined_like_that_task(
    connection: Connection, nats_url: str, tmp_path: Path
):
    state = await FakeState(connection, "w0").start()
    async with WorkerProcess(nats_url, tmp_path / "w0", exec_idle_s=4) as worker:
        await state.registration()
        ref = await state.run("sleep", "1000", env={"COLOUR": "blue"})
        await state.running(ref)
        await worker.kill()
        await worker.start()
        await state.registration(2)
        assert await executed(
            connection, StartExecution("a", ref, "ann", ("sh", "-c", "echo $COLOUR"))
        ) == [
            ExecutionOutput(1, b"blue\n"),
            ExecutionOutput(2, ended=True, exit_code=0),
        ]
        [sleep] = [
            one
            for one in psutil.Process(worker.launcher_pid).children()
            if one.cmdline() == ["sleep", "1000"]
        ]
        where, namespace = (
            "id -u; readlink /proc/self/ns/mnt",
            os.readlink(f"/proc/{sleep.pid}/ns/mnt"),
        )
        pieces = await executed(connection, StartExecution("d", ref, "ann", ("sh", "-c", where)))
        assert b"".join(piece.stdout for piece in pieces).decode().split() == [
            str(sleep.uids().real),
            namespace,
        ]
        [end] = await executed(connection, StartExecution("b", ref, "ann", ("sleep", "1000")))
        assert (end.signal, end.error) == (signal.SIGKILL, "idle for 4 s")
        refused = await asked(connection, WriteExecution("c", "ann"), ExecutionTaken)
        assert refused.error == "its worker has ended it, or was restarted"


async def test_a_user_with_more_than_half_of_a_host_gives_way_to_another(
    connection: Connection, nats_url: str, tmp_path: Path
):
    state = await FakeState(connection, "w0").start()
    async with WorkerProcess(nats_url, tmp_path / "w0", exec_at_once=2):
        await state.registration()
        ref = await state.run("sleep", "1000")
        await state.running(ref)
        for name in ("a", "b"):
            start = StartExecution(name, ref, "ann", ("sleep", "1000"))
            assert await asked(connection, start, ExecutionTaken) == ExecutionTaken()
        [piece, _] = await executed(connection, StartExecution("c", ref, "bob", ("echo", "room")))
        assert piece.stdout == b"room\n"
        while not (end := await asked(connection, ReadExecution("a", 0), ExecutionOutput)).ended:
            await asyncio.sleep(0.01)
        assert end.error == GAVE_WAY
        other = StartExecution("d", ref, "bob", ("sleep", "1000"))
        assert await asked(connection, other, ExecutionTaken) == ExecutionTaken()
        refused = await asked(
            connection, StartExecution("e", ref, "ann", ("true",)), ExecutionTaken
        )
        assert refused.error == "this host has 2 commands already, 1 of them yours"


async def executed(connection: Connection, start: StartExecution) -> list[ExecutionOutput]:
    """All pieces of a command's output."""
    assert await asked(connection, start, ExecutionTaken) == ExecutionTaken()
    pieces = [ExecutionOutput(0)]
    while not pieces[-1].ended:
        piece = await asked(
            connection, ReadExecution(start.execution, pieces[-1].number), ExecutionOutput
        )
        if piece.number > pieces[-1].number:
            pieces.append(piece)
    return pieces[1:]


async def asked(connection: Connection, request: object, kind: type[M]) -> M:
    answer = await connection.bus.request(subjects.execution("w0"), codec.pack(request), timeout=30)
    return codec.unpack(answer.data, kind)
