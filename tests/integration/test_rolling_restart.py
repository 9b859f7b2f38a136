"""Rolling upgrades: streams written by earlier releases, and restart of one service after
another.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from iris.client.client import Client
from iris.client.problems import ClientError
from iris_bus.contract import NoResponders
from iris_bus.jetstream import JetStreamConnection
from iris_core import codec, subjects
from iris_core.messages.gateway_state import Answer, Caller, CancelJob, SubmitJob
from iris_core.spec.jobs import JobSpec
from iris_core.views.jobs import JobView
from iris_state.effects import outbox
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.changes import Commit
from tests.support.cluster import until
from tests.support.fleet import Fleet, Member, fleet
from tests.support.hook import Hook
from tests.support.script import Script

pytestmark = pytest.mark.integration

UNFINISHED = """
    worker w0 cpu=4
    worker w1 cpu=4
    worker w2 cpu=4
    worker w3 cpu=4
    submit /job-0 replicas=6
    submit /job-4 replicas=2 cpu=4 timeout=8 band=batch
    schedule                    -> placed 8
    /job-0/0 running
    /job-0/4 running
    /job-4/0 running
    /job-0/4 exit 0
    /job-0/3 exit 0
"""
"""What an earlier release left: two jobs under way on four hosts, of which the last does not come
back. One is past its time limit by now.
"""
UNTOLD = 4
"""Of the commits before so many every event was told; the rest falls to the new release."""
ANN = Caller("ann")
LATER = ["a field of a later release", {"and": "another"}]


# ── what earlier releases left ────────────────────────────────────────────────────────────────────


def left() -> list[bytes]:
    """The commits of what an earlier release left."""
    script = Script()
    script.play(UNFINISHED)
    script.close()
    return [data for _, data in script.world.commits]


def as_another_release_would(data: bytes) -> bytes:
    """A commit with fields at the end of it, and of each of its changes, that this release knows
    nothing of.
    """
    *rest, changes = codec.unpack(codec.pack(codec.unpack(data, Commit)), list[Any])
    return codec.pack([*rest, [[*change, *LATER] for change in changes], *LATER])


def commands() -> list[tuple[str, bytes]]:
    """From gateways of an earlier release, which knew fewer fields, of a later one, and of
    nobody.
    """
    known = SubmitJob.__struct_fields__.index("idempotency_key")
    early = SubmitJob(JobSpec(name="/early", command=("work",), user="ann"), ANN, "early", 1)
    late = SubmitJob(JobSpec(name="/late", command=("work",), user="ann"), ANN, "late", 1, "k")
    gone = SubmitJob(
        JobSpec(name="/gone", command=("work",), replicas=2, user="ann", hold=True), ANN, "gone", 1
    )
    return [
        (subjects.CMD_SUBMIT, codec.pack(codec.unpack(codec.pack(early), list)[:known])),
        (subjects.CMD_SUBMIT, codec.pack([*codec.unpack(codec.pack(late), list), *LATER])),
        (subjects.CMD_SUBMIT, codec.pack(["what", "is", "this"])),
        (subjects.CMD_SUBMIT, codec.pack(gone)),
        (
            subjects.CMD_CANCEL,
            codec.pack([*codec.unpack(codec.pack(CancelJob("/gone", ANN, "c", 1)), list), *LATER]),
        ),
    ]


async def preload(connection: JetStreamConnection, commits: list[bytes]) -> Machine:
    """The streams as they were when the services of an earlier release were stopped; what they
    knew.
    """
    machine = Machine(Policy(), "old")
    kept = connection.journal()
    for number, data in enumerate(commits):
        facts = machine.replay(number + 1, data)
        await kept.append(as_another_release_would(data) if number % 2 else data, expected=number)
        for event in outbox.events(facts, number + 1) if number < len(commits) - UNTOLD else ():
            body = json.dumps({"of": "an earlier release", **json.loads(event.data)}).encode()
            await connection.streams.publish(
                event.subject, body, headers={**event.headers, "Nats-Msg-Id": event.message_id}
            )
    return machine


async def sent(connection: JetStreamConnection, subject: str, data: bytes) -> str:
    """The status of the answer to a command, once somebody leads."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(NoResponders):
                return codec.unpack(
                    (await connection.bus.request(subject, data, timeout=30)).data, Answer
                ).status
            await asyncio.sleep(0.05)


def programs(root: Path) -> Path:
    """Where tasks of the old jobs find the program they run."""
    directory = root / "programs"
    directory.mkdir()
    work = directory / "work"
    work.write_text("#!/bin/sh\nexit 0\n")
    work.chmod(0o755)
    return directory


def old_hosts(made: Fleet) -> None:
    for number in range(3):
        made.add_worker(f"w{number}", f"worker.attributes=rack=r{number % 2}")


async def test_everything_an_earlier_release_left_unfinished_is_finished(
    nats_url: str, connection: JetStreamConnection, tmp_path: Path
):
    commits = left()
    old = await preload(connection, commits)
    unfinished = {job.name for job in old.ledger.jobs.values() if not job.is_terminal}
    assert unfinished == {"/job-0", "/job-4"}
    with fleet(nats_url, tmp_path, programs(tmp_path)) as made:
        made.add("state", "state")
        made.add("scheduler", "scheduler")
        gateway = made.add("gateway", "gateway")
        old_hosts(made)
        answers = [await sent(connection, *command) for command in commands()]
        with Client(gateway.url) as client:
            ended = {
                name: client.job(name).wait(60).state
                for name in (*unfinished, "/early", "/late", "/gone")
            }
    assert ended == {
        "/job-0": "succeeded",
        "/job-4": "killed",
        "/early": "succeeded",
        "/late": "succeeded",
        "/gone": "killed",
    }
    assert answers == ["created", "created", "unavailable", "created", "accepted"]
    ids = await told(connection)
    assert ids == sorted(set(ids))
    assert [place for place in ids if place[0] <= len(commits)] == worded(commits)


async def told(connection: JetStreamConnection) -> list[tuple[int, ...]]:
    """Commit and place of every event, in the order of the stream."""
    reader = connection.streams.read(subjects.EVENTS.name, 0)
    last = await connection.streams.last(subjects.EVENTS.name)
    found: list[str] = []
    while last is not None and (not found or found[-1] != last.headers["Nats-Msg-Id"]):
        found += [message.headers["Nats-Msg-Id"] for message in await reader.batch(wait=5)]
    await reader.close()
    return [tuple(map(int, each.split("."))) for each in found]


def worded(commits: list[bytes]) -> list[tuple[int, ...]]:
    """Commit and place of every event the old commits make."""
    machine = Machine(Policy(), "words")
    facts = ((n, machine.replay(n, data)) for n, data in enumerate(commits, 1))
    events = (event for number, made in facts for event in outbox.events(made, number))
    return [tuple(map(int, event.message_id.split("."))) for event in events]


# ── one service after another ─────────────────────────────────────────────────────────────────────

PAUSE_S = 0.25
TELL = ("ops:ended",)
ONE_BY_ONE = ("notifier.allow=127.0.0.0/8", "notifier.storm_s=0.001")
MORE = 6
"""Jobs of each caller that must have ended between two restarts."""


class Load:
    """Callers in threads that submit short jobs until they are told to stop; each task leaves a
    mark.

    Attributes:
        told: jobs of which somebody is to be told.
    """

    def __init__(self, marks: Path) -> None:
        self.marks = marks
        self.told: list[str] = []
        self.ended: Counter[str] = Counter()
        self.taken: list[str] = []
        self.wrong: list[str] = []
        self.refused: Counter[str] = Counter()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def command(self, name: str) -> list[str]:
        return ["sh", "-c", f"echo done >> {self.marks / name}"]

    def by_sdk(self, who: str, url: str) -> None:
        """As people do it: submit, wait, look how it ended. They are to see no error at all."""
        with Client(url) as client:
            client.get("/v1/meta", dict)
            for name in self._names(who):
                try:
                    job = client.run(self.command(name), name=name, cpu=0.1, notify=TELL)
                    self.told.append(f"/{name}")
                    self.taken.append(name)
                    state = job.wait(60).state
                except ClientError as error:
                    self.wrong.append(f"{name}: {error!r}")
                else:
                    self.ended[who] += 1
                    if state != "succeeded":
                        self.wrong.append(f"{name} {state}")

    def by_hand(self, who: str, url: str) -> None:
        """Without help: every answer is looked at, and the request sent again until it is taken."""
        for name in self._names(who):
            while not self._taken(name, url):
                self._stop.wait(PAUSE_S)
            self.taken.append(name)
            self.ended[who] += 1

    def _taken(self, name: str, url: str) -> bool:
        body = {"name": f"/{name}", "command": self.command(name), "resources": {"cpu_millis": 100}}
        headers = {"content-type": "application/json", "idempotency-key": name}
        request = urllib.request.Request(f"{url}/v1/jobs", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return bool(answer.status in (200, 201))
        except urllib.error.HTTPError as error:
            said = json.loads(error.read())
            self.refused[f"{error.code} {said['code']}"] += 1
            if error.code != 503 or not said["retryable"] or not error.headers["retry-after"]:
                self.wrong.append(f"{name}: {error.code} {said}")
        except OSError as error:
            self.refused[type(error).__name__] += 1
        return False

    def _names(self, who: str) -> Any:
        number = 0
        while not self._stop.is_set():
            number += 1
            yield f"{who}-{number}"
            self._stop.wait(PAUSE_S)

    def begin(self, work: Any, who: str, url: str) -> None:
        thread = threading.Thread(target=work, args=(who, url), daemon=True)
        self._threads.append(thread)
        thread.start()

    def more(self) -> None:
        """Return once each caller has come some jobs further."""
        before = dict(self.ended)
        until(
            lambda: all(self.ended[who] >= n + MORE for who, n in before.items()),
            "the load goes on",
            60,
        )

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive()


class Reader:
    """Follows what a long task prints, through whatever becomes of the gateway."""

    def __init__(self, url: str, enough: Path) -> None:
        self._enough = enough
        self._seen: list[str] = []
        self._thread = threading.Thread(target=self._read, args=(url,), daemon=True)
        self._thread.start()
        until(lambda: len(self._seen) > 1, "something was read")

    def _read(self, url: str) -> None:
        count = f"n=0; while ! test -e {self._enough}; do echo $n; n=$((n+1)); sleep 0.05; done"
        with Client(url) as client:
            self._seen += (
                line.line for line in client.run(["sh", "-c", count], name="long", cpu=0.1).logs()
            )

    def lines(self) -> list[str]:
        """All of them, once the task has been told to end."""
        self._enough.touch()
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self._seen


def restart(member: Member) -> None:
    """In order: it ends by itself with 0, and is there again."""
    assert member.terminate() == 0, member.log.read_text()
    member.start()
    member.ready()


def drain(client: Client, worker: str) -> None:
    """It gets nothing new, and what it has ends."""
    client.post(f"/v1/workers/{worker}/drain", dict)
    until(
        lambda: not next(w for w in client.workers() if w.id == worker).tasks,
        f"{worker} is empty",
        60,
    )


@pytest.mark.soak
async def test_each_service_is_restarted_under_load_and_nobody_is_any_the_wiser(
    nats_url: str, tmp_path: Path
):
    marks = tmp_path / "marks"
    marks.mkdir()
    load = Load(marks)
    hook = Hook()
    with fleet(nats_url, tmp_path) as made:
        states = [made.add("state", f"state-{number}") for number in range(2)]
        schedulers = [made.add("scheduler", f"scheduler-{number}") for number in range(2)]
        gateways = [made.add("gateway", f"gateway-{number}") for number in range(2)]
        provisioners = [made.add("provisioner", f"provisioner-{number}") for number in range(2)]
        notifiers = [made.add("notifier", f"notifier-{n}", *ONE_BY_ONE) for n in range(2)]
        workers = [made.add_worker(f"worker-{number}") for number in range(2)]
        with Client(gateways[0].url) as client:
            client.add_notify_target(
                "ops", webhook=hook.url, secret="sixteen bytes and more", shared=True
            )
        for number, gateway in enumerate(gateways):
            load.begin(load.by_sdk, f"sdk{number}", gateway.url)
            load.begin(load.by_hand, f"hand{number}", gateway.url)
        until(lambda: len(load.ended) == 4, "every caller has had a job")
        with Client(gateways[0].url) as client:
            for member in (*reversed(states), *schedulers, *provisioners, *notifiers):
                restart(member)
                load.more()
            for member in workers:
                drain(client, member.name)
                restart(member)
                client.post(f"/v1/workers/{member.name}/undrain", dict)
                load.more()
        reader = Reader(gateways[0].url, tmp_path / "enough")
        for member in gateways:
            restart(member)
            load.more()
        load.stop()
        assert reader.lines() == [str(number) for number in range(len(reader.lines()))]
        with Client(gateways[0].url) as client:
            jobs = all_ended(client)
        until(lambda: hook.jobs("ended") == {*load.told}, "each end is told", 60)
    hook.close()
    assert load.wrong == []
    assert {name for name, job in jobs.items() if job.state != "succeeded"} == set()
    assert set(load.taken) <= {name.strip("/") for name in jobs}
    assert {mark.name: mark.read_text() for mark in marks.iterdir()} == {
        name.strip("/"): "done\n" for name in jobs if name != "/long"
    }
    assert set(load.refused) <= {
        "503 unavailable",
        "URLError",
        "ConnectionResetError",
        "RemoteDisconnected",
    }


def all_ended(client: Client) -> dict[str, JobView]:
    """Every job by name, once all have ended. Fails when a name appears twice."""

    def listed() -> list[JobView]:
        jobs = list(client.pages("/v1/jobs", JobView))
        return jobs if all(job.finished_at is not None for job in jobs) else []

    jobs = until(listed, "every job has ended", 60)
    assert max(Counter(job.name for job in jobs).values()) == 1
    return {job.name: job for job in jobs}
