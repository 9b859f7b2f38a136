"""One probe against real servers on loopback: it ends in time and names the failure, whatever the
server sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from iris_core.spec.jobs import Probe
from iris_worker.attempt.probes.check import KillCommand, ProbeTarget, check, netloc
from iris_worker.attempt.probes.schedule import ProbeOutcome
from iris_worker.launcher.records.records import Exit
from iris_worker.launcher.starts.spawn import NotRunnable
from tests.support.descriptors import open_descriptors

PASSED = ProbeOutcome()
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def never(stderr: int, on_end: Callable[[Exit], None]) -> KillCommand:
    raise AssertionError("no command is to be run")


class Service:
    """A server on loopback.

    Attributes:
        heads: the head of each request. closed: the other side has closed a connection.
    """

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.heads: list[str] = []
        self.port = 0
        self.tasks: set[asyncio.Task[None] | None] = set()
        self.closed = asyncio.Event()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head.decode())
            await self._serve(reader, writer)
        with contextlib.suppress(OSError):
            await reader.read()
        self.closed.set()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def probe(self, host: str = "127.0.0.1", **more: object) -> ProbeOutcome:
        probe = Probe(**{"timeout_s": 10.0, **more})  # type: ignore[arg-type]
        return await check(ProbeTarget(probe, host, self.port, never))


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[Service]:
    service = Service(serve)
    server = await asyncio.start_server(service.connected, "127.0.0.1", 0)
    service.port = server.sockets[0].getsockname()[1]
    async with server:
        yield service
        await asyncio.gather(*filter(None, service.tasks))


def answers(data: bytes, close: bool = True) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if close:
            writer.close()

    return serve


async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes the request and says nothing."""


def status(code: int, more: str = "") -> bytes:
    return f"HTTP/1.1 {code} Whatever\r\n{more}Content-Length: 2\r\n\r\nno".encode()


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_probe_asks_for_its_path_and_for_nothing_else():
    async with serving(answers(status(200))) as service:
        assert await service.probe(path="/healthz?deep=1&x=%2F") == PASSED
        assert service.heads == [
            "GET /healthz?deep=1&x=%2F HTTP/1.1\r\n"
            f"Host: 127.0.0.1:{service.port}\r\n"
            "User-Agent: iris-probe\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        ]


@pytest.mark.parametrize(
    ("code", "detail"), [(200, ""), (204, ""), (399, ""), (404, "404"), (500, "500")]
)
async def test_200_to_399_pass_when_nothing_else_is_expected(code: int, detail: str):
    async with serving(answers(status(code))) as service:
        assert (await service.probe()).failure == (detail and f"GET /healthz: status {detail}")


async def test_only_what_is_expected_passes():
    async with serving(answers(status(200))) as service:
        assert await service.probe(expect=(200, 418)) == PASSED
        assert (await service.probe(expect=(418,))).failure == "GET /healthz: status 200"


async def test_a_redirect_is_an_answer_and_is_not_followed():
    async with serving(answers(status(302, "Location: /elsewhere\r\n"))) as service:
        assert (await service.probe(expect=(200,))).failure == "GET /healthz: status 302"
        assert len(service.heads) == 1


async def test_the_ready_path_is_asked_too_and_fails_for_itself():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = service.heads[-1].startswith("GET /ready ")
        await answers(status(503 if ready else 200))(reader, writer)

    async with serving(serve) as service:
        assert await service.probe(ready_path="/ready") == ProbeOutcome(
            "", "GET /ready: status 503"
        )
        assert sorted(head.split()[1] for head in service.heads) == ["/healthz", "/ready"]


async def test_a_service_that_hangs_has_failed_at_the_timeout():
    async with serving(hangs) as service:
        assert (
            await service.probe(timeout_s=0.05)
        ).failure == "GET /healthz: no answer within 0.05 s"
        await service.closed.wait()


async def test_a_service_that_drips_has_failed_at_the_timeout():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 20")
        await writer.drain()

    async with serving(serve) as service:
        assert (
            await service.probe(timeout_s=0.05)
        ).failure == "GET /healthz: no answer within 0.05 s"


async def test_an_answer_counts_though_its_body_never_ends():
    async with serving(answers(b"HTTP/1.1 200 OK\r\n\r\nand", close=False)) as service:
        assert await service.probe(timeout_s=5) == PASSED
        await service.closed.wait()


async def test_an_endless_body_is_not_read_to_its_end():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with serving(serve) as service:
        assert await service.probe() == PASSED
        await service.closed.wait()


@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200",
        b"HTTP/2 200\r\n\r\n",
        b"\x00" * 100_000,
        b"\n",
    ],
)
async def test_garbage_is_not_health(garbage: bytes):
    async with serving(answers(garbage)) as service:
        assert (await service.probe()).failure == "GET /healthz: the answer is not HTTP/1"


async def test_a_connection_closed_without_an_answer_is_a_failure():
    async with serving(answers(b"")) as service:
        assert (await service.probe()).failure == "GET /healthz: closed without an answer"


async def test_a_port_where_nobody_listens_refuses():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        target = ProbeTarget(Probe(), "127.0.0.1", taken.getsockname()[1], never)
        assert await check(target) == ProbeOutcome("GET /healthz: connection refused")


async def test_a_path_adds_no_line_to_the_request():
    async with serving(answers(status(200))) as service:
        assert await service.probe(path="/a b\r\nHost: evil\r\n\r\nGET /ö") == PASSED
        [head] = service.heads
        assert head.startswith(
            "GET /a%20b%0D%0AHost:%20evil%0D%0A%0D%0AGET%20/%C3%B6 HTTP/1.1\r\nHost: 127.0.0.1:"
        )


async def test_a_job_without_that_port_fails_and_says_so():
    assert (
        await check(ProbeTarget(Probe(port="web"), "127.0.0.1", 0, never))
    ).failure == "the job has no port 'web'"


async def test_a_probe_that_is_given_up_leaves_no_connection():
    async with serving(hangs) as service:
        asking = asyncio.create_task(service.probe(timeout_s=60))
        while not service.heads:
            await asyncio.sleep(0)
        asking.cancel()
        await service.closed.wait()


def test_an_address_of_ipv6_has_brackets():
    assert [netloc(host, 80) for host in ("10.0.0.4", "h1.local", "fe80::1")] == [
        *("10.0.0.4:80", "h1.local:80", "[fe80::1]:80")
    ]


# ── TCP ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_tcp_probe_connects_and_says_nothing():
    async with serving(hangs) as service:
        assert await service.probe(kind="tcp") == PASSED
        await service.closed.wait()
        assert service.heads == []


async def test_a_tcp_probe_of_a_closed_port_fails():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        outcome = await check(ProbeTarget(Probe(kind="tcp"), "127.0.0.1", port, never))
        assert outcome.failure == f"connect to 127.0.0.1:{port}: connection refused"


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


class Command:
    """A command as the runner starts it, ended by the test."""

    def __init__(
        self, prints: bytes = b"", ends: Exit | None = None, after_kill: Exit | None = None
    ) -> None:
        self._prints, self._ends, self._after_kill = prints, ends, after_kill
        self.killed = 0

    def start(self, stderr: int, on_end: Callable[[Exit], None]) -> KillCommand:
        os.write(stderr, self._prints)
        self._on_end = on_end
        if self._ends is not None:
            on_end(self._ends)
        return self.kill

    def kill(self) -> None:
        self.killed += 1
        if self._after_kill is not None:
            self._on_end(self._after_kill)

    async def probe(self, timeout_s: float = 10.0) -> str:
        return (
            await check(ProbeTarget(Probe(kind="command", timeout_s=timeout_s), "h", 0, self.start))
        ).failure


@pytest.mark.parametrize(
    ("prints", "ends", "failure"),
    [
        (b"a warning\n", Exit(0), ""),
        (b"", Exit(3), "the command: exit code 3"),
        (b"first\nno luck\n\n", Exit(1), "the command: exit code 1: no luck"),
        (b"", Exit(None, 11), "the command: killed by signal 11"),
        (b"x" * 60_000, Exit(1), f"the command: exit code 1: {'x' * 1024}"),
    ],
)
async def test_a_command_passes_with_exit_code_0_and_its_last_line_says_why_not(
    prints: bytes, ends: Exit, failure: str
):
    command = Command(prints, ends)
    assert await command.probe() == failure
    assert command.killed == 0


async def test_a_command_that_hangs_is_killed_at_its_timeout():
    command = Command(after_kill=Exit(None, 9))
    assert await command.probe(timeout_s=0.05) == "the command did not end within 0.05 s"
    assert command.killed == 1


async def test_a_command_is_killed_with_the_probe_that_is_given_up():
    command = Command()
    asking = asyncio.create_task(command.probe())
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert command.killed == 1


async def test_a_command_that_cannot_be_run_is_a_failure():
    def start(stderr: int, on_end: Callable[[Exit], None]) -> KillCommand:
        raise NotRunnable(127, "curl: command not found")

    outcome = await check(ProbeTarget(Probe(kind="command"), "h", 0, start))
    assert outcome == ProbeOutcome("the command: curl: command not found")


@pytest.mark.parametrize("kind", ["http", "tcp", "command"])
async def test_a_host_without_descriptors_fails_the_probe_not_the_worker(kind: str):
    probe = Probe(kind=kind)  # type: ignore[arg-type]
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        outcome = await check(ProbeTarget(probe, "127.0.0.1", 9, never))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    assert outcome.failure.lower().endswith("too many open files")


@pytest.mark.parametrize("kind", ["http", "tcp"])
async def test_an_address_that_is_none_fails_the_probe_and_not_the_worker(kind: str):
    probe = Probe(kind=kind, path="/")  # type: ignore[arg-type]
    assert "label" in (await check(ProbeTarget(probe, "a..b", 80, never))).failure


async def test_probes_leave_no_descriptor_open():
    before = open_descriptors()
    async with serving(answers(status(200))) as service:
        for _ in range(5):
            await service.probe()
            await Command(ends=Exit(1)).probe()
            await Command(after_kill=Exit(None, 9)).probe(timeout_s=0.01)
    assert open_descriptors() == before
