"""The provider `exec` beside programs that do as they should, and programs that do not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iris_bus.connection.keys import Keys
from iris_core.access.roles import login
from iris_core.messages.state_provisioner import FoundSlice, OrderedHost, SliceOrder
from iris_provisioner.providers import exec as exec_provider
from iris_provisioner.providers.exec import ExecProvider
from iris_provisioner.providers.provider import ListFailed
from iris_provisioner.providers.slot_keys import SlotKeys
from iris_service import group_guard
from iris_service.slice_processes import began as process_began
from tests.support.cluster import until
from tests.support.suspend import suspend

ORDER = SliceOrder(
    "create",
    "exec",
    {"program": "mine", "zone": "z"},
    "cpu",
    "cpu-0",
    7,
    hosts=(OrderedHost("cpu-0-0", {"tpu-name": "cpu-0"}),),
    resources={"cpu_millis": 4000},
)
PROVISIONER = """
import asyncio, sys
from iris_core.messages.state_provisioner import SliceOrder
from iris_provisioner.providers.exec import ExecProvider
from iris_provisioner.providers.slot_keys import SlotKeys
provider = ExecProvider({"mine": sys.argv[1]}, SlotKeys(""), "one", {}, timeout_s=60)
options = {"program": "mine"}
order = SliceOrder(sys.argv[2], "exec", options, "cpu", "cpu-0", 7)
if order.call == "list":
    asyncio.run(provider.listed(options))
else:
    asyncio.run(getattr(provider, order.call)(order))
"""
Make = Callable[..., ExecProvider]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    providers: list[ExecProvider] = []

    def made(script: str, *, timeout_s: float = 30.0) -> ExecProvider:
        program = tmp_path / "mine"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
        keys = tmp_path / "keys"
        keys.mkdir()
        Keys(keys).path(login("worker", "cpu-0-0").label).write_text("SEED\n")
        provider = ExecProvider(
            {"mine": str(program)},
            SlotKeys(str(keys)),
            "one",
            {"nats_url": "nats://n:4222", "gateway_url": "http://g"},
            timeout_s=timeout_s,
        )
        providers.append(provider)
        return provider

    yield made
    for provider in providers:
        provider.close()


async def test_a_creation_is_told_all_there_is_to_know(make: Make, tmp_path: Path) -> None:
    provider = make(f"echo $1 $IRIS_CLUSTER > {tmp_path}/called; cat > {tmp_path}/asked")
    answer = await provider.create(ORDER)
    assert (answer.answer, (tmp_path / "called").read_text()) == ("accepted", "create one\n")
    asked = json.loads((tmp_path / "asked").read_text())
    assert asked["hosts"] == [
        {"name": "cpu-0-0", "key": "SEED", "attributes": {"tpu-name": "cpu-0"}}
    ]
    assert asked["labels"] == {
        "iris-cluster": "one",
        "iris-pool": "cpu",
        "iris-slice": "cpu-0",
        "iris-number": "7",
    }
    wanted = ("call", "cluster", "pool", "slice", "number", "options", "resources", "nats_url")
    assert {name: asked[name] for name in wanted} == {
        "call": "create",
        "cluster": "one",
        "pool": "cpu",
        "slice": "cpu-0",
        "number": 7,
        "options": {"program": "mine", "zone": "z"},
        "resources": {"cpu_millis": 4000},
        "nats_url": "nats://n:4222",
    }


async def test_a_deletion_is_told_no_key(make: Make, tmp_path: Path) -> None:
    provider = make(f"cat > {tmp_path}/asked")
    assert (await provider.delete(ORDER)).answer == "accepted"
    assert "SEED" not in (tmp_path / "asked").read_text()


@pytest.mark.parametrize(
    ("script", "answer", "detail"),
    [
        ('echo \'{"detail": "vm-3"}\'', "accepted", "vm-3"),
        ('echo \'{"reason": "no spot"}\'; exit 75', "exhausted", "no spot"),
        ("echo first >&2; echo no such zone >&2; exit 78", "refused", "no such zone"),
        ("echo oops >&2; exit 3", "failed", "oops (exit code 3)"),
        ("exit 137", "failed", "it ended with exit code 137"),
        ("kill -9 $$", "failed", "it ended with signal 9"),
        ("echo '<html>'; exit 0", "accepted", ""),
        ("echo '[1]'; exit 75", "exhausted", "it ended with exit code 75"),
        ('echo \'{"retry_after_s": "soon"}\'; exit 1', "failed", "it ended with exit code 1"),
    ],
)
async def test_an_exit_code_is_an_answer(make: Make, script: str, answer: str, detail: str) -> None:
    found = await make(script).create(ORDER)
    assert (found.answer, found.detail) == (answer, detail)


@pytest.mark.parametrize(("asked", "told"), [("90", 90.0), ("1e7", 1e7), ("-1", 0.0)])
async def test_a_program_asks_for_time(make: Make, asked: str, told: float) -> None:
    answer = await make(f"echo '{{\"retry_after_s\": {asked}}}'; exit 75").create(ORDER)
    assert (answer.answer, answer.retry_after_s) == ("exhausted", told)


async def test_a_program_that_hangs_is_ended_with_what_it_has_started(
    make: Make, tmp_path: Path
) -> None:
    provider = make(f"sleep 600 & echo $! > {tmp_path}/child; wait", timeout_s=5.0)
    began = time.monotonic()
    answer = await provider.create(ORDER)
    assert (answer.answer, answer.detail) == ("failed", "mine did not end within 5 s")
    assert time.monotonic() - began < 20
    child = int((tmp_path / "child").read_text())
    until(lambda: not process_began(child), "its child has ended")


@pytest.mark.parametrize("call", ["create", "delete", "list"])
def test_a_program_ends_with_a_provisioner_that_is_killed(tmp_path: Path, call: str) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    program = tmp_path / "mine"
    program.write_text(f"#!/bin/sh\nexec 3>{held}\necho $1 >&3\nsleep 60 & wait\n")
    program.chmod(0o700)
    provisioner = subprocess.Popen([sys.executable, "-c", PROVISIONER, str(program), call])
    with held.open() as pipe:  # nothing but the program and its child holds its other end
        assert pipe.readline() == f"{call}\n"
        provisioner.kill()
        provisioner.wait()
        assert pipe.read() == ""


async def test_nobody_waits_for_what_left_the_group_of_a_program(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_provider, "_PIPES_S", 0.1)
    provider = make(f"setsid sleep 600 & echo $! > {tmp_path}/child; exit 0", timeout_s=1.0)
    began = time.monotonic()
    answer = await provider.create(ORDER)
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert (answer.answer, answer.detail) == ("failed", "mine did not end within 1 s")
    assert time.monotonic() - began < 20


async def test_a_program_that_prints_without_end_is_ended(make: Make) -> None:
    answer = await make("cat /dev/zero").create(ORDER)
    assert (answer.answer, answer.detail) == ("failed", "it printed more than 1 MiB")


async def test_a_program_that_complains_without_end_is_read_to_its_end(make: Make) -> None:
    answer = await make("head -c 100000000 /dev/zero >&2; echo >&2; echo done >&2; exit 78").create(
        ORDER
    )
    assert (answer.answer, answer.detail) == ("refused", "done")


async def test_a_program_that_cannot_be_run_is_a_failed_call(make: Make) -> None:
    provider = make("exit 0")
    os.chmod(provider._programs["mine"], 0o600)
    answer = await provider.delete(ORDER)
    assert answer.answer == "failed"
    assert "cannot be run" in answer.detail


@pytest.mark.parametrize("call", ["create", "delete"])
@pytest.mark.parametrize("program", ["other", ""])
async def test_an_order_for_an_unknown_program_is_refused(
    make: Make, program: str, call: str
) -> None:
    provider = make("exit 0")
    order = SliceOrder(call, "exec", {"program": program}, "cpu", "cpu-0", 7)
    answer = await getattr(provider, call)(order)
    assert answer.answer == "refused"
    assert answer.detail == f"this provisioner has no program {program!r}"


async def test_a_host_without_a_key_is_not_made(make: Make, tmp_path: Path) -> None:
    provider = make(f"touch {tmp_path}/called")
    order = SliceOrder(
        "create", "exec", ORDER.options, "cpu", "cpu-1", 8, hosts=(OrderedHost("cpu-1-0"),)
    )
    answer = await provider.create(order)
    assert (answer.answer, "cpu-1-0 has no key" in answer.detail) == ("failed", True)
    assert not (tmp_path / "called").exists()


async def test_a_list_has_what_is_of_this_cluster_each_name_once(
    make: Make, tmp_path: Path
) -> None:
    def listed(name: str, cluster: str, number: str, status: str) -> dict[str, object]:
        labels = {"iris-cluster": cluster, "iris-number": number}
        return {"name": name, "labels": labels, "status": status, "detail": ""}

    slices = [
        listed("cpu-0", "one", "7", "creating"),
        listed("cpu-0", "one", "7", "running"),
        listed("cpu-1", "one", "8", "dreaming"),
        listed("cpu-2", "another", "9", "running"),
        listed("cpu-3", "one", "x", "running"),
        {"name": "somebody's"},
    ]
    (tmp_path / "list").write_text(json.dumps({"slices": slices}))
    found = await make(f"cat {tmp_path}/list").listed({"program": "mine"})
    assert found == (FoundSlice("cpu-0", 7, "running"), FoundSlice("cpu-1", 8, "dreaming"))


@pytest.mark.parametrize(
    "script", ["echo garbage", "true", "echo '{}'", "echo '{\"slices\": []}'; exit 1", "kill -9 $$"]
)
async def test_what_is_no_list_is_a_failed_one(make: Make, script: str) -> None:
    with pytest.raises(ListFailed):
        await make(script).listed({"program": "mine"})


async def test_a_call_fails_when_no_guard_can_be_started(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = make("cat")
    monkeypatch.setattr(group_guard.sys, "executable", "/no/such/program")
    answer = await provider.create(ORDER)
    assert (answer.answer, answer.detail) == (
        "failed",
        "mine cannot be run: No such file or directory",
    )


async def test_a_call_fails_when_its_guard_does_not_read(make: Make) -> None:
    provider = make('echo "{}"')
    assert (await provider.create(ORDER)).answer == "accepted"
    guarding = provider._guard._process
    assert guarding is not None
    assert guarding.stdin is not None
    suspend(guarding.pid)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(guarding.stdin.fileno(), b"0 0\n")
    answer = await provider.create(ORDER)
    guarding.send_signal(signal.SIGCONT)
    assert (answer.answer, answer.detail) == (
        "failed",
        "mine cannot be run: what would end its processes does not read",
    )
