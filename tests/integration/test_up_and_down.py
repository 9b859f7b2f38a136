"""`iris up` and `iris down`: a local cluster starts, stops, and continues from its data."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from urllib.parse import urlsplit
from urllib.request import urlopen

import psutil
import pytest

from iris import Client
from iris.client.http.address import read_cluster
from iris.cluster.process import is_alive
from iris_nats.nats_binary import find
from tests.support.cluster import (
    IRIS,
    cluster_on,
    environment,
    iris,
    owns,
    settings,
    start,
    stop,
    until,
)
from tests.support.nats_config import row_of_free_ports
from tests.support.suspend import suspend

pytestmark = pytest.mark.integration
NO_GROUPS = "warning: --memory is enforced by samples"
STALE = "state has ended: iris state: environment IRIS_STATE_PORT: [state] has no key 'port'"


def test_after_down_and_up_what_was_done_is_there_and_the_rest_runs(tmp_path):
    cluster = start(tmp_path / "data", "--workers", "1")
    first = cluster.iris("run", "--name", "before", "--", "sh", "-c", "echo kept")
    gate = tmp_path / "gate"
    job = cluster.submit("sh", "-c", f"[ -e {gate} ] || sleep 1000", name="long")
    until(lambda: job.refresh().state == "running", "it runs")
    stop(cluster)
    gate.touch()
    with cluster_on(tmp_path / "data", "--workers", "1") as again:
        assert first.code == 0, first.err
        assert again.client.job("/before").state == "succeeded"
        assert again.iris("logs", "before").out == "kept\n"
        assert again.client.job("/long").wait(60).state == "succeeded"
        assert again.iris("run", "--name", "after", "--", "true").code == 0


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A cluster without a worker that stories leave as they found it."""
    with cluster_on(tmp_path_factory.mktemp("bare") / "data", "--workers", "0") as running:
        yield running


def test_a_second_cluster_on_the_same_data_is_refused_or_the_first(bare):
    second = bare.iris("up", "--data", bare.data)
    assert (second.code, second.out) == (11, "")
    assert "already up" in second.err

    again = bare.iris("up", "--detach", "--data", bare.data)
    assert (again.code, again.out) == (0, f"{bare.url}\n")
    assert again.err == f"the cluster on {bare.data} is up already; options have no effect on it\n"
    assert bare.iris("ls").code == 0


def test_every_process_serves_metrics_from_the_configured_port_on(tmp_path):
    base = row_of_free_ports(8)
    config = settings(tmp_path / "data", f'[run]\nmetrics = "127.0.0.1:{base}"\n')
    with cluster_on(
        tmp_path / "data", *config, "--workers", "2", "--replicas", "state=2"
    ) as cluster:
        metrics = cluster.file["metrics"]
        ports = {service: [urlsplit(url).port for url in urls] for service, urls in metrics.items()}
        doctor = cluster.iris("doctor").out

        assert ports.pop("gateway") == [urlsplit(cluster.url).port]
        assert ports.pop("worker") == [base + 4, base + 5]
        assert ports.pop("provisioner") == [base + 6]
        assert ports.pop("notifier") == [base + 7]
        assert ports == {"state": [base, base + 1], "scheduler": [base + 2], "proxy": [base + 3]}
        everywhere = [url for urls in metrics.values() for url in urls]
        until(lambda: all(map(serves, everywhere)), "every process serves metrics", 60)
        assert all(
            f"metrics of {service}: {' '.join(urls)}\n" in doctor
            for service, urls in metrics.items()
        )

        cluster.kill("state")
        until(lambda: all(map(serves, metrics["state"])), "they serve where they did", 60)
        assert cluster.file["metrics"] == metrics


def test_everything_ends_when_the_supervisor_is_killed_and_up_goes_on(tmp_path):
    cluster = start(tmp_path / "data", "--workers", "1", fresh=True)
    job = cluster.submit("sleep", "1000", name="long")
    until(lambda: job.refresh().state == "running", "it runs")
    for pid in cluster.pids("supervisor"):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not cluster.processes(), "every process has ended")
    assert cluster.up.wait(60) == 1
    cluster.client.close()
    with cluster_on(tmp_path / "data", "--workers", "1") as again:
        task = again.client.task("/long/0")

        assert task.state in {"pending", "assigned", "building", "running"}, task


def test_down_ends_tasks_whose_cluster_and_directory_are_gone(tmp_path):
    cluster = start(tmp_path / "data", "--workers", "1", fresh=True)
    job = cluster.submit("sh", "-c", "sleep 1000; true", name="long")
    until(lambda: job.refresh().state == "running", "it runs")
    until(lambda: "sleep 1000" in cluster.processes(), "its child runs")
    cluster.client.close()
    found = [process for process in psutil.process_iter() if cluster.owns(process)]
    tasks = [process for process in found if "sleep 1000" in " ".join(process.cmdline())]
    killed = [process for process in found if process not in tasks]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none sees the end of another
        for process in killed:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
    cluster.up.wait(60)
    assert len(tasks) == 2
    assert all(is_alive(process.pid) for process in tasks)
    shutil.rmtree(tmp_path / "data")
    done = iris("down", "--data", tmp_path / "data")
    assert (done.code, [process for process in tasks if is_alive(process.pid)]) == (0, [])
    assert "had left, and are ended: 2" in done.err


def test_down_of_a_cluster_that_is_still_starting_leaves_nothing(tmp_path):
    """Its NATS server starts for ever, and does not end when it is told to."""
    data, server, begun = (tmp_path / name for name in ("data", "server", "begun"))
    server.write_text(
        f"""#!/bin/sh
        [ "$1" = -c ] || exec '{find()}' "$@"
        trap '' TERM
        export SERVES="$2"
        echo > '{begun}'
        exec sleep 600
        """
    )
    server.chmod(0o755)
    words = [
        "up",
        "--data",
        data,
        "--http",
        "127.0.0.1:0",
        *settings(data, f"[nats]\nserver = '{server}'\n"),
    ]
    with subprocess.Popen(
        [*IRIS, *map(str, words)], env=environment(), stderr=subprocess.PIPE
    ) as up:
        until(begun.exists, "its server is started")

        done = iris("down", "--data", data)

        assert (done.code, "has not ended" in done.err) == (0, False), done.err
        assert not [process for process in psutil.process_iter() if owns(data, process)]
        assert b"it was stopped while it started" in up.stderr.read()


def test_down_says_that_an_up_in_the_foreground_goes_on(tmp_path):
    """It is stopped, as by Ctrl-Z."""
    cluster = start(tmp_path / "data", "--workers", "0", fresh=True)
    cluster.client.close()
    suspend(cluster.up.pid)

    done = iris("down", "--data", cluster.data)

    assert done.code == 0
    assert f"`iris up` itself has not ended: process {cluster.up.pid}" in done.err
    cluster.up.send_signal(signal.SIGCONT)
    cluster.up.wait(60)


def test_a_service_that_cannot_be_started_is_started_once_it_can_be(bare):
    log, words = bare.data / "log" / "scheduler.log", bare.data / "log" / "supervisor.log"
    before = bare.pids("scheduler")
    log.unlink()
    log.mkdir()
    os.kill(before[0], signal.SIGKILL)
    until(
        lambda: "scheduler did not become ready again" in words.read_text(), "it cannot be started"
    )
    log.rmdir()

    until(lambda: bare.pids("scheduler") not in ([], before), "it runs again")


def test_a_detached_cluster_is_ready_when_up_returns_its_address(tmp_path, monkeypatch):
    def called(*words):
        command = [*IRIS, *words, "--data", str(tmp_path / "data")]
        return subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=120, check=False
        )

    monkeypatch.setenv("IRIS_DATA", str(tmp_path / "data"))
    up = called("up", "--detach", "--http", "127.0.0.1:0", "--workers", "1")
    try:
        with Client(up.stdout.strip()) as client:
            run = client.run(["true"]).wait(60)
            pids = [
                pid for running in read_cluster(tmp_path / "data").pids.values() for pid in running
            ]
    finally:
        down = called("down")

    said = [line for line in up.stderr.splitlines() if not line.startswith(NO_GROUPS)]
    assert (up.returncode, up.stdout.count("\n"), said) == (0, 1, [])
    assert run.state == "succeeded"
    assert down.returncode == 0
    assert [pid for pid in pids if is_alive(pid)] == []


def test_up_on_a_directory_that_is_starting_waits_until_it_is_up(tmp_path, monkeypatch):
    monkeypatch.setenv("IRIS_DATA", str(tmp_path / "data"))
    command = [
        *IRIS,
        "up",
        "--detach",
        "--http",
        "127.0.0.1:0",
        "--workers",
        "1",
        "--data",
        str(tmp_path / "data"),
    ]
    ups = [
        subprocess.Popen(
            command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        said = [up.communicate(timeout=120) for up in ups]
        assert [up.returncode for up in ups] == [0, 0], said
        assert said[0][0] == said[1][0]
        with Client(said[0][0].strip()) as client:
            assert [worker.state for worker in client.workers()] == ["healthy"]
    finally:
        iris("down", "--data", tmp_path / "data")


def test_ctrl_c_of_a_cluster_in_the_foreground_stops_everything(tmp_path):
    command = [
        *IRIS,
        "up",
        "--data",
        str(tmp_path / "data"),
        "--http",
        "127.0.0.1:0",
        "--workers",
        "1",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as up:
        assert up.stderr is not None
        first = up.stderr.readline()
        family = [*psutil.Process(up.pid).children(recursive=True)]
        up.send_signal(signal.SIGINT)
        _, rest = up.communicate(timeout=60)

    assert "dashboard and API: http://127.0.0.1:" in first, rest
    assert up.returncode == 0
    _, left = psutil.wait_procs(
        family, timeout=60
    )  # whoever adopts them notices their ends a moment later
    assert left == []


def test_a_host_whose_launcher_is_killed_is_named_with_its_remedy(tmp_path):
    data = tmp_path / "data"
    command = [*IRIS, "up", "--data", str(data), "--http", "127.0.0.1:0", "--workers", "1"]
    up = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert up.stderr is not None
        assert any(line.startswith("the cluster is up") for line in up.stderr)
        children = psutil.Process(up.pid).children(recursive=True)
        [launcher] = [
            child for child in children if "iris_worker.launcher.launcher" in child.cmdline()
        ]
        launcher.kill()
        told = next(line for line in up.stderr if line.startswith("worker-0"))
        until(lambda: [*read_cluster(data).gone] == ["worker-0"], "it is listed as gone")
        doctor = iris("doctor", IRIS_DATA=str(data)).out
    finally:
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=60)

    assert told.startswith(
        "worker-0 ended with 1; its host is gone: `iris down` and `iris up` bring it back"
    )
    assert "worker_ended: worker-0 of `iris up` ended" in doctor


def test_a_port_that_is_taken_is_named(bare, tmp_path):
    address = bare.url.removeprefix("http://")
    second = bare.iris("up", "-d", "--data", tmp_path / "two", "--http", address)

    assert second.code == 1
    assert address in second.err


def test_settings_nobody_knows_are_refused_by_name(tmp_path):
    config = tmp_path / "iris.toml"
    config.write_text("[cluster]\nworkrs = 3\n")
    done = iris("up", "-d", "--data", tmp_path / "data", "--config", config)

    assert done.code == 1
    assert "did you mean 'workers'" in done.err


def test_settings_only_a_service_knows_are_refused_as_quickly(tmp_path):
    """The file is everybody's; each service reads its own section."""
    config = tmp_path / "iris.toml"
    config.write_text("[state]\npatient_s = 1\n[cluster]\nready_s = 600\n")
    done = iris(
        "up", "-d", "--data", tmp_path / "data", "--config", config, "--http", "127.0.0.1:0"
    )

    assert (done.code, done.out) == (1, "")
    assert "has no key 'patient_s'" in done.err
    assert read_cluster(tmp_path / "data") is None


@pytest.mark.parametrize(
    ("section", "environ", "reason"),
    [
        ("", {"IRIS_STATE_PORT": "tcp://10.0.0.1:80"}, STALE),
        ("[worker]\nport_range = 'x'\n", {}, "worker-0 has ended: iris worker: "),
        ("[gateway]\ntoken_file = '/nowhere'\n", {}, "token_file: /nowhere cannot be used: "),
    ],
)
def test_a_failing_start_prints_its_reason_last_and_alone(tmp_path, section, environ, reason):
    log = tmp_path / "data" / "log" / "scheduler.log"
    log.parent.mkdir(parents=True)
    log.write_text("an error of an earlier start\n")
    options = ("--http", "127.0.0.1:0", "--workers", "1", *settings(tmp_path, section))
    done = iris("up", "-d", "--data", tmp_path / "data", *options, **environ)

    where = f" (the logs are in {tmp_path / 'data' / 'log'})\n"
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: the cluster could not start; ")
    assert reason in done.err
    assert done.err.count("\n") == 1
    assert done.err.endswith(where)


def test_the_nats_server_that_the_configuration_names_is_taken(tmp_path):
    config = settings(tmp_path, '[nats]\nserver = "/nowhere/nats-server"\n')
    done = iris("up", "-d", "--data", tmp_path / "data", *config, "--http", "127.0.0.1:0")

    assert (done.code, done.out) == (1, "")
    assert "names no program: /nowhere/nats-server" in done.err


@pytest.mark.parametrize(
    ("http", "name"),
    [
        ("localhost:0", "smörgås"),
        ("[::1]:0", "日本 \"q\" 'q' "),
        ("[::]:0", "new\nline\\n"),
        (":0", "$HOME;=%s,#"),
    ],
)
def test_a_cluster_on_any_path_and_address_runs_a_job(tmp_path, http, name):
    if ":" in http[:-2] and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    for kind in ("home", "tmp"):
        (tmp_path / name / kind).mkdir(parents=True)
    environ = {
        "HOME": str(tmp_path / name / "home"),
        "TMPDIR": str(tmp_path / name / "tmp"),
        "IRIS_DATA": str(tmp_path / name / "data"),
        "IRIS_WORKER_CONTAINER_RUNTIME": "none",
    }
    up = iris("up", "-d", "--http", http, "--workers", "1", **environ)
    try:
        run = iris("run", "--", "sh", "-c", "echo it ran", **environ)
        there = iris("ls", **environ, IRIS_URL=up.out.strip())
    finally:
        iris("down", **environ)

    assert up.code == 0, up.err
    assert (run.code, run.out) == (0, "it ran\n"), run.err
    assert (there.code, "succeeded" in there.out) == (0, True), there.err


@pytest.mark.parametrize(
    ("http", "name", "said"),
    [
        ("a..b:0", "data", "error: cannot listen on a..b:0: "),
        ("nosuchhost.invalid:0", "data", "error: cannot listen on nosuchhost.invalid:0: "),
        ("*:0", "data", "error: cannot listen on *:0: "),
        (
            "http://127.0.0.1:0",
            "data",
            "error: 'http://127.0.0.1:0' is not an address to listen on",
        ),
        ("127.0.0.1:0", os.fsdecode(b"\xff"), "is not UTF-8; choose another with --data"),
        ("0.0.0.0:0 --no-auth", "data", "error: --no-auth would let whoever reaches 0.0.0.0:"),
    ],
)
def test_an_address_or_path_that_cannot_be_is_refused_before_a_start(tmp_path, http, name, said):
    data = tmp_path / name
    up = iris("up", "-d", "--data", data, "--workers", "1", "--http", *http.split())

    assert (up.code in (1, 2), up.out) == (True, "")
    assert said in up.err
    assert up.err.count("\n") == 1
    assert not (data / "nats").exists()


def has_ipv6() -> bool:
    with suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


def test_down_without_a_cluster_is_no_failure(tmp_path):
    done = iris("down", "--data", tmp_path)

    assert (done.code, "no cluster is up" in done.err) == (0, True)


def serves(url: str) -> bool:
    with suppress(OSError), urlopen(url, timeout=60) as answer:
        return b"process_open_fds" in answer.read()
    return False
