"""A pool of Cloud TPU on a real cluster: the API is that of a server on loopback, whose VMs are workers
that boot by the startup script and the metadata they were given.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.client.problems import Rejected
from tests.support.cloud_tpu import PROJECT, ZONE, CloudTpu, Fault
from tests.support.cluster import Cluster, cluster_on, settings, until
from tests.support.tpu_vms import TpuVms
from tests.support.worker import UNCONFINED

pytestmark = [pytest.mark.integration, pytest.mark.needs("curl")]

POOL = f"""
name = "v4"
provider = "tpu"
hosts = 2
max = 2
capacity = "spot"
idle_s = 3
boot_timeout_s = 200
[resources]
cpu_millis = 1000
chips = 4
[attributes]
device-type = "tpu"
device-variant = "v4-16"
[options]
project = "{PROJECT}"
zone = "{ZONE}"
runtime_version = "tpu-ubuntu2204-base"
"""
HARDWARE = ("cpu_millis=1000", "chips=4", "accelerators=none", "address=127.0.0.1")


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudTpu]:
    unconfined = (f"{key}={value}" for key, value in UNCONFINED.items())
    vms = TpuVms(tmp_path_factory.mktemp("vms"), *HARDWARE, *unconfined)
    made = CloudTpu(vms)
    made.is_automatic = True
    try:
        with made.beside():
            yield made
    finally:
        vms.stop_all()


@pytest.fixture(scope="module")
def fleet(cloud: CloudTpu, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose only hosts are TPU VMs."""
    place = tmp_path_factory.mktemp("fleet")
    pool = place / "v4.toml"
    pool.write_text(POOL)
    config = settings(
        place,
        "[fleet]\ninterval_s = 0.5\nlist_interval_s = 1\nexhausted_first_s = 1\n"
        f'[provisioner]\ntpu_endpoint = "{cloud.url}"\n',
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(cloud.credentials(place)))
        options = ("--workers", "0", "--pool", str(pool), *config)
        with cluster_on(place / "data", *options) as running:
            yield running


def is_empty(cluster: Cluster, cloud: CloudTpu) -> bool:
    return not list(cluster.client.fleet_slices()) and not cloud.queued and not cloud.nodes


def test_a_gang_gets_a_slice_and_another_when_that_is_taken_away(
    fleet: Cluster, cloud: CloudTpu, tmp_path: Path
) -> None:
    cloud.faults += [
        Fault("POST", "queuedResources", takes_effect=True),
        Fault("DELETE", "queuedResources", takes_effect=True),
        Fault("GET", "nodes"),
    ]
    go = tmp_path / "go"
    script = f"until [ -e {go} ]; do sleep 0.1; done"
    gang = fleet.submit("sh", "-c", script, name="train", tpu="v4-16", max_retries_preemption=5)
    until(lambda: gang.refresh().state == "running", "the gang runs", 150)
    [first] = [one.name for one in fleet.client.fleet_slices(status="ready")]
    workers = sorted(worker.id for worker in fleet.client.workers())
    assert workers == [f"{first}-0", f"{first}-1"]
    cloud.preempt(first)
    until(lambda: all(len(task.attempts) > 1 for task in fleet.tasks(gang)), "all begins anew", 150)
    go.touch()
    assert gang.wait(150).state == "succeeded"
    until(lambda: is_empty(fleet, cloud), "nothing is left", 120)
    assert cloud.faults == []
    causes = {one.cause for one in fleet.client.pool_history("v4")}
    assert {"need", "preempted", "idle"} <= causes
    assert secrets_outside_of(fleet, cloud) == []


def secrets_outside_of(cluster: Cluster, cloud: CloudTpu) -> list[str]:
    """Where the seed of a host is that only its metadata may have."""
    keys = {path.resolve(): path.read_bytes().strip() for path in cluster.data.rglob("*v4-0-*")}
    seeds = [seed for seed in keys.values() if seed.startswith(b"S")]
    assert seeds, "the slots have keys"
    files = [path for path in cluster.data.rglob("*") if path.is_file()]
    return [
        str(path)
        for path in files
        if path.resolve() not in keys and any(seed in path.read_bytes() for seed in seeds)
    ]


def test_refused_credentials_halt_the_pool_which_doctor_tells(
    fleet: Cluster, cloud: CloudTpu
) -> None:
    cloud.accepts = False
    cloud.tokens.clear()
    gang = fleet.submit("true", name="late", tpu="v4-16")
    until(lambda: fleet.client.pool("v4").state == "paused", "the pool is halted", 60)
    assert "credentials are refused" in fleet.client.pool("v4").reason
    told = fleet.iris("doctor")
    assert "pool v4 is paused" in told.out
    assert "credentials are refused" in told.out
    cloud.accepts = True
    fleet.client.resume_pool("v4")
    assert gang.wait(200).state == "succeeded"
    until(lambda: is_empty(fleet, cloud), "nothing is left", 120)


def test_a_wrong_option_is_refused_when_the_pool_is_set(fleet: Cluster) -> None:
    with pytest.raises(Rejected) as caught:
        fleet.client.set_pool("v4", provider_options={"zone": "here"}, max=1)
    assert [one.pointer for one in caught.value.mistakes] == ["/options/zone"]
