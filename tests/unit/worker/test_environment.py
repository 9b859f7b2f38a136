"""The environment variables of a task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Gang, TaskTemplate
from iris_core.spec.resources import Device, ResourceRequest
from iris_service.settings import BadSetting
from iris_worker import environment
from iris_worker.host.host import authority
from tests.support.certificates import make_certificate

PLACE = environment.Place(
    "w0", "http://gate:8080", {"PATH": "/bin", "HOME": "/home/iris", "LANG": "C"}
)


def template(**env: str) -> TaskTemplate:
    return TaskTemplate(7, "/train", ("true",), env, 4, ResourceRequest())


def test_a_task_is_told_who_and_where_it_is():
    shared = environment.common(PLACE, template(MINE="1"))
    assert environment.own(
        shared, AttemptRef(7, 2, 1), "/w", "/w/e", {"http": 81, "grpc-web": 82}
    ) == {
        "PATH": "/bin",
        "HOME": "/home/iris",
        "LANG": "C",
        "MINE": "1",
        **dict.fromkeys(environment.THREADS, "1"),
        "IRIS_JOB": "/train",
        "IRIS_NUM_TASKS": "4",
        "IRIS_PROJECT": "/",
        "IRIS_WORKER_ID": "w0",
        "IRIS_GATEWAY_URL": "http://gate:8080",
        "IRIS_TASK": "/train/2",
        "IRIS_TASK_INDEX": "2",
        "IRIS_ATTEMPT": "1",
        "IRIS_WORKDIR": "/w",
        "IRIS_ERROR_FILE": "/w/e",
        "IRIS_PORT_HTTP": "81",
        "IRIS_PORT_GRPC_WEB": "82",
    }


def test_the_owners_words_outweigh_the_hosts_and_not_ours():
    shared = environment.common(
        PLACE, template(PATH="/opt/bin", IRIS_WORKER_ID="w9", IRIS_TOKEN="secret")
    )
    assert (shared["PATH"], shared["IRIS_WORKER_ID"], shared["IRIS_TOKEN"]) == (
        "/opt/bin",
        "w0",
        "secret",
    )


def test_an_attempt_has_its_own_token_unless_its_job_brings_one():
    mine = environment.token_variables(environment.common(PLACE, template()), "t", "/w.token")
    assert mine == {"IRIS_TOKEN": "t", "IRIS_TOKEN_FILE": "/w.token"}
    for name in mine:
        brought = environment.common(PLACE, template(**{name: "theirs"}))
        assert environment.token_variables(brought, "t", "/w.token") == {}


def test_a_task_trusts_the_authority_of_its_workers_gateway(tmp_path: Path):
    cert, key = make_certificate(tmp_path)
    bundle = tmp_path / "ca.pem"
    bundle.write_text("an authority of ours\n" + cert.read_text() + key.read_text())
    place = replace(PLACE, ca=authority(str(bundle)))
    assert environment.common(place, template(IRIS_CA="theirs"))["IRIS_CA"] == cert.read_text()
    assert "IRIS_CA" not in environment.common(PLACE, template())


def test_an_authority_that_cannot_be_used_ends_the_worker(tmp_path: Path):
    cert, _ = make_certificate(tmp_path)
    halved = tmp_path / "halved.pem"
    halved.write_text(cert.read_text()[:100])
    many = tmp_path / "many.pem"
    many.write_text(cert.read_text() * 40)
    for path, why in (
        (halved, "holds 0 bytes of certificates"),
        (many, "name only the authority of the gateway"),
        (tmp_path / "none", "No such file"),
    ):
        with pytest.raises(BadSetting, match=f"ca_file: {path} .*{why}"):
            authority(str(path))


def test_no_task_is_taken_for_a_probe():
    assert environment.PROBE_VARIABLE not in environment.common(PLACE, template(IRIS_PROBE="1"))


def test_the_members_of_a_gang_agree_on_each_other():
    gang = Gang(7, ("10.0.0.1", "10.0.0.2"))
    first, second = (
        environment.gang_words(gang, 0, "/w/hosts"),
        environment.gang_words(gang, 1, "/w/hosts"),
    )
    port = environment.coordinator_port(gang)
    assert second == {
        "IRIS_GANG_HOSTS": "10.0.0.1,10.0.0.2",
        "IRIS_HOSTFILE": "/w/hosts",
        "IRIS_COORDINATOR_ADDRESS": f"10.0.0.1:{port}",
        "JAX_COORDINATOR_ADDRESS": f"10.0.0.1:{port}",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "1",
        "TPU_WORKER_ID": "1",
        "TPU_WORKER_HOSTNAMES": "10.0.0.1,10.0.0.2",
    }
    ranks = {"JAX_PROCESS_ID", "RANK", "NODE_RANK", "TPU_WORKER_ID"}
    assert {key for key in first if first[key] != second[key]} == ranks


@pytest.mark.parametrize(("variant", "said"), [("A100", "A100"), ("auto", None)])
def test_a_task_is_told_the_variant_of_its_device(variant: str, said: str | None):
    made = msgspec.structs.replace(
        template(), resources=ResourceRequest(device=Device("gpu", variant, 8))
    )
    assert environment.common(PLACE, made).get("IRIS_DEVICE_VARIANT") == said
    assert "IRIS_DEVICE_VARIANT" not in environment.common(PLACE, template())


def test_members_of_slices_count_per_slice_for_libtpu_and_overall_for_jax():
    gang = Gang(7, ("h0", "h1", "h2", "h3"), slices=2)
    words = [environment.gang_words(gang, index, "/w/hosts") for index in range(4)]
    assert [one["JAX_PROCESS_ID"] for one in words] == ["0", "1", "2", "3"]
    assert {one["JAX_NUM_PROCESSES"] for one in words} == {"4"}
    assert [one["TPU_WORKER_ID"] for one in words] == ["0", "1", "0", "1"]
    assert [one["TPU_WORKER_HOSTNAMES"] for one in words] == ["h0,h1", "h0,h1", "h2,h3", "h2,h3"]
    assert [one["MEGASCALE_SLICE_ID"] for one in words] == ["0", "0", "1", "1"]
    assert {one["MEGASCALE_NUM_SLICES"] for one in words} == {"2"}
    ports = environment.gang_ports(gang)
    assert {one["MEGASCALE_COORDINATOR_ADDRESS"] for one in words} == {f"h0:{ports[1]}"}
    assert {one["MEGASCALE_PORT"] for one in words} == {str(ports[1])}
    assert {one["JAX_COORDINATOR_ADDRESS"] for one in words} == {f"h0:{ports[0]}"}
    assert len(set(ports)) == 2
    assert set(ports) <= set(environment.COORDINATOR_PORTS)


@pytest.mark.parametrize(("device", "slots"), [(None, 1), (Device("gpu", "H100", 8), 8)])
def test_a_host_file_has_a_slot_for_each_accelerator_of_each_member(
    device: Device | None, slots: int
):
    lines = environment.host_lines(Gang(7, ("h0", "h1")), ResourceRequest(device=device))
    assert lines == f"h0 slots={slots}\nh1 slots={slots}\n"


def test_neighbouring_jobs_have_different_coordinator_ports():
    ports = [environment.coordinator_port(Gang(job, ())) for job in range(1, 1000)]
    assert len(set(ports)) == len(ports)
    assert set(ports) <= set(environment.COORDINATOR_PORTS)


def test_each_attempt_of_a_gang_has_another_coordinator_port():
    ports = [environment.coordinator_port(Gang(7, (), attempt)) for attempt in range(100)]
    assert len(set(ports)) == len(ports)


def test_a_coordinator_port_is_none_that_ray_or_linux_gives_to_others():
    rays_workers, ephemeral = range(10_002, 20_000), range(32_768, 61_000)
    assert not set(environment.COORDINATOR_PORTS) & {*rays_workers, *ephemeral}


def test_a_task_of_an_array_has_its_value():
    array = structs.replace(template(), array="0-15:4,20", each_line="")
    assert environment.values(array, 4, "") == {"IRIS_ARRAY_INDEX": "20"}
    assert environment.values(structs.replace(template(), each_line="lines"), 4, "a b") == {
        "IRIS_ARRAY_VALUE": "a b"
    }
    assert environment.values(template(), 4, "") == {}
