"""Real requests to a server on loopback, and real mails."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from aiohttp import web

from iris_core import codec
from iris_core.views.notify import JobMessage, JobSummary
from iris_notifier.records import DeliveryRecord, TargetRecord
from iris_notifier.senders import Sender
from iris_notifier.settings import NotifierSettings
from iris_service.settings import BadSetting

LOCAL = NotifierSettings(allow=("127.0.0.0/8",), timeout_s=5.0)
MESSAGE = JobMessage(
    job="/train",
    job_id="j1",
    user="ann",
    project="/",
    state="failed",
    cause="failed",
    error="exit code 7",
    exit_code=7,
    tasks={"failed": 1, "succeeded": 3},
    on="failed",
    url="https://iris.example.org/jobs/j1",
)
DELIVERY = DeliveryRecord(
    id="j1.3",
    type="iris.job.failed",
    owner="ann",
    target="ops",
    user="ann",
    job="/train",
    job_id="j1",
    on="failed",
    data=codec.to_json(MESSAGE),
    created_ms=1_800_000_000_000,
)


@dataclass
class Receiver:
    """A web server that keeps requests."""

    url: str = ""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    is_silent: bool = False

    async def take(self, request: web.Request) -> web.Response:
        self.requests.append((dict(request.headers), await request.read()))
        if self.is_silent:
            await asyncio.Event().wait()
        return web.Response(status=self.status, headers=self.headers, text=self.text)

    def target(self, **more: Any) -> TargetRecord:
        fields = {"user": "ann", "name": "ops", "webhook": self.url, "secret": "k" * 16}
        return TargetRecord(**{**fields, **more})


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", made.take)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listening).start()
    made.url = f"http://127.0.0.1:{listening.getsockname()[1]}/hook"
    yield made
    await runner.cleanup()


def sender(settings: NotifierSettings = LOCAL) -> Sender:
    return Sender(settings, "lab", lambda: 1_800_000_001.9)


async def test_a_cloud_event_is_posted_and_signed(receiver: Receiver) -> None:
    result = await sender().send(DELIVERY, receiver.target())
    assert result.is_delivered
    [(headers, body)] = receiver.requests
    assert headers["Content-Type"] == "application/cloudevents+json"
    digest = hmac.new(b"k" * 16, b"1800000001." + body, hashlib.sha256).hexdigest()
    assert headers["Iris-Signature"] == f"t=1800000001,v1={digest}"
    assert msgspec.json.decode(body) == {
        "specversion": "1.0",
        "id": "j1.3",
        "source": "/clusters/lab",
        "type": "iris.job.failed",
        "subject": "/train",
        "time": "2027-01-15T08:00:00Z",
        "datacontenttype": "application/json",
        "data": codec.to_builtins(MESSAGE),
    }


@pytest.mark.parametrize("form", ["slack", "text"])
async def test_a_sentence_is_posted(receiver: Receiver, form: str) -> None:
    await sender().send(DELIVERY, receiver.target(format=form))
    [(_, body)] = receiver.requests
    said = msgspec.json.decode(body)["text"] if form == "slack" else body.decode()
    assert said == (
        "job /train of ann: failed; exit code 7; exit code 7; tasks: 1 failed, 3 succeeded"
        " (https://iris.example.org/jobs/j1)"
    )


async def test_a_summary_says_how_many_and_some(receiver: Receiver) -> None:
    data = codec.to_json(JobSummary(jobs=30, on="failed", examples=["/a", "/b"]))
    summary = msgspec.structs.replace(DELIVERY, type="iris.job.summary", jobs=30, data=data, job="")
    await sender().send(summary, receiver.target(format="text"))
    assert receiver.requests[0][1] == b"30 more jobs: failed; among them /a, /b"


@pytest.mark.parametrize(
    ("status", "is_gone", "words"),
    [
        (500, False, "answered 500: busy"),
        (410, True, "answered 410: busy"),
        (302, False, "answered 302: a redirect, which is not followed"),
    ],
)
async def test_other_answers_are_no_delivery(
    receiver: Receiver, status: int, is_gone: bool, words: str
) -> None:
    receiver.status = status
    receiver.text = "busy"
    receiver.headers = {"Location": receiver.url} if status == 302 else {}
    result = await sender().send(DELIVERY, receiver.target())
    assert (result.is_delivered, result.is_gone, result.detail) == (False, is_gone, words)
    assert len(receiver.requests) == 1


async def test_a_server_that_never_answers_is_given_up(receiver: Receiver) -> None:
    receiver.is_silent = True
    settings = msgspec.structs.replace(LOCAL, timeout_s=0.2)
    result = await sender(settings).send(DELIVERY, receiver.target())
    assert (result.is_delivered, result.detail) == (False, "no answer within 0.2 s")


@pytest.mark.parametrize("spelling", ["127.0.0.1", "2130706433", "0x7f.1", "localhost"])
async def test_an_address_is_judged_however_it_is_spelled(
    receiver: Receiver, spelling: str
) -> None:
    url = receiver.url.replace("127.0.0.1", spelling)
    strict = sender(NotifierSettings())
    assert "neither a public address nor in [notifier] allow" in await strict.refusal(url)
    result = await strict.send(DELIVERY, receiver.target(webhook=url))
    assert (result.is_delivered, receiver.requests) == (False, [])


async def test_a_name_is_connected_to_as_it_was_judged(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name resolves to loopback when it is judged, and to another address when asked again."""
    answers = ["127.0.0.1", "192.0.2.1"]
    loop = asyncio.get_running_loop()

    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers.pop(0), port))]

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    url = receiver.url.replace("127.0.0.1", "hooks.example.org")
    assert (await sender().send(DELIVERY, receiver.target(webhook=url))).is_delivered
    assert (answers, len(receiver.requests)) == (["192.0.2.1"], 1)
    assert receiver.requests[0][0]["Host"].startswith("hooks.example.org:")


async def test_a_name_that_does_not_resolve_is_said() -> None:
    assert "cannot be resolved" in await sender().refusal("https://nowhere.invalid/x")


class MailServer(asyncio.Protocol):
    """Just enough SMTP to take one mail."""

    lines: list[str]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._rest = b""
        self._is_data = False
        transport.write(b"220 mail\r\n")

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\r\n")
        for line in lines:
            self._take(line.decode())

    def _take(self, line: str) -> None:
        self.lines.append(line)
        if self._is_data:
            if line == ".":
                self._is_data = False
                self._transport.write(b"250 kept\r\n")
        elif line.startswith("DATA"):
            self._is_data = True
            self._transport.write(b"354 go on\r\n")
        elif line.startswith("QUIT"):
            self._transport.write(b"221 bye\r\n")
        elif line.startswith("RCPT TO:<nobody"):
            self._transport.write(b"550 no such person\r\n")
        else:
            self._transport.write(b"250 ok\r\n")


@pytest.fixture
async def mails(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[NotifierSettings, list[str]]]:
    lines: list[str] = []
    monkeypatch.setattr(MailServer, "lines", lines, raising=False)
    server = await asyncio.get_running_loop().create_server(MailServer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield (
        NotifierSettings(
            smtp=f"127.0.0.1:{port}", smtp_from="iris@lab.example", smtp_tls="none", timeout_s=5
        ),
        lines,
    )
    server.close()


async def test_a_mail_is_sent_with_the_id_of_its_event(
    mails: tuple[NotifierSettings, list[str]],
) -> None:
    settings, lines = mails
    target = TargetRecord(user="ann", name="mail", smtp="ann@lab.example")
    result = await sender(settings).send(DELIVERY, target)
    assert result.is_delivered, result
    assert "RCPT TO:<ann@lab.example>" in lines
    assert "Subject: [lab] job /train of ann: failed" in lines
    assert "Message-ID: <j1.3.mail@lab.example>" in lines


async def test_a_mail_that_is_refused_is_no_delivery(
    mails: tuple[NotifierSettings, list[str]],
) -> None:
    target = TargetRecord(user="ann", name="mail", smtp="nobody@lab.example")
    result = await sender(mails[0]).send(DELIVERY, target)
    assert (result.is_delivered, "no such person" in result.detail) == (False, True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"allow": ("10.0.0.0/33",)},
        {"allow": ("10.1.2.3/16",)},
        {"smtp": "mail"},
        {"smtp": "mail:x"},
        {"smtp": "mail:25"},
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        NotifierSettings(**wrong).check_forms()
