"""`iris run --interactive`: a task used from a terminal, which ends with that, through a whole
cluster.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from iris import Job, RemoteTerminal, TerminalSize
from iris_bus.contract import Connection
from tests.support.cluster import Cluster, cluster_on, settings
from tests.support.state import FakeState
from tests.support.terminal import Attached, TerminalCommand
from tests.support.worker import WorkerProcess

pytestmark = pytest.mark.integration

SILENT_S = 20
M = TypeVar("M")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("interactive") / "data"
    with cluster_on(
        data, "--workers", "1", *settings(data, f"[worker]\nterminal_silent_s = {SILENT_S}\n")
    ) as running:
        yield running


def interactive(
    cluster: Cluster, name: str, *words: str, size: tuple[int, int] = (24, 80)
) -> TerminalCommand:
    return TerminalCommand(cluster.environ, "run", "-it", "--name", name, *words, size=size)


def ended(cluster: Cluster, name: str, within_s: float = 60) -> Job:
    """The job, once it has ended and its host is free again."""
    job = cluster.client.job(name)
    job.wait(within_s)
    return job


def test_a_shell_in_a_task_is_used_as_if_it_was_here(cluster: Cluster):
    with interactive(cluster, "shell", size=(33, 99)) as shell:
        shell.expect("/shell submitted")
        shell.expect("/shell/0 runs on worker-0")
        shell.type("stty size; tty; echo $TERM $IRIS_TASK $((6 * 7))\n")
        shell.expect("33 99\r\n")
        shell.expect("/dev/")
        shell.expect("vt100 /shell/0 42\r\n")
        for rows in range(1, 50):
            shell.resize(rows, 100)
        shell.resize(50, 101)
        shell.type("until stty size | grep '50 101'; do :; done\n")
        shell.expect("50 101\r\n")
        shell.type("sh -c 'echo rea$((1))dy; exec cat'\n")
        shell.expect("rea1dy")
        shell.type("\x03")
        shell.expect("^C")
        shell.expect(
            "# " if os.geteuid() == 0 else "$ "
        )  # until then what is typed may be for the one that ends
        shell.type("echo still $((40 + 2)); exit 9\n")
        shell.expect("still 42")
        assert shell.end() == 9
    job = ended(cluster, "/shell")
    assert (job.state, cluster.client.task("/shell/0").exit_code) == ("failed", 9)


def test_without_a_terminal_here_it_reads_what_it_is_given(cluster: Cluster):
    done = cluster.iris(
        "run", "--interactive", "--name", "piped", "--", "sh", "-c", "tty && echo seven && exit 7"
    )
    assert (done.code, "seven" in done.out) == (7, True)


def test_a_closed_terminal_ends_the_job_and_says_so(cluster: Cluster):
    with interactive(cluster, "closed", "--", "sh", "-c", "echo ready; exec sleep 1000") as shell:
        shell.expect("ready")
        shell.hang_up()
        assert ended(cluster, "/closed").state == "killed"
    assert "its terminal was closed (SIGHUP)" in cluster.iris("why", "/closed").out


@pytest.fixture(scope="module")
def abandoned(cluster: Cluster) -> None:
    """Jobs whose clients are killed, `/killed` while it runs and `/early` before; they are ended at
    the same time.
    """
    with interactive(cluster, "early", "--hold", "--", "sleep", "1000") as shell:
        shell.expect("/early submitted")
        shell.kill()
    cluster.client.release("/early")
    with interactive(cluster, "killed", "--", "sh", "-c", "echo ready; exec sleep 1000") as shell:
        shell.expect("ready")
        shell.kill()


def test_a_killed_client_ends_the_job_after_the_stated_time(cluster: Cluster, abandoned: None):
    assert ended(cluster, "/killed").state == "failed"
    why = f"its terminal is gone: nobody has been connected to it for {SILENT_S} s"
    assert why in cluster.iris("why", "/killed").out
    assert cluster.client.task("/killed/0").exit_code == 128 + signal.SIGHUP


def test_a_client_that_is_killed_while_it_waits_leaves_nothing_running(
    cluster: Cluster, abandoned: None
):
    assert ended(cluster, "/early").state == "failed"


def test_ctrl_c_before_it_runs_ends_the_job(cluster: Cluster):
    with interactive(cluster, "waits", "--hold", "--", "sleep", "1000") as shell:
        shell.expect("/waits waits")
        shell.type("\x03")
        assert shell.end() == 130
    assert ended(cluster, "/waits").state == "killed"


def test_a_restart_of_the_gateway_leaves_the_shell(cluster: Cluster):
    with interactive(cluster, "restarted") as shell:
        shell.expect("/restarted/0 runs")
        shell.type("variable=kept; echo se$((1 + 1))t\n")
        shell.expect("se2t")
        cluster.kill("gateway")
        shell.expect("connecting again")
        shell.expect("connected again")
        shell.type("echo is $variable; exit 3\n")
        shell.expect("is kept")
        assert shell.end() == 3


async def test_a_restart_of_the_worker_leaves_the_shell_to_a_later_client(
    connection: Connection, nats_url: str, tmp_path: Path
):
    state = await FakeState(connection, "w0").start()
    async with WorkerProcess(nats_url, tmp_path / "w0", terminal_silent_s=15) as worker:
        await state.registration()
        ref = await state.run("sh", terminal=True)
        await state.running(ref)
        first = Attached(connection, ref)
        assert await first.open() == ""
        await first.write("variable=kept; echo se$((1 + 1))t\n")
        await first.expect("se2t")
        await worker.kill()
        await worker.start()
        await state.registration(2)
        second = Attached(connection, ref)
        assert await second.open() == ""
        await second.write("echo is $variable\n")
        await second.expect("is kept")
        second.close()
        end = await state.ended(ref)
        assert (end.exit_code, end.error) == (
            129,
            "its terminal is gone: nobody has been connected to it for 15 s",
        )


def test_a_second_client_takes_the_terminal_and_the_first_is_told(cluster: Cluster):
    with interactive(cluster, "taken") as shell:
        shell.expect("/taken/0 runs")
        shell.type("echo my$((1 + 1))\n")
        shell.expect("my2")
        with RemoteTerminal(cluster.client, "/taken/0", TerminalSize(24, 80)) as other:
            shell.expect("another client has connected to the terminal")
            assert shell.end() == 255
            other.write(b"exit 5\n")
            assert b"exit 5" in b"".join(line.stdout for line in other)
    ended(cluster, "/taken")
    assert cluster.client.task("/taken/0").exit_code == 5


def test_what_does_not_go_with_a_terminal_is_refused_aloud(cluster: Cluster):
    refused = {
        ("-d",): "--interactive is a terminal here",
        ("-r", "2"): "a terminal is that of one task, not of 2",
        ("--array", "0-3"): "a terminal is that of one task, not of 4",
        ("--max-retries-failure", "1"): "a task with a terminal has no max_retries_failure",
        ("--on-exit", "75=requeue"): "a task with a terminal has no on_exit",
        ("--preload", "json"): "a task with a terminal has no preload",
    }
    for options, words in refused.items():
        ended = cluster.iris("run", "-it", *options, "--", "python", "-c", "0")
        assert (ended.code, words in ended.err) == (2, True), ended.err
