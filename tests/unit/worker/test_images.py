"""What the runtimes of containers are told, and how their words become the end of an attempt."""

from __future__ import annotations

import asyncio
import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import LiveUsage, TaskUsage
from iris_worker.attempt.images.containers import Containers, exit_of, find_runtime
from iris_worker.attempt.images.runtimes import (
    Container,
    ContainerState,
    HostRuntime,
    env_lines,
    exec_command,
    pull_command,
    read_state,
    remove_command,
    run_command,
)
from iris_worker.attempt.images.usage import read_usage
from iris_worker.launcher.records.records import Exit, StoredContainer
from iris_worker.settings import WorkerSettings

MIB = 1 << 20
REF = AttemptRef(1, 0, 0)
CONTAINER = Container(
    name="iris-1-0-0-w",
    task="/t/0",
    image="lab/train:1",
    command=("python", "a b.py"),
    workdir="/d/0",
    env_file="/c/e",
    user=(2000, 2001),
    mounts=(("/d/0", True), ("/models", False)),
)
HELD = StoredContainer("docker", "iris-1-0-0-w", 64 * MIB)


def host(name: str, init: str = "/usr/bin/tini", *, rootless: bool = False) -> HostRuntime:
    return HostRuntime(name, init, "w", rootless)


def words(runtime: HostRuntime, **more: object) -> str:
    """The command line for the container, changed."""
    return shlex.join(run_command(runtime, replace(CONTAINER, **more)))  # type: ignore[arg-type]


def added(runtime: HostRuntime, **more: object) -> str:
    """The words that a change of the container adds."""
    before, after = shlex.split(words(runtime)), shlex.split(words(runtime, **more))
    at = next(number for number, word in enumerate(after) if word != before[number])
    return " ".join(after[at : at + len(after) - len(before)])


def test_docker_is_told_all_of_a_container():
    assert words(host("docker")) == (
        "docker run --name iris-1-0-0-w --pull never --network host --label iris.worker=w --label iris.task=/t/0 --init"
        " --user 2000:2001 --cap-drop ALL --security-opt no-new-privileges --log-driver none --no-healthcheck"
        " --env-file /c/e --workdir /d/0 --mount type=bind,source=/d/0,target=/d/0"
        " --mount type=bind,source=/models,target=/models,readonly --entrypoint '' lab/train:1 python 'a b.py'"
    )


def test_podman_differs_in_its_init_and_keeps_an_ordinary_user():
    docker = words(host("docker"))
    assert words(host("podman")) == docker.replace("docker", "podman").replace(
        "--init", "--init --init-path /usr/bin/tini"
    )
    assert words(host("podman", "")) == docker.replace("docker", "podman").replace(" --init", "")
    assert "--userns=keep-id --user 2000:2001" in words(host("podman", rootless=True))
    assert words(host("docker", rootless=True)) == docker


def test_limits_and_groups_are_told_where_there_are_any():
    limits = {
        "memory_limit_bytes": 64 * MIB,
        "cpu_share_millis": 1500,
        "cpu_limit_millis": 2500,
        "pids": 99,
        "shm_bytes": 5,
    }
    assert added(host("docker"), **limits) == (
        "--memory 67108864 --memory-swap 67108864 --shm-size 5 --cpu-shares 1536 --cpus 2.5 --pids-limit 99"
    )
    assert added(host("docker"), groups=(44, 45)) == "--group-add 44 --group-add 45"


def test_each_runtime_is_told_of_the_assigned_devices_in_its_words():
    assert added(host("docker"), gpus=(1, 3)) == '--gpus "device=1,3" --ulimit memlock=-1:-1'
    assert added(host("podman"), gpus=(1, 3)) == (
        "--device nvidia.com/gpu=1 --device nvidia.com/gpu=3 --ulimit memlock=-1:-1"
    )
    assert (
        added(host("docker"), devices=("/dev/accel0",))
        == "--device /dev/accel0 --ulimit memlock=-1:-1"
    )


def test_what_is_executed_beside_a_task_is_executed_in_its_container():
    command = exec_command("docker", "c", ("ls", "-l"), {"IRIS_EXEC": "1"}, tty=True)
    assert shlex.join(command) == "docker exec --interactive --tty --env IRIS_EXEC=1 c ls -l"


def test_a_container_is_removed_at_once():
    assert [shlex.join(remove_command(name, ["a", "b"])) for name in ("docker", "podman")] == [
        "docker rm --force --volumes a b",
        "podman rm --force --volumes --time 0 a b",
    ]


def test_podman_pulls_from_registries_only():
    assert pull_command("docker", "lab/train:1")[-3:] == ("docker", "", "lab/train:1")
    assert pull_command("podman", "dir:etc")[-3:] == ("podman", "docker://", "dir:etc")


def test_variables_are_lines():
    assert env_lines({"A": "1 = '2'", "B": ""}) == "A=1 = '2'\nB=\n"


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("exited 3 false\n", ContainerState(ended=True, exit_code=3, out_of_memory=False)),
        ("running 0 false\n", ContainerState(ended=False, exit_code=0, out_of_memory=False)),
        ("exited 137 true\n", ContainerState(ended=True, exit_code=137, out_of_memory=True)),
        ("", None),
        ("Error: no such container", None),
    ],
)
def test_the_state_of_a_container_is_read(text: str, state: ContainerState | None):
    assert read_state(text) == state


FULL = Exit(None, 9, 64 * MIB, usage=TaskUsage(memory_limit_bytes=64 * MIB))
NOT_RUN = "docker could not run its container; the end of its output says why"


@pytest.mark.parametrize(
    ("client", "state", "ended"),
    [
        (Exit(3, None, 20 * MIB, usage=TaskUsage(9)), "exited 3 false", Exit(3)),
        (Exit(known=False), "exited 4 false", Exit(4)),
        (Exit(143), "exited 143 false", Exit(None, 15)),
        (Exit(255), "exited 255 false", Exit(255)),
        (Exit(137), "exited 137 true", FULL),
        (Exit(0), "exited 0 true", Exit(0)),
        (Exit(None, 9, 20 * MIB), "running 0 false", Exit(None, 9)),
        (Exit(125), "exited 125 false", Exit(125)),
        (Exit(125), "created 0 false", Exit(error=NOT_RUN)),
        (Exit(125), "", Exit(error=NOT_RUN)),
        (Exit(127), "created 127 false", Exit(127)),
        (Exit(127, error="docker: command not found"), "", Exit(error="docker: command not found")),
    ],
)
def test_an_attempt_ends_as_what_ran_in_its_container(client: Exit, state: str, ended: Exit):
    assert exit_of(HELD, client, read_state(state)) == ended


@pytest.mark.parametrize(
    ("state", "known"),
    [
        ("exited 143 false", False),
        ("exited 137 false", False),
        ("exited 137 true", True),
        ("exited 3 false", True),
    ],
)
def test_who_is_killed_while_the_runtime_is_silent_was_killed_by_its_stop(state: str, known: bool):
    assert exit_of(HELD, Exit(143), read_state(state), silent=True).known == known


@pytest.mark.parametrize(
    ("texts", "used"),
    [
        (
            {
                "memory.usage_in_bytes": "900",
                "memory.max_usage_in_bytes": "1000",
                "memory.stat": "total_inactive_file 50\ntotal_active_file 30\n",
                "cpuacct.usage": "7000000000",
            },
            LiveUsage(REF, TaskUsage(7000), 820, 920),
        ),
        (
            {
                "memory.current": "900",
                "memory.peak": "1000",
                "memory.stat": "inactive_file 50\nactive_file 30\n",
                "cpu.stat": "usage_usec 7000000\nuser_usec 1\n",
                "io.stat": "8:0 rbytes=5 wbytes=6 rios=1 wios=1\n",
            },
            LiveUsage(REF, TaskUsage(7000, 5, 6), 820, 920),
        ),
        ({}, None),
    ],
)
def test_usage_of_a_container_is_read_from_both_cgroup_versions(
    texts: dict[str, str], used: LiveUsage | None, tmp_path: Path
):
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    groups = (
        {"": str(tmp_path)}
        if "memory.current" in texts
        else dict.fromkeys(("memory", "cpuacct"), str(tmp_path))
    )
    assert read_usage(REF, groups) == used


def test_an_end_tells_what_was_measured_last():
    used = LiveUsage(REF, TaskUsage(7000, 5, 6), 820, 920)
    assert exit_of(HELD, Exit(0), read_state("exited 0 false"), used) == Exit(
        0, None, 920, usage=used.usage
    )
    full = TaskUsage(7000, 5, 6, memory_limit_bytes=64 * MIB)
    assert exit_of(HELD, Exit(137), read_state("exited 137 true"), used) == Exit(
        None, 9, 64 * MIB, usage=full
    )


async def test_a_runtime_that_could_not_run_a_container_is_asked_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\n[ $1 != info ] || exit 125\n[ $1 != version ] || echo 5.0\n")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    containers = Containers(WorkerSettings(data=str(tmp_path)))
    containers.use("podman")
    assert await find_runtime("podman", containers.proven) == "podman"
    ended = asyncio.get_running_loop().create_future()
    containers.collect(StoredContainer("podman", "iris-1-0-0-w"), Exit(125), ended.set_result)
    assert "could not run its container" in (await ended).error
    assert await find_runtime("podman", containers.proven) == ""
    containers.close()
