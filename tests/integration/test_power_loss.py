"""Power loss of a machine under load: the cluster recovers from what had been synced to disk.

The whole cluster lives on an ext4 file system in a file. NATS is killed, the file system takes no
more writes from that moment, every process ends, and a copy of the file is mounted elsewhere and
started on. That the cut is real is shown by the second test: with a server that does not sync at
    each write, the same cut loses submissions that were acknowledged.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from iris_bus.jetstream import connect
from iris_nats.nats_process import OBSERVER
from tests.support.cluster import Cluster, cluster_on, settings, start, until
from tests.support.disk import Disk, MakeDisk, make_disk
from tests.support.disk_cluster import Acknowledged, Ear, Told, bury, end_at_once, stored_events
from tests.support.nats import OpenServer
from tests.support.records import jobs_of, ledger_of
from tests.support.replicas import replicas

__all__ = ["make_disk"]

pytestmark = pytest.mark.integration

SUBMISSIONS = 150
OFTEN = "[state]\nsnapshot_changes = 100\n"
"""Snapshots are taken meanwhile, and the journal is trimmed."""


def work_until_power_loss(disk: Disk, *, young: bool) -> tuple[list[str], Told]:
    """The names of acknowledged jobs and the events heard, when the machine is off."""
    data = disk.path / "data"
    cluster = start(data, "--workers", "1", *settings(data, OFTEN))
    try:
        key = cluster.credentials("observer", OBSERVER).nkey_seed
        with Ear(cluster.nats_url, key) as ear, Acknowledged(cluster) as load:
            load.more(SUBMISSIONS // 2)
            if not young:
                disk.write_back()
            load.more(SUBMISSIONS // 2)
            end_at_once(cluster)
            disk.lose_power()
            names, heard = list(load.names), dict(ear.heard)
            bury(cluster)
    finally:
        bury(cluster)
    disk.unmount()
    return names, heard


def settled(cluster: Cluster) -> bool:
    return not any(job.state in ("pending", "running") for job in cluster.client.jobs())


@pytest.mark.soak
@pytest.mark.parametrize(
    "young", [True, False], ids=["of a cluster seconds old", "of one that the kernel wrote back"]
)
def test_power_loss_loses_no_acknowledged_submission_and_no_event(make_disk: MakeDisk, young: bool):
    before = make_disk("before", 512)
    names, heard = work_until_power_loss(before, young=young)
    after = make_disk("after", copy=before.image)
    with cluster_on(after.path / "data", "--workers", "1") as cluster:
        until(lambda: settled(cluster), "every job has ended")
        ledger = asyncio.run(ledger_of(cluster.nats_url, cluster.credentials()))
        told = asyncio.run(stored_events(cluster.nats_url, cluster.credentials()))
        states = {job.name: job.state for job in cluster.client.jobs()}
    after.unmount()
    assert len(names) >= SUBMISSIONS
    assert len(heard) >= SUBMISSIONS
    assert set(names) <= jobs_of(ledger)
    assert {states[name] for name in names} == {"succeeded"}
    assert {event: told.get(event) for event in heard} == heard


async def test_without_syncing_power_loss_loses_acknowledged_submissions(
    make_disk: MakeDisk, tmp_path: Path
):
    before = make_disk("before", 256)
    lazy = OpenServer(before.path / "nats", sync="10m")
    lazy.start()
    connection = await connect(lazy.url, name="test", on_lost=print)
    await connection.streams.ensure()
    async with replicas(lazy.url, tmp_path, connection) as group:
        await group.start()
        await group.leader()
        names = {f"/job-{number}" for number in range(20)}
        assert {(await group.submit(name)).status for name in sorted(names)} == {"created"}
        lazy.kill()
        before.lose_power()
    await connection.close()
    lazy.stop()
    before.unmount()
    after = make_disk("after", copy=before.image)
    again = OpenServer(after.path / "nats")
    again.start()
    connection = await connect(again.url, name="test")
    await connection.streams.ensure()
    left = jobs_of(await ledger_of(again.url))
    await connection.close()
    again.stop()
    assert names - left
