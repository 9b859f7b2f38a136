"""Permissions of each generated login on a real server: every subject and store by every role.

The expectations are written out here, so that a slip in `iris_core.access.roles` is not repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from nats.aio.client import Client

from iris_bus.connection.connection import Credentials
from iris_bus.connection.keys import Keys
from iris_bus.connection.requests import Forbidden
from iris_bus.contract import Message, NoResponders, Unavailable
from iris_bus.jetstream import JetStreamConnection, connect
from iris_core import subjects
from iris_core.access.roles import ROLES, Login, login
from iris_core.subjects import STORES, SUBJECTS
from iris_nats.nats_process import OBSERVER, NatsProcess

pytestmark = pytest.mark.integration

SERVICES = ("state", "scheduler", "gateway", "proxy", "provisioner", "notifier", "admin")
LOGINS = (
    *map(login, SERVICES),
    login("worker", "w.1"),
    login("worker", "w2"),
    login("observer", OBSERVER),
)
ALL = {one.label for one in LOGINS}
W1, W2, OBSERVING = "worker-w=2E1", "worker-w2", f"observer-{OBSERVER}"

WHO: Mapping[str, tuple[str, str]] = {
    "iris.journal": ("state admin", ""),
    "task.state.failed": ("state admin", OBSERVING),
    "job.state.failed": ("state admin", OBSERVING),
    "session.state.running": ("state admin", OBSERVING),
    "deployment.state.ready": ("state admin", OBSERVING),
    "route.state.healthy": ("state admin", OBSERVING),
    "queue.state.held": ("state admin", OBSERVING),
    "fleet.slice.ready": ("state admin", OBSERVING),
    "fleet.pool.paused": ("state admin", OBSERVING),
    "fleet.orphan.deleted": ("state admin", OBSERVING),
    "project.state.set": ("state admin", OBSERVING),
    "task.notice.drain": ("state admin", OBSERVING),
    "job.spec.amended": ("state admin", OBSERVING),
    "iris.log.w=2E1.0.0": (f"{W1} admin", ""),
    "iris.log.w2.0.0": (f"{W2} admin", ""),
    "iris.artifact.w=2E1.1.x": (f"{W1} admin", ""),
    "iris.artifact.w2.1.x": (f"{W2} admin", ""),
    "iris.result.w=2E1.1": (f"{W1} admin", ""),
    "iris.result.w2.1": (f"{W2} admin", ""),
    "iris.state.ping": ("state scheduler gateway admin", "state"),
    **{
        row.pattern: ("gateway", "state")
        for row in SUBJECTS
        if row.pattern.startswith("iris.state.command.")
    },
    "iris.state.plan": ("scheduler", "state"),
    "iris.state.query": ("gateway notifier", "state"),
    "iris.state.read": ("gateway", "state"),
    "iris.state.reasons": ("state", "state"),
    "iris.worker.w=2E1.report": (W1, "state"),
    "iris.worker.w2.report": (W2, "state"),
    "iris.worker.w=2E1.heartbeat": (W1, "state"),
    "iris.worker.w2.heartbeat": (W2, "state"),
    "iris.worker.w=2E1.order": ("state", W1),
    "iris.worker.w2.order": ("state", W2),
    "iris.worker.w=2E1.execution": ("gateway", W1),
    "iris.worker.w2.execution": ("gateway", W2),
    "iris.snapshot": ("state", "scheduler"),
    "iris.snapshot.full": ("scheduler", "state"),
    "iris.scheduler.plan": ("gateway", "scheduler"),
    "iris.proxy.load": ("proxy state", "state"),
    "iris.notifier.request": ("gateway notifier", "notifier"),
    "iris.provisioner.order": ("state", "provisioner"),
    "iris.provisioner.report": ("provisioner", "state"),
    "iris.service.describe": ("gateway", "state scheduler gateway proxy provisioner notifier"),
    "$KV.iris-discovery.a": ("state admin", ""),
    "$KV.iris-keys.task": ("state admin", ""),
    "$KV.iris-notify.target.a": ("notifier admin", ""),
    "$O.iris-bundles.C.x": ("state gateway admin", ""),
    "$O.iris-bundles.M.x": ("state gateway admin", ""),
    "$O.iris-snapshots.C.x": ("state admin", ""),
    "_INBOX.somebody.1": (
        "state",
        f"{W1} {W2} {OBSERVING}",
    ),  # who has an account to itself has every inbox of it
    "_R_.somebody.1": ("state", ""),
    "$SYS.REQ.SERVER.PING": ("", ""),
    "$SYS.REQ.SERVER.PING.JSZ": ("state", ""),
    "$SYS.REQ.SERVER.PING.VARZ": ("", ""),
    "$SYS.REQ.USER.INFO": (f"{' '.join(SERVICES)} {W1} {W2} {OBSERVING}", ""),
    "$SYS.ACCOUNT.IRIS.CONNECT": ("", ""),
    "$JS.API.INFO": ("", ""),
    "$JS.API.STREAM.NAMES": ("", ""),
    "iris.>": ("", ""),
    ">": ("", ""),
}
"""Who may publish to a subject, and who may subscribe to it."""

KEEPS = "state admin"
READS = {
    "IRIS_EVENTS": f"{KEEPS} gateway notifier",
    "IRIS_LOGS": f"{KEEPS} gateway",
    "IRIS_ARTIFACTS": f"{KEEPS} gateway",
    "IRIS_RESULTS": f"{KEEPS} gateway",
    "KV_iris-discovery": f"{KEEPS} gateway proxy",
    "KV_iris-keys": f"{KEEPS} gateway",
    "KV_iris-notify": f"{KEEPS} notifier",
    "OBJ_iris-bundles": f"{KEEPS} gateway",
}
PURGES = {"OBJ_iris-bundles": f"{KEEPS} gateway", "KV_iris-notify": f"{KEEPS} notifier"}
GETS = {"IRIS_EVENTS": OBSERVING, "OBJ_iris-bundles": f"{W1} {W2}"}


def callers(store: str) -> Mapping[str, str]:
    """Who may call what of the JetStream API on a store."""
    reads = READS.get(store, KEEPS)
    return {
        f"DIRECT.GET.{store}": f"{reads} {GETS.get(store, '')}",
        f"STREAM.MSG.GET.{store}": reads,
        f"STREAM.INFO.{store}": reads,
        f"CONSUMER.CREATE.{store}.c": reads,
        f"CONSUMER.CREATE.{store}.c.some.subject": reads,
        f"CONSUMER.MSG.NEXT.{store}.c": reads,
        f"CONSUMER.DELETE.{store}.c": reads,
        f"CONSUMER.DURABLE.CREATE.{store}.c": "",
        f"STREAM.PURGE.{store}": PURGES.get(store, KEEPS),
        f"STREAM.CREATE.{store}": KEEPS,
        f"STREAM.UPDATE.{store}": KEEPS,
        f"STREAM.LEADER.STEPDOWN.{store}": KEEPS,
        f"STREAM.DELETE.{store}": "admin",
        f"STREAM.MSG.DELETE.{store}": "",
        f"STREAM.SNAPSHOT.{store}": "",
        f"STREAM.RESTORE.{store}": "",
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    made = NatsProcess(tmp_path_factory.mktemp("roles") / "nats", ["w.1", "w2"])
    made.start()
    yield made
    made.stop()


@pytest.fixture
async def state(server: NatsProcess) -> AsyncIterator[JetStreamConnection]:
    """The state service's connection; every stream is there."""
    made = await connect(server.url, name="state", credentials=server.credentials("state"))
    await made.streams.ensure()
    yield made
    await made.close()


@asynccontextmanager
async def connected(
    server: NatsProcess, role: str, name: str = ""
) -> AsyncIterator[JetStreamConnection]:
    made = await connect(server.url, name=role, credentials=server.credentials(role, name))
    try:
        yield made
    finally:
        await made.close()


class Trial:
    """A plain client of one login, and what the server has refused it."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.client = Client()
        self._news = asyncio.Event()
        self._tried_count = 0

    async def start(self, server: NatsProcess, who: Login) -> None:
        seed = server.keys.path(who.label)
        inbox = Credentials(str(seed)).inbox()
        await self.client.connect(
            server.url, nkeys_seed=str(seed), inbox_prefix=inbox, error_cb=self._error
        )

    async def _error(self, error: Exception) -> None:
        self.refused.append(str(error).lower())
        self._news.set()

    async def may_publish(self, subject: str) -> bool:
        """What is published is rubbish, which changes nothing."""
        return await self._tried(
            self.client.publish(subject, b"rubbish"), f'publish to "{subject.lower()}"'
        )

    async def may_subscribe(self, subject: str) -> bool:
        return await self._tried(
            self.client.subscribe(subject), f'subscription to "{subject.lower()}"'
        )

    async def _tried(self, attempt: object, words: str) -> bool:
        """Refusals come in order, so one that is sure to come says that no other is on its way."""
        self.refused.clear()
        await attempt  # type: ignore[misc]
        self._tried_count += 1
        await self.client.publish(f"never.{self._tried_count}")
        async with asyncio.timeout(60):
            while not any(f'"never.{self._tried_count}"' in text for text in self.refused):
                self._news.clear()
                await self._news.wait()
        return not any(words in text for text in self.refused)


@asynccontextmanager
async def trials(server: NatsProcess) -> AsyncIterator[dict[str, Trial]]:
    made = {who.label: Trial() for who in LOGINS}
    async with AsyncExitStack() as stack:
        for who in LOGINS:
            await made[who.label].start(server, who)
            stack.push_async_callback(made[who.label].client.close)
        yield made


def test_every_subject_and_role_is_tried():
    tried = [subject.split(".") for subject in WHO]
    patterns = [row.pattern for row in SUBJECTS]
    assert [p for p in patterns if not any(_matches(p.split("."), one) for one in tried)] == []
    assert {one.role for one in LOGINS} == {role.name for role in ROLES}


def _matches(pattern: list[str], subject: list[str]) -> bool:
    return len(pattern) == len(subject) and all(
        p in ("*", s) for p, s in zip(pattern, subject, strict=True)
    )


async def test_each_login_publishes_and_subscribes_to_its_own_subjects_only(server, state):
    async with trials(server) as tried:
        found: dict[str, tuple[set[str], set[str]]] = {}
        for subject in WHO:
            wild = "*" in subject or ">" in subject
            publish = (
                set() if wild else {who for who in ALL if await tried[who].may_publish(subject)}
            )
            found[subject] = (
                publish,
                {who for who in ALL if await tried[who].may_subscribe(subject)},
            )
    expected = {
        subject: (set(writers.split()), set(readers.split()))
        for subject, (writers, readers) in WHO.items()
    }
    for subject in (subject for subject in WHO if "*" in subject or ">" in subject):
        expected[subject] = (set(), expected[subject][1])
    assert found == expected


async def test_the_state_service_is_told_what_each_server_may_store(server, state):
    [(_, found)] = (await state.streams.storage()).items()
    assert found.limit == 1 << 40
    assert 0 <= found.stored < found.reserved
    assert found.reserved >= subjects.LOGS.max_bytes
    async with connected(server, "gateway") as gateway:
        with pytest.raises(Unavailable):
            await gateway.streams.storage()


@pytest.mark.parametrize("store", STORES)
async def test_each_login_makes_its_own_calls_to_a_store_only(server, state, store):
    async with trials(server) as tried:
        found = {
            call: {who for who in ALL if await tried[who].may_publish(f"$JS.API.{call}")}
            for call in callers(store)
        }
    assert found == {call: set(who.split()) for call, who in callers(store).items()}


async def test_a_worker_reports_heartbeats_prints_takes_orders_and_reads_bundles(server, state):
    heard: list[Message] = []

    def answer(message: Message) -> None:
        heard.append(message)
        state.bus.publish(message.reply, b"taken")

    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(connected(server, "worker", "w.1"))
        standby = await stack.enter_async_context(connected(server, "state"))
        gateway = await stack.enter_async_context(connected(server, "gateway"))
        await gateway.blobs(subjects.BUNDLES_BUCKET).put("code", b"x" * 700_000)
        subscriptions = [await state.bus.subscribe(subjects.REPORTS, answer)]
        beats: list[asyncio.Queue[Message]] = [asyncio.Queue(), asyncio.Queue()]
        for replica, queue in zip((state, standby), beats, strict=True):
            subscriptions.append(await replica.bus.subscribe(subjects.HEARTBEATS, queue.put_nowait))

        reply = await worker.bus.request(subjects.report("w.1"), b"report", timeout=30)
        worker.bus.publish(subjects.heartbeat("w.1"), b"beat")
        stored = await worker.streams.publish(subjects.output("w.1", 7, 0), b"line")
        orders = await worker.bus.subscribe(
            subjects.order("w.1"), lambda message: worker.bus.publish(message.reply, b"mine")
        )
        taken = await state.bus.request(subjects.order("w.1"), b"order", timeout=30)
        code = await worker.blobs(subjects.BUNDLES_BUCKET).get("code")
        missing = await worker.blobs(subjects.BUNDLES_BUCKET).get("other")
        async with asyncio.timeout(60):
            seen = [(await queue.get()).data for queue in beats]
        last = await state.streams.last(subjects.LOGS.name, subject=subjects.log(7, 0))
        await orders.close()
        await worker.bus.flush()
        with pytest.raises(NoResponders):  # known at once, not after a timeout
            await state.bus.request(subjects.order("w.1"), b"order", timeout=30)
        for subscription in subscriptions:
            await subscription.close()

    assert ([m.data for m in heard], reply.data, taken.data, seen) == (
        [b"report"],
        b"taken",
        b"mine",
        [b"beat"] * 2,
    )
    assert last is not None
    assert (last.data, last.sequence) == (b"line", stored)
    assert (code, missing) == (b"x" * 700_000, None)


async def test_the_server_answers_a_worker_nowhere_but_in_its_own_account(server, state):
    """It sends an answer to whatever subject the asker names, and permissions do not hold it."""
    journal = await state.journal().end()
    ordered: list[Message] = []
    reported: list[Message] = []
    async with (
        connected(server, "worker", "w2") as victim,
        connected(server, "worker", "w.1") as attacker,
    ):
        await victim.bus.subscribe(subjects.order("w2"), ordered.append)
        listening = await state.bus.subscribe(subjects.report("w2"), reported.append)
        stored = await state.streams.publish("task.state.failed", b"x")
        for target in (
            "iris.journal",
            subjects.order("w2"),
            subjects.report("w2"),
            "task.state.failed",
        ):
            attacker.bus.publish(subjects.output("w.1", 1, 1), b"line", reply=target)
            attacker.bus.publish("$JS.API.DIRECT.GET.OBJ_iris-bundles", b'{"seq":1}', reply=target)
            attacker.bus.publish(subjects.report("w.1"), b"report", reply=target)
        await attacker.bus.flush()
        await victim.bus.flush()
        await state.bus.flush()
        await listening.close()
    assert (ordered, reported) == ([], [])
    assert await state.journal().end() == journal
    assert await state.streams.end(subjects.EVENTS.name) == stored


async def test_a_worker_is_told_at_once_that_it_may_not(server, state):
    async with connected(server, "worker", "w.1") as worker:
        for subject in (
            subjects.report("w2"),
            "iris.state.command.submit",
            "$JS.API.STREAM.INFO.IRIS_JOURNAL",
        ):
            with pytest.raises(Forbidden, match="not allowed to publish"):
                await worker.bus.request(subject, b"", timeout=30)
        with pytest.raises(Forbidden):
            await worker.streams.publish("task.state.failed", b"", timeout=30)
        with pytest.raises(Forbidden):
            await worker.streams.ensure()


async def test_an_observer_sees_events_as_they_come_and_those_that_are_kept(server, state):
    await state.streams.publish("task.state.pending", b"one")
    async with connected(server, "observer", OBSERVER) as observer:
        seen: asyncio.Queue[Message] = asyncio.Queue()
        await observer.bus.subscribe("task.state.*", seen.put_nowait)
        stored = await state.streams.publish("task.state.running", b"two")
        async with asyncio.timeout(60):
            assert (await seen.get()).data == b"two"
        kept = await observer.bus.request(
            "$JS.API.DIRECT.GET.IRIS_EVENTS", b'{"seq":%d}' % (stored - 1), timeout=30
        )
        assert (kept.data, kept.headers["Nats-Subject"]) == (b"one", "task.state.pending")
        with pytest.raises(Forbidden):
            await observer.bus.request("task.state.failed", b"lie", timeout=30)


async def test_a_key_that_is_not_known_is_refused_by_name(server, tmp_path: Path):
    keys = Keys(tmp_path)
    keys.ensure(["state"])
    with pytest.raises(Unavailable, match=rf"does not accept the key in {keys.path('state')}"):
        await connect(
            server.url,
            name="state",
            credentials=Credentials(str(keys.path("state"))),
            retry_for_s=10,
        )


@pytest.mark.parametrize(
    ("text", "words"),
    [("SUAM", "does not hold the seed of a NATS user"), (None, "No such file"), ("", "seed")],
)
async def test_a_file_that_is_no_key_is_refused_by_name(server, tmp_path: Path, text, words):
    seed = tmp_path / "state.seed"
    if text is not None:
        seed.write_text(text)
    with pytest.raises(Unavailable, match=words) as refused:
        await connect(server.url, name="state", credentials=Credentials(str(seed)), retry_for_s=10)
    assert str(seed) in str(refused.value)


async def test_nobody_comes_in_without_a_key_and_no_port_is_open_for_monitoring(server):
    with pytest.raises(Unavailable, match="does not accept this login"):
        await connect(server.url, name="anyone", retry_for_s=10)
    assert "http" not in (server.directory / "nats.conf").read_text()
