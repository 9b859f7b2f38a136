"""Readers that stop in the middle of each kind of answer, at a gateway of its own process: what it
holds for them is bounded, and it answers others meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import httpx
import msgspec
import psutil
import pytest

from iris_bus.contract import Message
from iris_bus.jetstream import JetStreamConnection
from iris_core import subjects
from iris_core.codec import pack, to_json, unpack
from iris_core.messages.gateway_state import Answer
from iris_core.messages.gateway_worker import (
    CallResult,
    CallResults,
    ExecutionOutput,
    ExecutionRequest,
    ExecutionTaken,
    LogChunk,
    ReadExecution,
    StartExecution,
    TaskOutput,
)
from iris_core.messages.message import AttemptRef
from iris_core.states import Cause
from iris_core.views.jobs import ArtifactView
from iris_core.views.queries import MAX_LIMIT
from iris_core.views.usage import UsageView, UsedView
from iris_gateway.api.reader_limits import READER_LIMITS
from tests.integration.test_gateway import Process
from tests.support.fake_state import FakeState, attempt_of

pytestmark = pytest.mark.integration

MIB = 1 << 20
READERS = 20
GROWTH = 160 * MIB
"""More than what all readers may hold together, less than what would be held without a bound."""
LOOKS = 40
LARGEST = 150_000_000
"""Of a gateway with one reader that stops and one that reads all of the answer, in bytes."""
HELD_UP_S = 0.1
"""Of its processor time, in which it answers `/healthz` at p99."""


@dataclass
class Made:
    """A gateway whose readers are looked at, and what it reads from."""

    connection: JetStreamConnection
    state: FakeState
    gateway: Process

    @property
    def process(self) -> psutil.Process:
        assert self.gateway.process is not None
        return psutil.Process(self.gateway.process.pid)

    async def store(
        self, subject: str, count: int, data: Callable[[int], bytes], **headers: str
    ) -> None:
        """Store so many messages; ``data`` and ``headers`` of a number."""
        for first in range(0, count, 16):
            await asyncio.gather(
                *(
                    self.connection.streams.publish(
                        subject,
                        data(number),
                        headers={name: form.format(number) for name, form in headers.items()},
                    )
                    for number in range(first, min(first + 16, count))
                )
            )


@pytest.fixture
async def made(
    connection: JetStreamConnection, nats_url: str, tmp_path: Path
) -> AsyncIterator[Made]:
    state = FakeState(connection.bus, connection.streams)
    await state.start()
    gateway = Process(nats_url, tmp_path, "gateway.unread_s=600", "gateway.body_idle_s=600")
    try:
        await gateway.start()
        yield Made(connection, state, gateway)
    finally:
        if gateway.process is not None and gateway.process.poll() is None:
            await gateway.stop()
        await state.stop()


@dataclass(frozen=True)
class Asked:
    """A request whose answer readers leave unread.

    Attributes:
        path: where ``{digest}`` stands for that of the body.
        whole: how many bytes its body has at least where one reader reads all of it; 0: it is
            endless, or nobody does.
        readers: how many there are of it. at_once: how many of them begin at a time.
    """

    path: str
    method: str = "GET"
    accept: str = "*/*"
    body: bytes = b""
    whole: int = 0
    readers: int = READERS
    at_once: int = 1


async def output(made: Made, query: str = "") -> Asked:
    """32 MiB of the shortest lines."""
    await submitted(made)
    lines = b"y\n" * (MIB // 2)

    def printed(number: int) -> bytes:
        chunk = LogChunk("stdout", 1000, number * MIB, lines)
        return pack(TaskOutput(AttemptRef(1, 0, 0), (chunk,)))

    await made.store(subjects.output("w0", 1, 0, MIB), 32, printed)
    return Asked(f"/v1/jobs/j1/logs{query}", whole=0 if query else 80 * MIB)


async def last_lines(made: Made) -> Asked:
    return replace(await output(made, "?tail=100000"), readers=READERS // 2)


async def events(made: Made) -> Asked:
    await store_events(made)
    return Asked("/v1/events?after=0", accept="text/event-stream")


async def pages_of_events(made: Made) -> Asked:
    await store_events(made)
    return Asked(f"/v1/events?limit={MAX_LIMIT}", whole=MIB, readers=3 * READERS)


async def results(made: Made) -> Asked:
    """Of one map, 24 MiB in messages as workers send them, of small results."""
    await submitted(made, calls=True)
    made.state.pages["attempts"] = {"items": [attempt_of(0)]}
    made.state.jobs["/a"].state = "succeeded"
    results = tuple(
        CallResult(index, 0, "value", b"x" * 64, Cause.EXITED, 0) for index in range(4000)
    )
    message = pack(CallResults(1, results))
    await made.store(subjects.results("w0", 1), 80, lambda _: message)
    return Asked("/v1/jobs/j1/results", accept="text/event-stream", whole=24 * MIB)


async def artifacts(made: Made) -> Asked:
    await submitted(made)
    kept = ArtifactView(bytes=48 * MIB, files=1, note=None, upload="u")
    attempt = msgspec.structs.replace(attempt_of(0, "succeeded"), open=False, artifact=kept)
    made.state.tasks["/a/0"].attempts = [attempt]
    part = b"x" * MIB
    subject = subjects.artifact("w0", 1, "u")
    await made.store(subject, 48, lambda _: part, **{subjects.PART: "{}"})
    return Asked("/v1/tasks/j1%2F0/artifact", whole=48 * MIB)


async def commands(made: Made) -> Asked:
    """A worker that has output without end."""
    await submitted(made)
    task = made.state.tasks["/a/0"]
    task.state = "running"
    task.worker = "w0"
    task.attempts = [attempt_of(0)]
    piece = b"x" * (256 << 10)

    def answer(message: Message) -> None:
        request = unpack(message.data, ExecutionRequest)
        if isinstance(request, ReadExecution):
            output = ExecutionOutput(request.after + 1, stdout=piece)
            made.state.bus.publish(message.reply, pack(output))
        elif isinstance(request, StartExecution):
            made.state.bus.publish(message.reply, pack(ExecutionTaken(0)))

    await made.state.bus.subscribe(subjects.execution("w0"), answer)
    body = to_json({"command": ["yes"]})
    return Asked("/v1/tasks/j1%2F0/executions", method="POST", body=body)


async def usage(made: Made) -> Asked:
    """Pages without end."""
    used = UsedView()
    row = UsageView(user="u" * 60, total=used, useful=used, lost={}, running=used, billed=used)
    page = {"items": [row] * MAX_LIMIT, "next_cursor": "1"}
    made.state.scripted["usage"] = Answer("ok", to_json(page))
    return Asked("/v1/usage", accept="text/csv")


async def lists(made: Made) -> Asked:
    made.state.scripted["jobs"] = Answer("ok", page_of_jobs(4 * MIB - 4096))
    return Asked("/v1/jobs", whole=3 * MIB, readers=4 * READERS)


async def pages(made: Made) -> Asked:
    await submitted(made)
    made.state.pages["overview"] = {"jobs": {"pending": 1000}}
    job = to_json(made.state.jobs["/a"])
    items = b",".join([job] * MAX_LIMIT)
    made.state.scripted["jobs"] = Answer("ok", b'{"items":[%s],"next_cursor":null}' % items)
    return Asked("/jobs", accept="text/html", whole=10_000)


async def uploads(made: Made) -> Asked:
    """Bundles, of which four are stored at a time."""
    body = b"x" * (48 * MIB)
    return Asked("/v1/bundles/{digest}", method="PUT", body=body, readers=4, at_once=4)


ANSWERS: dict[str, Callable[[Made], Awaitable[Asked]]] = {
    "output": output,
    "last lines of output": last_lines,
    "events": events,
    "pages of events": pages_of_events,
    "results of maps": results,
    "artifacts": artifacts,
    "commands, terminals and tunnels": commands,
    "usage as CSV": usage,
    "lists": lists,
    "pages": pages,
    "uploads of bundles": uploads,
}


def test_each_kind_of_answer_is_tried():
    assert [row.name for row in READER_LIMITS] == [*ANSWERS]


@dataclass
class Looks:
    """What a gateway did while readers had stopped.

    Attributes:
        largest: the most memory that it had, in bytes.
        took_s: how long each `/healthz` took. cpu_s: of how much processor time of the gateway it
            came behind, which does not depend on what else this machine does.
    """

    largest: int = 0
    took_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)


async def looked_at(made: Made, asked: Asked, readers: int) -> Looks:
    """While so many readers have stopped, and one reads all of it."""
    found = Looks()
    url = f"http://{made.gateway.http}"
    async with httpx.AsyncClient(base_url=url, timeout=120) as http:
        with contextlib.ExitStack() as held:
            begun = [stopped(made.gateway.http, asked, number) for number in range(readers)]
            for first in range(0, readers, asked.at_once):
                for reader in await asyncio.gather(*begun[first : first + asked.at_once]):
                    held.enter_context(reader)
            reading = asyncio.create_task(read_all(http, asked))
            while len(found.took_s) < LOOKS or not reading.done():
                began, used = time.monotonic(), cpu_of(made.process)
                assert (await http.get("/healthz")).status_code == 200
                found.took_s.append(time.monotonic() - began)
                found.cpu_s.append(cpu_of(made.process) - used)
                found.largest = max(found.largest, made.process.memory_info().rss)
            assert await reading >= asked.whole
    return found


def cpu_of(process: psutil.Process) -> float:
    """The seconds of processors that it has used."""
    used = process.cpu_times()
    return float(used.user + used.system)


def p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int(0.99 * len(seconds))]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ANSWERS)
async def test_a_reader_that_stops_takes_little_memory_and_no_turns(made: Made, name: str):
    looks = await looked_at(made, await ANSWERS[name](made), readers=1)
    print(f"{name}: {looks.largest // 1_000_000} MB, /healthz behind {p99(looks.cpu_s)} s of CPU")
    assert looks.largest < LARGEST
    assert p99(looks.cpu_s) < HELD_UP_S


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ANSWERS)
async def test_readers_that_stop_take_bounded_memory_and_no_turns(
    made: Made, name: str, record_property: Callable[[str, object], None]
):
    asked = await ANSWERS[name](made)
    before = made.process.memory_info().rss
    looks = await looked_at(made, asked, asked.readers)
    grown = looks.largest - before
    p99_ms = 1000 * p99(looks.took_s)
    record_property("healthz_p99_ms", round(p99_ms))
    record_property("grown_mib", grown // MIB)
    print(f"{name}: {grown // MIB} MiB more, /healthz p99 {p99_ms:.0f} ms, CPU {p99(looks.cpu_s)}")
    assert grown < GROWTH
    assert p99(looks.cpu_s) < HELD_UP_S


async def stopped(address: str, asked: Asked, number: int) -> socket.socket:
    """A client that has read the first bytes of its answer, and reads no more."""
    body = asked.body + b" " * number
    path = asked.path.format(digest=sha256(body).hexdigest())
    host, _, port = address.rpartition(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(made, (host, int(port)))
    head = (
        f"{asked.method} {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {asked.accept}\r\n"
        f"Content-Type: {kind_of(asked)}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    await loop.sock_sendall(made, head.encode())
    await loop.sock_sendall(made, body)
    assert (await loop.sock_recv(made, 12)).startswith(b"HTTP/1.1 20")
    return made


async def read_all(http: httpx.AsyncClient, asked: Asked) -> int:
    """The bytes of an answer that is read to its end; 0 where nobody does."""
    size = 0
    if asked.whole:
        headers = {"accept": asked.accept}
        async with http.stream(asked.method, asked.path, headers=headers) as response:
            assert response.status_code == 200
            async for piece in response.aiter_raw():
                size += len(piece)
    return size


def kind_of(asked: Asked) -> str:
    return "application/json" if asked.method == "POST" else "application/octet-stream"


async def submitted(made: Made, *, calls: bool = False) -> None:
    """A job ``/a`` of one task."""
    body: dict[str, object] = {"name": "/a", "command": ["true"]}
    async with httpx.AsyncClient(base_url=f"http://{made.gateway.http}", timeout=60) as http:
        if calls:
            data = b"code"
            digest = sha256(data).hexdigest()
            await http.put(f"/v1/bundles/{digest}", content=data)
            body["calls"] = {
                "runner": digest,
                "function": digest,
                "segments": [digest],
                "firsts": [0],
                "count": 1,
            }
        answer = await http.post("/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text


async def store_events(made: Made) -> None:
    """20 MiB of events as long as they may be."""
    name = "/" + "a" * 1000
    event = {"task": f"{name}/0", "job": name, "state": "running", "worker": "w0", "why": "y" * 900}
    data = to_json({**event, "at_ms": 1})
    await made.store(subjects.event("task", "running"), 20 * MIB // len(data), lambda _: data)


def page_of_jobs(size: int) -> bytes:
    item = to_json({"name": "/" + "a" * 1000, "id": "j1"})
    items: Sequence[bytes] = [item] * (size // (len(item) + 1))
    return b'{"items":[%s],"next_cursor":null}' % b",".join(items)
