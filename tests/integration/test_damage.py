"""Corrupted stored data is detected, reported, and repaired with a list of what is lost."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
import time
from pathlib import Path

import psutil
import pytest

from iris_bus.jetstream import connect
from iris_core import subjects
from iris_nats.nats_process import DamagedFiles, streams_of
from iris_service.child import DAMAGED
from tests.support import damage
from tests.support.cluster import cluster_on, iris, owns, start, stop
from tests.support.damage import Hurt, admin, lost_by
from tests.support.nats import OpenServer
from tests.support.records import jobs_of, ledger_of
from tests.support.replicas import replicas

pytestmark = pytest.mark.integration

JOBS = 12
NAMES = {f"/job-{number}" for number in range(JOBS)}
RARE = (damage.flip_first, damage.flip_last, damage.flip_after_crash, damage.remove)
"""`make soak` does these as well: they take the way of the others to the repair."""
SAID_S = 60.0
"""In which a damaged store has to be said: two silences of a reader and some starting, on a machine
that is busy.
"""


async def work(directory: Path, *given: str, trimmed: bool = False) -> None:
    """Have jobs admitted by a state service on a server of its own, until the journal is trimmed if
    wanted.
    """
    server = OpenServer(directory)
    server.start()
    connection = await connect(server.url, name="test")
    await connection.streams.ensure()
    async with replicas(server.url, directory.parent, connection, *given) as group:
        await group.start()
        for name in sorted(NAMES):
            assert (await group.submit(name)).status == "created"
        for number in itertools.count() if trimmed else ():
            state = await connection.raw(subjects.JOURNAL.name).state()
            if state is not None and state.first_seq > 1:
                break
            await group.submit(f"/more-{number}")
        for process in group.running:
            process.terminate()
            await process.wait()
    await connection.close()
    server.stop()


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a server that has stopped after `work`."""
    directory = tmp_path_factory.mktemp("worked") / "nats"
    asyncio.run(work(directory))
    return directory


@pytest.fixture
def directory(worked: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return shutil.copytree(worked, tmp_path / "nats")


async def words_of_a_start(directory: Path) -> str:
    """What is said by whoever refuses to start on a store: the server's keeper or the state
    service.
    """
    server = OpenServer(directory)
    try:
        server.start()
    except DamagedFiles as refusal:
        server.stop()
        return str(refusal)
    connection = await connect(server.url, name="test")
    try:
        await connection.streams.ensure()
        async with replicas(server.url, directory.parent, connection) as group:
            began = time.monotonic()
            process = await group.start()
            leading = asyncio.create_task(group.leader())
            ended = asyncio.create_task(process.wait())
            await asyncio.wait({leading, ended}, return_when=asyncio.FIRST_COMPLETED)
            leading.cancel()
            if not ended.done():
                ended.cancel()
                return ""
            assert ended.result() == DAMAGED
            assert time.monotonic() - began < SAID_S
            return group.log()
    finally:
        await connection.close()
        server.stop()


async def names_after_a_start(directory: Path) -> set[str]:
    """The jobs that a state service knows which has read everything there is."""
    server = OpenServer(directory)
    server.start()
    connection = await connect(server.url, name="test")
    try:
        await connection.streams.ensure()
        async with replicas(server.url, directory.parent, connection) as group:
            await group.start()
            await group.leader()
            assert (await group.submit("/after")).status == "created"
            ledger = await ledger_of(server.url)
            return jobs_of(ledger) - {"/after"}
    finally:
        await connection.close()
        server.stop()


@pytest.mark.parametrize(
    "hurt",
    [
        damage.flip_middle,
        damage.truncate,
        *(pytest.param(hurt, marks=pytest.mark.soak) for hurt in RARE),
    ],
    ids=lambda hurt: hurt.__name__,
)
async def test_journal_damage_is_reported_and_repaired_and_losses_are_named(
    tmp_path: Path, directory: Path, hurt: Hurt
):
    hurt(directory)
    assert admin("verify", store=directory).code == DAMAGED
    said = await words_of_a_start(directory)
    assert "the journal is damaged at" in said
    repaired = admin("repair", "--yes", store=directory)
    assert repaired.code == 0, repaired
    assert "lost: entry" in repaired.out
    assert list(tmp_path.glob("replaced-*/IRIS_JOURNAL/msgs"))
    [losses] = tmp_path.glob("replaced-*-losses.txt")
    assert {path.stat().st_mode & 0o077 for path in tmp_path.glob("replaced-*")} == {0}
    assert f"every job that has lost something is in {losses}" in repaired.out
    assert lost_by(repaired.out) <= set(losses.read_text().splitlines())
    assert await names_after_a_start(directory) == NAMES - lost_by(repaired.out)
    if hurt is damage.flip_middle:
        assert admin("verify", store=directory).code == 0
        again = admin("repair", "--yes", store=directory)
        assert (again.code, "nothing to repair" in again.out) == (0, True)


@pytest.mark.parametrize(
    "hurt", [damage.flip_index, damage.remove_index], ids=lambda hurt: hurt.__name__
)
async def test_an_index_that_is_damaged_or_gone_costs_nothing(directory: Path, hurt: Hurt):
    hurt(directory)
    assert admin("verify", store=directory).code == 0
    assert await names_after_a_start(directory) == NAMES


@pytest.fixture(scope="module")
def snapshotted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `worked`, with several snapshots."""
    directory = tmp_path_factory.mktemp("snapshotted") / "nats"
    asyncio.run(work(directory, "state.snapshot_changes=10"))
    return directory


async def test_a_damaged_newest_snapshot_is_said_and_costs_nothing(
    snapshotted: Path, tmp_path: Path
):
    directory = shutil.copytree(snapshotted, tmp_path / "nats")
    damage.flip_newest_snapshot(directory)
    found = admin("verify", store=directory)
    assert "chunks are there" in found.out or "does not match" in found.out
    assert "everything that is needed is whole" in found.out
    assert await names_after_a_start(directory) == NAMES


def snapshot_of(words: str) -> int:
    """The commit of the newest intact snapshot, as `iris admin verify` names it."""
    found = re.search(r"commits behind the snapshot of (\d+)", words)
    assert found is not None, words
    return int(found[1])


@pytest.fixture(scope="module")
def covered(snapshotted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a stopped server whose journal is damaged right before what the newest
    snapshot covers ends.
    """
    directory = shutil.copytree(snapshotted, tmp_path_factory.mktemp("covered") / "nats")
    damage.flip_before(directory, snapshot_of(admin("verify", store=directory).out))
    return directory


async def test_damage_before_the_newest_snapshot_is_judged_alike_by_everybody(
    covered: Path, tmp_path: Path
):
    directory = shutil.copytree(covered, tmp_path / "nats")
    found = admin("verify", store=directory)
    assert (found.code, "damaged, and not needed: entries" in found.out) == (0, True), found
    mended = admin("repair", "--lossless", store=directory)
    assert (mended.code, "repaired; what was replaced is kept as" in mended.out) == (0, True), (
        mended
    )
    assert await names_after_a_start(directory) == NAMES


async def test_a_damaged_journal_serves_what_the_newest_snapshot_lacks(
    covered: Path, tmp_path: Path
):
    """A state service on servers of their own: nobody reads the files before."""
    directory = shutil.copytree(covered, tmp_path / "nats")
    server = OpenServer(directory, guarded=False)
    server.start()
    connection = await connect(server.url, name="test")
    try:
        async with replicas(server.url, tmp_path, connection) as group:
            await group.start()
            await group.leader()
            assert await group.names() == NAMES
    finally:
        await connection.close()
        server.stop()


async def test_what_is_lost_is_not_repaired_without_being_asked(directory: Path):
    damage.flip_middle(directory)
    before = {path: path.read_bytes() for path in damage.files_of(directory)}
    assert admin("repair", "--lossless", store=directory).code == DAMAGED
    assert admin("verify", store=directory).code == DAMAGED
    assert set(before) >= set(damage.files_of(directory))


@pytest.mark.parametrize(
    ("at", "code", "said"),
    [
        (0, 0, "there are no keys; a leader makes new ones"),
        (-4, DAMAGED, "the server has dropped its newest value"),
    ],
)
async def test_keys_that_the_server_drops_unseen_are_missed(
    at: int, code: int, said: str, directory: Path
):
    server = OpenServer(directory)
    server.start()
    connection = await connect(server.url, name="test")
    bucket = connection.key_value(subjects.KEYS_BUCKET)
    before = (await bucket.all()).get("keys")
    await bucket.put("keys", b"v" * 60, expected=before.revision if before is not None else 0)
    await connection.close()
    server.stop()
    damage.flip_value(directory, subjects.KEYS_BUCKET, at)
    found = admin("verify", store=directory)
    assert (found.code, f"bucket iris-keys: {said}" in found.out) == (code, True), found


async def test_a_damaged_value_of_a_bucket_is_said_and_written_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    directory = tmp_path / "nats"
    server = OpenServer(directory)
    server.start()
    connection = await connect(server.url, name="test")
    await connection.streams.ensure()
    await connection.key_value(subjects.KEYS_BUCKET).put("keys", b"v" * 200, expected=0)
    await connection.close()
    server.stop()
    damage.flip_value(directory, subjects.KEYS_BUCKET)
    found = admin("verify", store=directory)
    assert (found.code, "bucket iris-keys: 1 of 1 values cannot be read" in found.out) == (
        DAMAGED,
        True,
    ), found
    server.start()
    connection = await connect(server.url, name="test")
    bucket = connection.key_value(subjects.KEYS_BUCKET)
    assert dict(await bucket.all()) == {}
    await asyncio.wait_for(
        bucket.put("keys", b"anew", expected=0), 4
    )  # it took the server 5 s to replace such a value
    assert {key: entry.value for key, entry in (await bucket.all()).items()} == {"keys": b"anew"}
    assert "the value of $KV.iris-keys.keys is damaged, no server can read it" in caplog.text
    await connection.close()
    server.stop()
    assert admin("verify", store=directory).code == 0


async def test_a_damaged_target_of_messages_is_named(tmp_path: Path):
    """Else nobody is told of jobs any more, and nobody knows."""
    directory = tmp_path / "nats"
    server = OpenServer(directory)
    server.start()
    connection = await connect(server.url, name="test")
    await connection.streams.ensure()
    bucket = connection.key_value(subjects.NOTIFY_BUCKET)
    await bucket.put("position", b"p" * 200, expected=0)
    await bucket.put("target.ann.ops", b"t" * 200, expected=0)
    await connection.close()
    server.stop()
    assert admin("verify", store=directory).code == 0
    damage.flip_value(directory, subjects.NOTIFY_BUCKET)
    found = admin("verify", store=directory)
    assert found.code == DAMAGED, found
    assert "bucket iris-notify: target.ann.ops cannot be read" in found.out


async def test_without_a_readable_snapshot_the_trimmed_journal_is_read(tmp_path: Path):
    directory = tmp_path / "nats"
    await work(directory, "state.snapshot_changes=10", "state.events_settle_s=0", trimmed=True)
    damage.flip_snapshots(directory)
    assert "damaged at 1:" in await words_of_a_start(directory)
    assert admin("repair", "--yes", store=directory).code == 0
    assert await names_after_a_start(directory) >= NAMES


async def test_a_file_changed_under_a_running_server_is_reported_when_read(tmp_path: Path):
    directory = tmp_path / "nats"
    server = OpenServer(directory)
    server.start()
    connection = await connect(server.url, name="test")
    await connection.streams.ensure()
    async with replicas(server.url, tmp_path, connection) as group:
        await group.start()
        for name in sorted(NAMES):
            await group.submit(name)
        damage.flip_middle(directory)
        assert await group.names() == NAMES
    await connection.close()
    server.kill()
    server.stop()
    assert "the journal is damaged at" in await words_of_a_start(directory)
    repaired = admin("repair", "--yes", store=directory)
    assert repaired.code == 0, repaired
    assert await names_after_a_start(directory) == NAMES - lost_by(repaired.out)


NAMES_OF_JOBS = {f"/job-{number}" for number in range(5)}
SOCKETS = shutil.ignore_patterns("launcher")
"""Of workers that have stopped."""


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a local cluster that has stopped after its jobs."""
    data = tmp_path_factory.mktemp("lived") / "data"
    with cluster_on(data, "--workers", "1") as cluster:
        for job in [cluster.submit("true", name=name) for name in sorted(NAMES_OF_JOBS)]:
            job.wait()
    return data


def test_a_local_cluster_starts_on_damage_that_costs_nothing(
    tmp_path: Path, lived: Path, covered: Path
):
    data = shutil.copytree(lived, tmp_path / "data", ignore=SOCKETS)
    for stored in ("IRIS_JOURNAL", "IRIS_EVENTS", "OBJ_iris-snapshots"):
        place = streams_of(data / "nats")
        shutil.rmtree(place / stored)
        shutil.copytree(streams_of(covered) / stored, place / stored)
    cluster = start(data, "--workers", "1")
    try:
        assert {job.name for job in cluster.client.jobs()} >= NAMES
        assert list(data.glob("replaced-*/IRIS_JOURNAL/msgs"))
        assert "it costs nothing: repaired" in (data / "log" / "supervisor.log").read_text()
    finally:
        stop(cluster)


@pytest.mark.parametrize(
    "hurt",
    [pytest.param(damage.flip_middle, marks=pytest.mark.soak), damage.flip_last],
    ids=lambda hurt: hurt.__name__,
)
def test_a_local_cluster_does_not_start_on_damage_and_says_what_to_do(
    tmp_path: Path, lived: Path, hurt: Hurt
):
    data = shutil.copytree(lived, tmp_path / "data", ignore=SOCKETS)
    hurt(data / "nats")
    failed = iris("up", "--data", data, "--http", "127.0.0.1:0", "--workers", "1", "--detach")
    assert failed.code == 1
    assert f"iris admin repair --data {data}" in failed.err
    assert f"iris admin repair --data {data}" in iris("doctor", IRIS_DATA=str(data)).out
    assert not [process for process in psutil.process_iter() if owns(data, process)]
    assert iris("admin", "verify", "--data", data).code == DAMAGED
    declined = iris("admin", "repair", "--data", data)
    assert (declined.code, "nothing was changed" in declined.out) == (1, True)
    repaired = iris("admin", "repair", "--yes", "--data", data)
    assert repaired.code == 0, repaired
    cluster = start(data, "--workers", "1")
    try:
        for name in NAMES_OF_JOBS - lost_by(repaired.out):
            assert cluster.client.job(name).wait().state == "succeeded"
        assert "stored data" not in cluster.iris("doctor").out
    finally:
        stop(cluster)
