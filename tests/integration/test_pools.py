"""Pools over HTTP and by the command line, on a real cluster: what is refused, and where it points."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris.client.problems import NotFound, Rejected
from tests.support.cluster import Cluster, cluster_on, until

pytestmark = pytest.mark.integration

SPEC: dict[str, Any] = {
    "name": "small",
    "provider": "process",
    "max": 4,
    "resources": {"cpu_millis": 1000},
    "paused": True,
}
TPU: dict[str, Any] = {
    **SPEC,
    "hosts": 4,
    "resources": {"cpu_millis": 8000, "chips": 4},
    "attributes": {"device-type": "tpu", "device-variant": "v5litepod-16"},
    "reservation": {"name": "tpus", "chips": 64},
}


@pytest.fixture
def pools(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster in which a test may set pools; they are paused, so they make nothing. Their slots
    have no keys at first, of which the cluster warns once a provisioner has counted them.
    """
    yield cluster
    for pool in cluster.client.pools():
        cluster.client.remove_pool(pool.name, drain=True)


def ask(cluster: Cluster, method: str, path: str, body: bytes, **more: str) -> tuple[int, Any, Any]:
    """The status, the object and the headers of an answer."""
    headers = {**cluster.headers, "Content-Type": "application/json", **more}
    request = urllib.request.Request(
        f"{cluster.url}{path}", data=body, method=method, headers=headers
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer), answer.headers
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused), refused.headers


@pytest.mark.parametrize(
    ("spec", "pointers"),
    [
        ({**SPEC, "maxx": 4, "options": {"speed": 1}}, ["/maxx", "/options/speed"]),
        ({**SPEC, "min": 5, "buffer": 6}, ["/buffer", "/min"]),
        ({**SPEC, "min": -1, "price": -0.5, "idle_s": -1}, ["/idle_s", "/min", "/price"]),
        ({**SPEC, "price": None}, ["/price"]),
        ({**SPEC, "provider": "gce"}, ["/provider"]),
        ({**SPEC, "provider": "exec"}, ["/options/program"]),
        ({**TPU, "hosts": 3}, ["/hosts"]),
        ({**SPEC, "resources": {"cpu_millis": 1, "chips": 4}}, ["/attributes/device-type", "/attributes/device-variant"]),
        ({**SPEC, "name": "other"}, ["/name"]),
        ({**SPEC, "resources": {"cpu_millis": 0}}, ["/resources/cpu_millis"]),
        ({}, ["/max", "/name", "/provider", "/resources"]),
    ],
)  # fmt: skip
def test_a_refused_pool_points_at_each_mistake_and_is_not_there(
    pools: Cluster, spec: dict[str, Any], pointers: list[str]
) -> None:
    status, answer, _ = ask(pools, "PUT", "/v1/pools/small", json.dumps(spec).encode())
    assert (status, sorted(one["pointer"] for one in answer["errors"])) == (422, pointers)
    with pytest.raises(NotFound):
        pools.client.pool("small")


@pytest.mark.parametrize("body", [b'{"price": NaN}', b'{"price": 1e999}', b'{"max": ', b"\xff"])
def test_what_json_does_not_have_is_refused(pools: Cluster, body: bytes) -> None:
    status, answer, _ = ask(pools, "PUT", "/v1/pools/small", body)
    assert (status, answer["code"]) == (400, "malformed")


def test_pools_that_contradict_each_other_are_refused(pools: Cluster) -> None:
    pools.client.replace_pool(TPU)
    other = {**TPU, "name": "other", "reservation": {"name": "tpus", "chips": 32}}
    for spec, pointer in (
        (other, "/reservation/chips"),
        ({**SPEC, "name": "small-1"}, "/name"),
    ):
        with pytest.raises(Rejected) as caught:
            pools.client.replace_pool(spec)
        assert [one.pointer for one in caught.value.mistakes] == [pointer]


def test_a_change_of_an_older_version_is_refused(pools: Cluster) -> None:
    body = json.dumps(SPEC).encode()
    made, _, headers = ask(pools, "PUT", "/v1/pools/small", body)
    pools.client.set_pool("small", max=5)
    late, answer, _ = ask(
        pools, "PUT", "/v1/pools/small", body, **{"If-Match": headers["etag"] or ""}
    )
    assert (made, late, answer["code"]) == (201, 412, "precondition_failed")
    assert pools.client.pool("small").max == 5


def test_a_pool_goes_from_the_command_line_to_a_file_and_back(
    pools: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "small.json"
    file.write_text(json.dumps(SPEC))
    assert pools.iris("pool", "set", file).code == 0
    changed = pools.iris("pool", "set", "small", "--max", 7, "--option", "boot_s=1.5")
    assert (changed.code, changed.err.splitlines()[0]) == (
        0,
        "small is set: 0 to 7 slices of process; it is paused: by an admin",
    )
    file.write_text(pools.iris("pool", "show", "small", "-o", "json").out)
    again = pools.iris("pool", "set", file)
    found = pools.client.pool("small")
    assert (again.code, found.max, found.options, found.version) == (0, 7, {"boot_s": 1.5}, 2)
    odd = pools.iris("pool", "set", "small", "--min", 9, "--option", "speed=1")
    assert odd.code == 2
    assert "--min: min 9 is more than max 7" in odd.err
    assert "--option: the provider process has no option 'speed'" in odd.err
    missing = pools.iris("pool", "show", "none")
    assert (missing.code, missing.err) == (10, "error: there is no pool none\n")


def test_what_was_done_to_a_pool_is_in_the_audit(pools: Cluster) -> None:
    pools.client.replace_pool({**SPEC, "paused": False, "max": 0})
    pools.client.pause_pool("small", reason="repairs")
    assert pools.client.pool("small").state == "paused"
    pools.client.resume_pool("small")
    assert pools.client.pool("small").state == "ok"
    assert pools.client.remove_pool("small")
    done = [row.action for row in pools.client.audit(of="small")]
    assert done[:4] == ["remove", "resume", "pause", "set"]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without hosts of its own, and a pool that may make two."""
    pool = "cpu:max=2,cpu=1,memory=512MiB,idle=1h"
    with cluster_on(tmp_path_factory.mktemp("grown"), "--workers", "0", "--pool", pool) as running:
        yield running


def test_a_pool_with_running_work_is_removed_only_with_drain(grown: Cluster) -> None:
    job = grown.client.run(["sleep", "600"], name="long", memory="64MiB")
    until(lambda: job.refresh().state == "running", "it runs on a host of the pool", 120)
    [slice_] = grown.client.fleet_slices(pool="cpu")
    [worker] = grown.client.workers()
    assert (worker.id, worker.pool, worker.slice) == (f"{slice_.name}-0", "cpu", slice_.name)
    status, answer, _ = ask(grown, "DELETE", "/v1/pools/cpu", b"")
    assert (status, answer["code"], "1 slice" in answer["detail"]) == (409, "conflict", True)
    refused = grown.iris("pool", "rm", "cpu")
    assert (refused.code, "remove it with drain" in refused.err) == (11, True)
    gone = grown.iris("pool", "rm", "cpu", "--drain")
    assert (gone.code, gone.err) == (0, "cpu goes with its last slice\n")
    assert grown.client.pool("cpu").removing
    assert job.refresh().state == "running"
    again = {**SPEC, "name": "cpu", "provider": "exec", "options": {"program": "other"}}
    status, answer, _ = ask(grown, "PUT", "/v1/pools/cpu", json.dumps(again).encode())
    assert (status, answer["code"]) == (409, "conflict")
    job.cancel()
    until(lambda: not list(grown.client.pools()), "it is gone with its slice", 120)
