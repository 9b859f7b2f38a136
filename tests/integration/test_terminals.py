"""Terminals and ports of tasks on each kind of host, and in containers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from iris_bus.contract import Connection
from iris_core.messages.message import AttemptRef
from iris_core.spec.jobs import Environment
from tests.support.escapes import MODES
from tests.support.hosts import on_hosts, worker_of
from tests.support.runtimes import IMAGE, RUNTIMES, OwnRuntime
from tests.support.state import FakeState
from tests.support.terminal import Attached
from tests.support.worker import WorkerProcess

pytestmark = [
    pytest.mark.integration,
    pytest.mark.needs("root"),
]

PYTHON = next(
    path for path in ("/usr/local/bin/python3", "/usr/bin/python3") if os.path.exists(path)
)
SHELL = ("sh", "-c", "echo $(id -u) $(stty size); exec sh")
GREETER = """import os, socket
listener = socket.create_server(("127.0.0.1", int(os.environ["IRIS_PORT_WEB"])))
open(os.environ["IRIS_WORKDIR"] + "/port", "w").write(os.environ["IRIS_PORT_WEB"])
while True:
    line, _ = listener.accept()
    line.sendall(b"hello " + line.recv(100))
"""


async def port_of(place: Path) -> int:
    """The port of the one task, once it listens."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(FileNotFoundError):  # directories come and go
                for path in place.glob("w0/attempts/**/port"):
                    if text := path.read_text():
                        return int(text)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("mode", on_hosts(MODES))
async def test_a_terminal_and_a_port_are_used_on_each_kind_of_host(
    state: FakeState, connection: Connection, nats_url: str, place: Path, mode: str
):
    async with worker_of(mode, state, nats_url, place):
        ref = await state.run(*SHELL, terminal=True)
        await state.running(ref)
        terminal = Attached(connection, ref)
        assert await terminal.open() == ""
        await terminal.expect("24 80\r\n")
        await terminal.write("echo se$((1 + 1))t\n")
        await terminal.expect("se2t")
        server = await state.run(PYTHON, "-c", GREETER, ports=("web",))
        await state.running(server)
        port = await port_of(place)
        await greeted(connection, server, port)
        assert (
            await Attached(connection, ref, port).open()
            == f"no process of the task listens on port {port}"
        )


async def greeted(connection: Connection, ref: AttemptRef, port: int) -> None:
    client = Attached(connection, ref, port)
    assert await client.open() == ""
    await client.write("there")
    await client.expect("hello there")


@pytest.mark.needs("bwrap")
async def test_a_port_is_reached_in_the_network_of_a_task_of_its_own(
    state: FakeState, connection: Connection, nats_url: str, place: Path
):
    async with worker_of(MODES[0], state, nats_url, place, abstract_sockets="network"):
        ref = await state.run(PYTHON, "-c", GREETER, ports=("web",))
        await state.running(ref)
        await greeted(connection, ref, await port_of(place))


@pytest.mark.parametrize("name", RUNTIMES)
async def test_a_container_is_used_from_a_terminal(
    state: FakeState,
    connection: Connection,
    nats_url: str,
    tmp_path: Path,
    name: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
):
    runtime: OwnRuntime = request.getfixturevalue(name)
    for variable, value in runtime.environ.items():
        monkeypatch.setenv(variable, value)
    given = {"run_as": "", "sandbox": "auto", "stop_grace_s": 1, "terminal_silent_s": 6}
    async with WorkerProcess(nats_url, tmp_path / "w0", container_runtime=runtime.name, **given):
        await state.registration()
        ref = await state.run("sh", terminal=True, environment=Environment(image=IMAGE))
        await state.running(ref)
        terminal = Attached(connection, ref)
        assert await terminal.open() == ""
        await terminal.write("echo $IRIS_TASK se$((1 + 1))t\n")
        await terminal.expect("/t/0 se2t")
        terminal.close()
        assert (
            await state.ended(ref)
        ).error == "its terminal is gone: nobody has been connected to it for 6 s"
        assert runtime.running() == []
