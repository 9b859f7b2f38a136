"""A backup taken while jobs are submitted and restored onto an empty cluster contains the same
jobs.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from iris.client.problems import Conflict
from iris_bus.jetstream import JetStreamConnection, connect
from iris_core import codec, subjects
from iris_core.views.jobs import JobView
from iris_notifier.records import EventPosition
from iris_state.admin import archive
from iris_state.admin.examine import digests
from iris_state.admin.salvage import salvage
from iris_state.admin.survey import survey
from iris_state.policy import Policy
from iris_state.snapshots import snapshot
from tests.support.cluster import Cluster, settings, start, stop, until
from tests.support.damage import Ended, admin
from tests.support.disk_cluster import Acknowledged
from tests.support.nats import OpenServer
from tests.support.records import jobs_of, ledger_of
from tests.support.replicas import replicas

pytestmark = pytest.mark.integration

BUNDLE = b"code" * 200_000
SERVE = Path(__file__).parents[2] / "examples" / "serve"
OFTEN = "state.snapshot_changes=60"


def snapshot_in(path: Path) -> bytes:
    return next(item.data for item in archive.read(path) if item.kind == "snapshot")


@pytest.mark.parametrize(
    "more", [(), ("--events", "--logs")], ids=["records", "and events and output"]
)
async def test_a_backup_under_load_restores_every_job_acknowledged_before_it(
    tmp_path: Path, more: tuple[str, ...]
):
    file, target = tmp_path / "backup", tmp_path / "restored" / "nats"
    source = OpenServer(tmp_path / "nats")
    source.start()
    connection = await connect(source.url, name="test")
    await connection.streams.ensure()
    await connection.blobs(subjects.BUNDLES_BUCKET).put("b", BUNDLE, owners=["ann"])
    read = EventPosition(events=1, made=(await connection.streams.position("IRIS_EVENTS")).made)
    await connection.key_value(subjects.NOTIFY_BUCKET).put(read.key, codec.pack(read), expected=0)
    acknowledged: list[str] = []
    enough, over = asyncio.Event(), asyncio.Event()

    async with replicas(source.url, tmp_path, connection, OFTEN) as group:
        await group.start()

        async def submit() -> None:
            for number in itertools.takewhile(lambda _: not over.is_set(), itertools.count()):
                name = f"/job-{number}"
                assert (await group.submit(name)).status == "created"
                acknowledged.append(name)
                if len(acknowledged) == 40:
                    enough.set()

        load = asyncio.create_task(submit())
        await enough.wait()
        before = set(acknowledged)
        taken = await asyncio.to_thread(admin, "backup", *more, file, url=source.url)
        assert taken.code == 0, taken
        at_the_end = len(acknowledged)
        over.set()
        await load
        noted_ms = await last_backup_ms(connection)
        assert time.time() - 60 < noted_ms / 1000 <= time.time()
    assert at_the_end > len(before)  # submissions went on
    assert admin("verify", file, store=tmp_path / "no cluster").code == 0
    target.parent.mkdir()
    restored = admin("restore", file, store=target)
    assert restored.code == 0, restored
    copy = OpenServer(target)
    copy.start()
    try:
        ledger = await ledger_of(copy.url)
        assert before <= jobs_of(ledger)
        assert ledger.next_number > (await ledger_of(source.url)).next_number, (
            "hosts may run jobs that were lost"
        )
        wanted = digests(snapshot_in(file))
        assert await records_of(source.url, file) == wanted
        unseen = {"next_number": "", "epoch": ""}
        assert await records_of(copy.url, file) | unseen == wanted | unseen
        assert ledger.epoch > (await ledger_of(source.url)).epoch, "hosts may know later leaders"
        again = await connect(copy.url, name="test")
        assert 0 < await last_backup_ms(again) <= noted_ms, "IrisBackupOld fires after a restore"
        assert await again.blobs(subjects.BUNDLES_BUCKET).get("b") == BUNDLE
        place = (await again.key_value(subjects.NOTIFY_BUCKET).all())[subjects.NOTIFY_POSITION]
        assert codec.unpack(place.value, EventPosition) == EventPosition(events=1), (
            "a notifier takes the restored events for others, and tells them again"
        )
        assert [blob.owners for blob in await again.blobs(subjects.BUNDLES_BUCKET).listed()] == [
            ("ann",)
        ]
        async with replicas(copy.url, target.parent, again) as group:
            await group.start()
            await group.leader()
            assert before <= await group.names()
            assert (await group.submit("/after")).status == "created"
            assert "/after" in await group.names()
        await again.close()
        submitted = (await ledger_of(copy.url)).next_number
        once_more = admin("restore", file, store=tmp_path / "restored-again")
        assert next_number(restored) == ledger.next_number < submitted
        assert next_number(once_more) >= submitted, (
            "an id names one job before the second restore, and another one after it"
        )
        refused = admin("restore", file, url=copy.url)
        assert (refused.code, "empty cluster only" in refused.err) == (1, True)
    finally:
        await connection.close()
        copy.stop()
        source.stop()


def next_number(restored: Ended) -> int:
    """What a restore says of the ids that come."""
    said = re.search(r"^ids of new jobs begin at j(\d+)", restored.out, re.MULTILINE)
    assert said is not None, restored
    return int(said[1])


async def last_backup_ms(connection: JetStreamConnection) -> int:
    """When a backup was made, as the journal notes it; 0: never."""
    journal = await connection.streams.standing(subjects.JOURNAL.name)
    return int(journal.notes.get(subjects.LAST_BACKUP, 0))


async def records_of(url: str, file: Path) -> dict[str, str]:
    """Digests of the records of a server as of the commit of a backup, from the journal that it
    keeps.
    """

    end = snapshot.read(snapshot_in(file)).rest.sequence
    connection = await connect(url, name="judge")
    try:
        blobs = connection.blobs(subjects.SNAPSHOTS_BUCKET)
        begin, image = 0, None
        for name in await blobs.names():
            data = await blobs.get(name)
            if data is not None and begin < snapshot.read(data).rest.sequence <= end:
                begin, image = snapshot.read(data).rest.sequence, data
        messages = {
            m.sequence: m.data
            async for m in connection.raw(subjects.JOURNAL.name).readable(begin, end)
        }
        found = survey(messages, begin, end)
        assert found.lost == []
        return digests(snapshot.cut(salvage(Policy(), image, found).machine.ledger, end, 0))
    finally:
        await connection.close()


@pytest.mark.soak
def test_a_local_cluster_is_backed_up_under_load_and_restored(tmp_path: Path):
    data, other, file = tmp_path / "data", tmp_path / "other", tmp_path / "backup"
    runs, gate = tmp_path / "runs", tmp_path / "gate"
    runs_once = ["sh", "-c", f"echo $IRIS_JOB >> {runs}"]
    cluster = start(data, "--workers", "1", *settings(data, "[state]\nsnapshot_changes = 100\n"))
    try:
        assert cluster.iris("quota", "set", "ann", "--max-running-cpu", "7").code == 0
        quotas = cluster.iris("quota", "show", "ann", "-o", "json").out
        quick = {"probe_interval": "0.2s", "start_timeout": "30s"}
        service = [sys.executable, "server.py", "v1"]
        cluster.client.deploy(
            service, "chat", workdir=SERVE, replicas=1, cpu=0.1, **quick
        ).wait_ready(60)
        waiting = cluster.submit(
            "sh", "-c", f"until [ -e {gate} ]; do sleep 0.1; done", name="waits", cpu=0.1
        )
        until(lambda: waiting.refresh().state == "running", "it runs")
        with Acknowledged(cluster, command=runs_once) as load:
            load.more(30)
            finished = until(lambda: ended(cluster, at_least=10), "some have finished")
            acknowledged = list(load.names)
            taken = cluster.iris("admin", "backup", file, "--events", "--logs", "--data", data)
            assert taken.code == 0, taken
            load.more(5)
    finally:
        stop(cluster)

    assert cluster.iris("admin", "restore", file, "--data", other).code == 0
    assert other.stat().st_mode & 0o066 == 0, "others list the directory that it has made"
    copy = start(other, "--workers", "1")
    try:
        restored = {job.name: job for job in copy.client.jobs()}
        jobs = {name for name in restored if not name.startswith("/chat/")}
        assert {*acknowledged, "/waits"} <= jobs <= {*load.tried, "/waits"}
        assert {name: restored[name] for name in finished} == finished
        assert copy.iris("quota", "show", "ann", "-o", "json").out == quotas
        gate.touch()
        assert {copy.client.job(name).wait(60).state for name in jobs} == {"succeeded"}
        ran = Counter(runs.read_text().split())
        assert [name for name in finished if ran[name] != 1] == []
        first = min(finished)
        again = copy.client.run(runs_once, name=first, cpu=0.1, idempotency_key=first)
        assert again.id == finished[first].id
        with pytest.raises(Conflict, match="differs in command"):
            copy.client.run(["false"], name=first, cpu=0.1, idempotency_key=first)
        until(lambda: answers(copy, "chat"), "the service is back, from its bundle", 60)
        assert copy.iris("admin", "verify", "--data", other).code == 0
    finally:
        stop(copy)


def answers(cluster: Cluster, name: str) -> bool:
    """Whether a service answers through the proxy."""
    try:
        with urllib.request.urlopen(f"{cluster.file['proxy_url']}/d/{name}/", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def ended(cluster: Cluster, at_least: int) -> dict[str, JobView]:
    """The jobs that have succeeded, by name; none while they are fewer."""
    found = {job.name: job for job in cluster.client.jobs(state="succeeded")}
    return found if len(found) >= at_least else {}
