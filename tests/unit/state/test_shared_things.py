"""Each thing that users share is filled by one of them while another one works."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from itertools import count as count_from
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from iris_bus.contract import Blob, Blobs, Message, Streams
from iris_core import codec, subjects
from iris_core.messages.gateway_state import Answer, Caller, CancelJob, Query
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Placement, Plan
from iris_core.shared_limits import SHARED_THINGS
from iris_core.spec.jobs import JobSpec, Probe
from iris_core.spec.resources import Amount
from iris_core.subjects import CMD_CANCEL
from iris_gateway.auth.login_links import MAX_LINKS, LoginLinks
from iris_gateway.bundles import RECEIVED_AT_ONCE
from iris_gateway.commands import OUTSTANDING, OUTSTANDING_BYTES, UNSENT, Commands
from iris_gateway.dispatch.sse import no_room
from iris_gateway.http.protocol import Connections
from iris_gateway.settings import GatewaySettings
from iris_notifier.delivering import Deliverer
from iris_notifier.metrics import NotifierMetrics
from iris_notifier.outbox import MessageOutbox
from iris_notifier.records import DeliveryRecord, TargetRecord
from iris_notifier.senders import SendResult
from iris_notifier.settings import NotifierSettings
from iris_notifier.store import RecordStore
from iris_proxy.http.refusal import ProxyRefusal
from iris_proxy.routes.room import RequestRoom
from iris_state.commands.queue_holds import MAX_OF_USER
from iris_state.policy import Policy
from iris_state.records.indexes.usage_days import ROWS_OF_A_USER, UsageDays, count
from iris_state.replication.leader import WAITING as MOST_WAITING
from iris_state.replication.leader import WAITING_BYTES
from iris_state.service.bundles import REST_MS, Uses, discardable
from iris_state.service.room import Holding, surplus
from iris_state.views.reads import WAITING, Reads
from iris_worker.attempt.artifacts.uploader import OWN_FIRST, Uploader
from iris_worker.attempt.builds.store import EnvironmentStore
from iris_worker.attempt.bundles.bundle import BundleStore
from iris_worker.attempt.bundles.fetch import Fetcher
from iris_worker.attempt.calls.files import CallFiles
from iris_worker.attempt.executions.room import NoRoom, Running, gives_way
from iris_worker.attempt.probes.schedule import AT_ONCE, ProbeSchedule
from iris_worker.clock import HostClock
from iris_worker.launcher.kernel.event_loop import DelayedCall
from iris_worker.launcher.records.records import StartTemplate
from iris_worker.launcher.templates.template import RunningTemplate, beyond
from iris_worker.limits import ArtifactLimits, EnvironmentLimits
from iris_worker.metrics import WorkerMetrics
from tests.support.memory import Memory
from tests.support.scheduling import Story, worker
from tests.support.serving import Serving, spec
from tests.support.world import Host, World
from tests.unit.worker.test_bundle import tar

ADA, EVE, ROOT = Caller("ada", "user"), Caller("eve", "user"), Caller("root", "admin")


def world(**policy: object) -> World:
    made = World(Policy(**policy))
    made.register(Host("w0", Amount(100_000, 0, 0, 0), {}))
    return made


def submit(made: World, name: str, caller: Caller, **fields: object) -> str:
    return made.submit(JobSpec(**({"name": name, "command": ("true",)} | fields)), caller).status


def finish(made: World, name: str, caller: Caller) -> None:
    assert submit(made, name, caller) == "created"
    made.cancel(name, caller)


def finished_jobs() -> None:
    made = world(keep_jobs=4)
    finish(made, "/ada", ADA)
    for number in range(12):
        finish(made, f"/e{number}", EVE)
    made.wait(1)
    assert len(made.ledger.jobs) <= 4
    assert made.ledger.find_job("/ada") is not None


def audit() -> None:
    made = world(keep_audit_bytes=3000)
    finish(made, "/ada", ADA)
    made.admin("set_quota", "ada", ROOT, max_pending_tasks=5)
    for number in range(15):
        finish(made, f"/e{number}", EVE)
    made.wait(1)
    kept = {entry.done.by.user for entry in made.ledger.audit.newest_first()}
    assert made.ledger.audit.bytes <= 3000
    assert kept == {"ada", "root", "eve"}


def memory_of_live_jobs() -> None:
    made = world(max_live_bytes=100_000)
    large = {"env": {"A": "x" * 30_000}}
    found = [submit(made, f"/e{number}", EVE, **large) for number in range(10)]
    assert found == ["created"] * 3 + ["over_quota"] * 7
    assert submit(made, "/ada", ADA, **large) == "created"


def waiting_tasks() -> None:
    made = world(max_pending_tasks=10)
    found = [submit(made, f"/e{number}", EVE, replicas=5) for number in range(5)]
    assert found == ["created"] * 2 + ["over_quota"] * 3
    assert submit(made, "/ada", ADA, replicas=5) == "created"


def starts_on_a_host() -> None:
    made = world(max_building=8)
    submit(made, "/eve", EVE, replicas=16)
    submit(made, "/ada", ADA, replicas=3)

    def start(job: int, tasks: int) -> int:
        indexes = tuple(range(tasks))
        placed = Placement(job, indexes, (0,) * tasks)
        return made.plan(Plan("s", made.machine.sequence, ("w0",), (placed,))).placed

    assert start(1, 16) == 8
    assert start(2, 3) == 3


def sums_of_usage() -> None:
    days, hour = UsageDays(), Amount(1000)
    for number in range(ROWS_OF_A_USER + 20):
        count(days.of(1, "eve", f"p{number}", "useful"), 3_600_000, hour, "", 0, 0)
    count(days.of(1, "ada", "mine", "useful"), 3_600_000, hour, "", 0, 0)
    assert len(days.projects["eve"]) == ROWS_OF_A_USER + 1
    assert days.since(("ada", "mine"), 0)["useful"].attempts == 1
    assert days.since(("eve", None), 0)["useful"].attempts == ROWS_OF_A_USER + 20


def reads_that_wait() -> None:
    made = world()
    reads = Reads(Policy().read_timeout_s, clock=lambda: 0.0)
    for number in range(WAITING + 10):
        reads.ask(codec.pack(Query("overview", {}, EVE)), f"_INBOX.eve.{number}")
    reads.ask(codec.pack(Query("overview", {}, ADA)), "_INBOX.ada")
    answers = reads.answers(made.ledger, 1)
    first = [reply for reply, _ in (next(answers) for _ in range(12))]
    assert "_INBOX.ada" in first


def capacity_of_a_better_band() -> None:
    made = world()
    assert submit(made, "/e", EVE, band="production") == "forbidden"
    made.admin("set_quota", "ada", ROOT, max_band=1)
    assert submit(made, "/ada", ADA, band="production") == "created"


def answers_by(limit: str, most: int) -> None:
    made = world(**{limit: most})
    specification = JobSpec(name="/ada", command=("true",))
    made.submit(specification, ADA, request="hers")
    for number in range(60):
        submit(made, f"/e{number}", EVE)
    made.wait(1)
    assert 1 < len(made.ledger.answers) < 60
    assert made.submit(specification, ADA, request="hers").status == "created"
    assert [job.name for job in made.ledger.jobs.values()].count("/ada") == 1


def answers() -> None:
    answers_by("keep_answers", 20)
    answers_by("keep_answers_bytes", 12_000)


def idempotency_keys() -> None:
    made = world(keep_jobs=1, keep_keys_bytes=6000)
    made.submit(JobSpec(name="/ada", command=("true",)), ADA, idempotency_key="once")
    made.cancel("/ada", ADA)
    for number in range(40):
        specification = JobSpec(name=f"/e{number}", command=("true",))
        made.submit(specification, EVE, idempotency_key=f"key-{number}")
        made.cancel(f"/e{number}", EVE)
    for number in range(3):
        finish(made, f"/ada{number}", ADA)
    made.wait(1)
    kept = list(made.ledger.spent_keys)
    assert made.ledger.find_job("/ada") is None
    assert made.ledger.spent_keys.held.bytes <= 6000
    assert "ada\0once" in kept
    assert 1 < len(kept) < 40
    assert set(kept) <= made.ledger.idempotency.keys()
    assert "eve\0key-0" not in made.ledger.idempotency


def stored_by_two() -> None:
    """By the decision; test_stored_room.py does it with a stream of each kind, and a job that
    runs.
    """
    stored = {1: Holding("ada", 100, 5)}
    stored |= {number: Holding("eve", 100 + number, 5) for number in range(2, 40)}
    held = sum(one.bytes for one in stored.values())
    gone = [one.job for one in surplus(stored, held, limit_bytes=held)]
    assert gone == list(range(2, 2 + len(gone)))
    assert len(gone) > 5


def bundles() -> None:
    """By the decision; test_bundles.py of the gateway sends them."""
    now_ms = 10 * REST_MS
    stored = [Blob("ada", 100_000, 0, 1, ("ada",))]
    stored += [Blob(f"eve-{number}", 90_000, REST_MS, 1, ("eve",)) for number in range(30)]
    gone = [blob.name for blob in discardable(stored, Uses(set(), {}), 0, 1_010_000, now_ms)]
    assert "ada" not in gone
    assert len(gone) == 20


def holds_on_the_queue() -> None:
    """Also where five users make as many as they may: an admin stops what goes wrong."""
    made = world()

    def hold(caller: Caller, label: str, user: str) -> str:
        return made.hold_queue(caller, user=user, label=label).status

    found = [hold(EVE, f"k={number}", "eve") for number in range(MAX_OF_USER + 1)]
    assert found == ["accepted"] * MAX_OF_USER + ["over_quota"]
    assert hold(ADA, "k=1", "ada") == "accepted"
    for user in (Caller(f"eve{number}", "user") for number in range(4)):
        found = [hold(user, f"k={number}", user.user) for number in range(MAX_OF_USER)]
    assert found[-1] == "over_quota"
    assert hold(ROOT, "k=1", "") == "accepted"


def uploads_in_progress() -> None:
    """By the limits as they are set; test_bundles.py of the gateway sends them."""
    settings = GatewaySettings()
    assert settings.uploads_per_user * settings.bundle_bytes <= RECEIVED_AT_ONCE // 4


def commands_beside_tasks() -> None:
    running = [Running(f"e{number}", "eve", float(number)) for number in range(8)]
    assert gives_way(running, "ada", 8, "commands") is not None
    with pytest.raises(NoRoom):
        gives_way(running, "eve", 8, "commands")


def deployments() -> None:
    made = Serving(policy=Policy(max_deployments=4, max_deployments_of_user=2))

    def deploy(name: str, caller: Caller) -> str:
        wanted = replace(spec(1), name=name)
        return made.deploy("create", caller, name, request=name, spec=wanted).status

    assert [deploy(f"e{n}", EVE) for n in range(4)] == ["created"] * 2 + ["over_quota"] * 2
    assert deploy("ada", ADA) == "created"


def streams() -> None:
    """By the decision; test_events.py does it over HTTP."""
    settings, held = GatewaySettings(watchers=4, watchers_per_user=2), Counter[str]()

    def is_allowed(user: str) -> bool:
        allowed = not no_room(held, user, settings)
        held[user] += allowed
        return allowed

    assert [is_allowed("eve") for _ in range(5)] == [True] * 2 + [False] * 3
    assert is_allowed("ada")


def connections() -> None:
    held = Connections(head_s=1.0, per_address=3, most_open=8)
    refused = [held.enter("10.0.0.1") for _ in range(6)]
    for _ in range(3):
        held.leave("10.0.0.1")  # what was refused is closed
    assert refused == [""] * 3 + ["this address has too many connections"] * 3
    assert held.enter("10.0.0.2") == ""


def login_links() -> None:
    links = LoginLinks()
    links.add("mine", "ada", "s-ada", 0.0)
    for number in range(MAX_LINKS + 1):
        links.add(f"c{number}", "eve", "s-eve", 1.0)
    assert links.use("mine", 2.0) == "s-ada"


def messages_to_targets() -> None:
    """Eve has 20 targets that never answer, and 3,000 messages that have ended."""
    asyncio.run(_send_beside_slow_targets())


async def _send_beside_slow_targets() -> None:
    store = RecordStore(Memory().connect().key_value("iris-notify"))
    outbox = MessageOutbox(store, storm_ms=1)
    sent = asyncio.Event()

    class Slow:
        sends_mail = False

        async def refusal(self, webhook: str) -> str:
            return ""

        async def send(self, delivery: DeliveryRecord, target: TargetRecord) -> SendResult:
            if target.user == "eve":
                await asyncio.Event().wait()
            sent.set()
            return SendResult(True, "200")

    targets = [TargetRecord(user="eve", name=f"t{number}", state="active") for number in range(20)]
    for target in (*targets, TargetRecord(user="ada", name="ops", state="active")):
        store.save(target)
        one = DeliveryRecord(id="1", type="iris.test", owner=target.user, target=target.name)
        outbox.add(one)
    settings = NotifierSettings(retry_for_s=1e9)
    deliverer = Deliverer(store, outbox, Slow(), settings, NotifierMetrics(), now_ms=lambda: 1)
    running = asyncio.create_task(deliverer.run())
    async with asyncio.timeout(10):
        await sent.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    kept = DeliveryRecord(id="kept", type="iris.test", owner="ada", target="ops")
    outbox.end(kept, 1)
    for number in range(3000):
        outbox.end(DeliveryRecord(id=f"e{number}", type="iris.test", owner="eve", target="t0"), 1)
    assert store.find(kept.key, DeliveryRecord) is kept
    assert sum(one.owner == "eve" and one.ended_ms > 0 for one in store.all(DeliveryRecord)) <= 1000


def commands_under_way() -> None:
    """Eve sends more than a gateway has under way, and none of hers is answered."""
    asyncio.run(_command_beside_a_flood())
    assert 4 * OUTSTANDING_BYTES <= WAITING_BYTES  # four such gateways leave room at the leader
    assert 4 * OUTSTANDING <= MOST_WAITING


async def _command_beside_a_flood() -> None:
    memory = Memory()
    bus = memory.connect().bus

    def answer(message: Message) -> None:
        if codec.unpack(message.data, CancelJob).caller.user != "eve":
            bus.publish(message.reply, codec.pack(Answer("accepted", b"{}", 1)))

    await bus.subscribe(CMD_CANCEL, answer)
    ids = (f"c{number}" for number in count_from(0))
    commands = Commands(memory.connect().bus, new_id=lambda: next(ids), now_ms=lambda: 7)

    def cancel(caller: Caller) -> asyncio.Task[Answer]:
        command = CancelJob("/a", caller, *UNSENT)
        return asyncio.create_task(commands.ask(CMD_CANCEL, command))

    flood = [cancel(EVE) for _ in range(2 * OUTSTANDING)]
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert (await cancel(ADA)).status == (await cancel(ROOT)).status == "accepted"
    for one in flood:
        one.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


def environments_and_code() -> None:
    """Eve's tasks use all that they have brought, and she brings more."""
    with tempfile.TemporaryDirectory() as root:
        _fill_with_environments(Path(root, "environments"))
        _fill_with_bundles(BundleStore(Path(root, "bundles"), keep=4))
        _fill_with_calls(CallFiles(Path(root, "calls"), limit=1000))


def _fill_with_environments(root: Path) -> None:
    store = EnvironmentStore(root, EnvironmentLimits(count=4, bytes=1 << 30), shutil.rmtree)

    def build(key: str, user: str) -> str:
        directory = store.new()
        store.publish(key, directory, store.seal(directory), user)
        return directory

    hers = build("ada", "ada")
    for number in range(12):
        store.use(AttemptRef(number, 0, 0), build(f"used-{number}", "eve"))
        build(f"unused-{number}", "eve")
    assert store.find("ada") == hers
    assert store.find("unused-0") is None


def _fill_with_bundles(store: BundleStore) -> None:
    held = [_add(store, number, "eve" if number else "ada") for number in range(12)]
    assert store.has(held[0])
    assert sum(store.has(digest) for digest in held) == 4


def _fill_with_calls(store: CallFiles) -> None:
    held = [_add(store, number, "eve" if number else "ada", 100) for number in range(22)]
    assert store.has(held[0])
    assert sum(store.has(digest) for digest in held) == 10


def _add(store: BundleStore | CallFiles, number: int, user: str, size: int = 0) -> str:
    data = str(number).encode().ljust(size) if size else tar(("number", str(number).encode()))
    digest = hashlib.sha256(data).hexdigest()
    store.add(digest, data, user)
    return digest


def bundles_being_fetched() -> None:
    """Eve's are never sent to the host."""
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(_fetch_beside(Path(root)))


async def _fetch_beside(root: Path) -> None:
    data = tar(("x", b"hers"))
    digest = hashlib.sha256(data).hexdigest()

    class Slow:
        async def get(self, name: str) -> bytes:
            if name != digest:
                await asyncio.Event().wait()
            return data

    store, calls = BundleStore(root / "bundles"), CallFiles(root / "calls")
    clock, metrics = HostClock(), WorkerMetrics(lambda: 0)
    blobs = cast(Blobs, Slow())
    fetcher = Fetcher(blobs, store, calls, 4, clock, metrics, on_error=lambda *_: None)
    digests = (hashlib.sha256(str(number).encode()).hexdigest() for number in range(16))
    flood = [
        asyncio.create_task(fetcher.fetch(one, str(root / one), user="eve")) for one in digests
    ]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        assert await fetcher.fetch(digest, str(root / "ada"), user="ada") == ""
    for one in flood:
        one.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


def output_directories_being_stored() -> None:
    """Eve's are never stored, small and large ones; test_fair_turns.py tells who is next."""
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(_store_beside(Path(root)))


async def _store_beside(root: Path) -> None:
    streams = Memory().connect().streams

    class Slow:
        async def publish(self, subject: str, data: bytes, **more: Any) -> Any:
            if subjects.artifact("w0", 1, "") in subject:
                await asyncio.Event().wait()
            return await streams.publish(subject, data, **more)

    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Coroutine[Any, Any, None]) -> None:
        tasks.append(asyncio.create_task(work))

    uploader = Uploader("w0", cast(Streams, Slow()), ArtifactLimits(), 600.0, 4, spawn)
    said: list[str] = []
    stored: asyncio.Queue[tuple[int, int]] = asyncio.Queue()

    def begin(job: int, index: int, user: str, size: int) -> None:
        place = root / f"{job}-{index}"
        (place / "out").mkdir(parents=True)
        (place / "out" / "x").write_bytes(os.urandom(size))
        uploader.begin(
            AttemptRef(job, index, 0),
            str(place),
            "out",
            on_measured=lambda _: None,
            on_end=lambda artifact: stored.put_nowait((job, artifact.files)),
            user=user,
            on_waits=said.append,
        )

    for index in range(16):
        begin(1, index, "eve", 200_000 if index % 2 else 10)
    await asyncio.sleep(0)
    begin(2, 0, "ada", 10)
    begin(2, 1, "ada", 200_000)
    async with asyncio.timeout(60):
        assert [await stored.get() for _ in range(2)] == [(2, 1), (2, 1)]
    assert set(said) == {OWN_FIRST}
    for one in tasks:
        one.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def probes_on_a_host() -> None:
    schedule = ProbeSchedule()
    for number in range(3 * AT_ONCE):
        schedule.begin(AttemptRef(1, number, 0), Probe(), "", 0.0, user="eve")
    assert len(schedule.take_due(1.0)) == AT_ONCE // 2
    schedule.begin(AttemptRef(2, 0, 0), Probe(), "", 1.0, user="ada")
    assert schedule.wait_s(1.0) == 0.0
    assert schedule.take_due(1.0) == [AttemptRef(2, 0, 0)]
    assert schedule.wait_s(1.0) is None


def connections_of_a_proxy() -> None:
    """By the decision; test_proxy_process.py makes the requests."""
    room = RequestRoom(connections=8)
    for _ in range(6):
        room.enter("eve")
    with pytest.raises(ProxyRefusal):
        room.enter("eve")
    room.enter("ada")
    room.leave("eve")
    room.enter("eve")


def memory_of_templates() -> None:
    """By the decision; test_idle_templates.py lets time go by."""

    def template(key: str, user: str, used_s: float) -> RunningTemplate:
        request = StartTemplate(key, 0, "", (), {}, user=user)
        late = DelayedCall(0.0, lambda: None)
        return RunningTemplate(request, 1, cast(socket.socket, None), used_s, late=late)

    hers = template("ada", "ada", 0.0)
    flood = [template(f"e{number}", "eve", 1.0 + number) for number in range(8)]
    assert beyond(dict.fromkeys((*flood, hers), 100), 500) == flood[:4]


def places_on_hosts() -> None:
    """All places are Eve's, and she has more that wait."""
    story = Story(worker("w", cpu=4))
    story.quota("eve", max_running_cpu=2000)
    story.running("/eve", ["w"] * 4, user="eve")
    story.submit("/more", 100, user="eve", at_ms=1)
    story.submit("/ada", user="ada", at_ms=2)
    assert story.cycle() == {}
    story.end("/eve", 0)
    assert story.cycle() == {"/ada/0": "w"}
    story.submit("/urgent", user="root", band="production", at_ms=3)
    victims, _ = story.evict()
    assert [one.rpartition("/")[0] for one in victims] == ["/eve"]


def places_on_hosts_without_a_limit() -> None:
    story = Story(worker("w", cpu=4))
    story.running("/eve", ["w"] * 4, user="eve")
    story.submit("/more", user="eve", at_ms=1)
    story.submit("/ada", user="ada", at_ms=2)
    story.end("/eve", 0)
    assert story.cycle() == {"/more/0": "w"}
    story.end("/eve", 1)
    assert story.cycle() == {"/ada/0": "w"}


def events() -> None:
    """The newest eight million, as large as they usually are; test_events.py asks for deleted ones,
    and test_jobs.py of the notifier for ends of which all events are gone.
    """
    made = world()
    submit(made, "/ada", ADA)
    for number in range(50):
        submit(made, f"/e{number}", EVE, replicas=10)
        made.cancel(f"/e{number}", EVE)
    stored = 200  # beside the text: subject, id, and what the server keeps of each
    sizes = [stored + len(json.dumps(event)) for _, event in made.events]
    assert len(sizes) > 1000
    assert subjects.EVENTS.max_bytes / (sum(sizes) / len(sizes)) > 8_000_000
    assert made.ledger.find_job("/ada") is not None


FILLED: dict[str, Callable[[], None]] = {
    "commands under way": commands_under_way,
    "environments and code on a host": environments_and_code,
    "bundles being fetched on a host": bundles_being_fetched,
    "output directories being stored on a host": output_directories_being_stored,
    "probes that run on a host": probes_on_a_host,
    "connections of a proxy": connections_of_a_proxy,
    "memory of templates on a host": memory_of_templates,
    "deployments": deployments,
    "holds on the queue": holds_on_the_queue,
    "uploads in progress": uploads_in_progress,
    "commands beside tasks of a host": commands_beside_tasks,
    "streams of events and logs": streams,
    "connections": connections,
    "messages to targets": messages_to_targets,
    "links that sign in a browser": login_links,
    "finished jobs": finished_jobs,
    "audit": audit,
    "bundles": bundles,
    "artifacts": stored_by_two,
    "output of tasks": stored_by_two,
    "results of calls": stored_by_two,
    "idempotency keys of deleted jobs": idempotency_keys,
    "answers to repeated requests": answers,
    "memory of live jobs": memory_of_live_jobs,
    "waiting tasks": waiting_tasks,
    "starts on a host": starts_on_a_host,
    "sums of usage": sums_of_usage,
    "reads that wait": reads_that_wait,
    "capacity of a better band": capacity_of_a_better_band,
}


LEFT: dict[str, Callable[[], None]] = {
    "places on hosts, and slices of pools": places_on_hosts,
    "events": events,
}
"""What others keep of what is not shared fairly."""


@pytest.mark.parametrize("name", FILLED)
def test_one_user_fills_it_and_another_works_on(name):
    FILLED[name]()


@pytest.mark.parametrize("name", LEFT)
def test_one_user_fills_it_and_others_keep_what_is_said(name):
    LEFT[name]()


def test_without_a_limit_places_are_given_in_the_order_of_submission():
    places_on_hosts_without_a_limit()


def test_every_row_is_filled():
    assert {row.name for row in SHARED_THINGS if row.is_fair} == FILLED.keys()
    assert {row.name for row in SHARED_THINGS if not row.is_fair} == LEFT.keys()
