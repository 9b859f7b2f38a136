"""The provider `tpu` beside a server that keeps to the documents of Cloud TPU's API."""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from iris_bus.connection.keys import Keys
from iris_core import codec
from iris_core.access.roles import login
from iris_core.messages.state_provisioner import (
    FoundSlice,
    OrderedHost,
    ProviderOptions,
    SliceOrder,
)
from iris_core.placement.pools import host_attributes
from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import HostResources
from iris_provisioner.providers import tpu, tpu_api
from iris_provisioner.providers.provider import ListFailed
from iris_provisioner.providers.slot_keys import SlotKeys
from iris_provisioner.providers.tpu import TpuProvider, label_value
from iris_provisioner.providers.tpu_vm import VmSettings
from tests.support.cloud_tpu import PLACE, PROJECT, RPC, ZONE, CloudTpu, Fault, Refused

HOSTS = 4
OPTIONS: ProviderOptions = {
    "project": PROJECT,
    "zone": ZONE,
    "runtime_version": "tpu-ubuntu2204-base",
}
NODE: ProviderOptions = {**OPTIONS, "method": "node"}
SEEDS = [f"SU{'ABCD'[index] * 56}" for index in range(HOSTS)]
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "31.5s"}
POOL = PoolSpec(
    name="v5e",
    provider="tpu",
    max=3,
    hosts=HOSTS,
    resources=HostResources(cpu_millis=1000, chips=4),
    attributes={"device-type": "tpu", "device-variant": "v5litepod-16"},
)


def order(
    call: str = "create",
    *,
    label: int = 7,
    capacity: str = "spot",
    options: ProviderOptions = OPTIONS,
) -> SliceOrder:
    return SliceOrder(
        call,
        "tpu",
        options,
        "v5e",
        "v5e-0",
        label,
        hosts=tuple(
            OrderedHost(f"v5e-0-{index}", host_attributes(POOL, 0, index)) for index in range(HOSTS)
        ),
        attributes=dict(POOL.attributes),
        capacity=capacity,
        boot_timeout_s=1800.0,
    )


@pytest.fixture
async def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CloudTpu]:
    monkeypatch.setattr(tpu_api, "POLL_S", 0.01)
    async with CloudTpu() as made:
        file = made.credentials(tmp_path)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        yield made


@pytest.fixture
async def provider(cloud: CloudTpu, tmp_path: Path) -> AsyncIterator[TpuProvider]:
    made = provider_of(cloud, tmp_path)
    yield made
    await made.close()


def provider_of(cloud: CloudTpu, place: Path, cluster: str = "one") -> TpuProvider:
    keys = place / "keys"
    keys.mkdir(exist_ok=True)
    for index, seed in enumerate(SEEDS):
        Keys(keys).path(login("worker", f"v5e-0-{index}").label).write_text(f"{seed}\n")
    vm = VmSettings(
        "nats://n:4222", "http://g:8080", cluster, tls_ca=str(place / "ca.pem"), version="1.2.3"
    )
    (place / "ca.pem").write_text("CERTIFICATES")
    return TpuProvider(cloud.url, SlotKeys(str(keys)), cluster, vm, timeout_s=5.0)


def refused(code: int, message: str = "no", **details: Any) -> Refused:
    return Refused(code, message, [details] if details else None)


# ── what is asked for ─────────────────────────────────────────────────────────────────────────────


async def test_a_queued_resource_has_the_shape_the_labels_and_an_end(
    cloud: CloudTpu, provider: TpuProvider
) -> None:
    assert (await provider.create(order())).answer == "accepted"
    queued = cloud.queued["v5e-0"]
    [spec] = queued["tpu"]["nodeSpec"]
    assert (spec["parent"], spec["nodeId"]) == (PLACE, "v5e-0")
    assert (queued["spot"], queued["queueingPolicy"]) == ({}, {"validUntilDuration": "1800s"})
    node = {key: value for key, value in spec["node"].items() if key != "metadata"}
    assert node == {
        "acceleratorType": "v5litepod-16",
        "runtimeVersion": "tpu-ubuntu2204-base",
        "networkConfig": {"enableExternalIps": True},
        "schedulingConfig": {"spot": True},
        "labels": {
            "iris-cluster": "one",
            "iris-pool": "v5e",
            "iris-slice": "v5e-0",
            "iris-number": "7",
        },
    }


async def test_reserved_capacity_names_its_reservation_and_passes_options_on(
    cloud: CloudTpu, provider: TpuProvider
) -> None:
    more: ProviderOptions = {
        "network": "net",
        "subnetwork": "sub",
        "external_ips": False,
        "service_account": "a@b.example",
        "reservation": "mine",
    }
    done = await provider.create(order(capacity="reserved", options={**OPTIONS, **more}))
    queued = cloud.queued["v5e-0"]
    node = queued["tpu"]["nodeSpec"][0]["node"]
    assert (done.answer, queued["reservationName"]) == ("accepted", f"{PLACE}/reservations/mine")
    assert (queued["guaranteed"], "spot" in queued) == ({}, False)
    assert node["networkConfig"] == {
        "network": "net",
        "subnetwork": "sub",
        "enableExternalIps": False,
    }
    assert node["serviceAccount"] == {"email": "a@b.example"}
    assert node["schedulingConfig"] == {"reserved": True}


async def test_on_demand_capacity_has_no_tier(cloud: CloudTpu, provider: TpuProvider) -> None:
    await provider.create(order(capacity="on_demand"))
    queued = cloud.queued["v5e-0"]
    assert not {"spot", "guaranteed", "reservationName"} & queued.keys()


async def test_a_node_is_made_directly_where_that_is_asked(
    cloud: CloudTpu, provider: TpuProvider
) -> None:
    assert (await provider.create(order(options=NODE))).answer == "accepted"
    assert (list(cloud.queued), list(cloud.nodes)) == ([], ["v5e-0"])
    assert cloud.nodes["v5e-0"]["schedulingConfig"] == {"spot": True}


async def test_metadata_tells_each_vm_who_it_is_and_how_to_connect(
    cloud: CloudTpu, provider: TpuProvider
) -> None:
    await provider.create(order())
    given = cloud.metadata("v5e-0")
    names = [f"v5e-0-{index}" for index in range(HOSTS)]
    assert given["iris-hosts"].splitlines() == [
        f"{name} {seed}" for name, seed in zip(names, SEEDS, strict=True)
    ]
    config = tomllib.loads(given["iris-config"])
    assert config["nats"] == {"url": "nats://n:4222", "tls_ca": "/etc/iris/nats-ca.pem"}
    assert (config["run"], config["worker"]["gateway_url"]) == ({"cluster": "one"}, "http://g:8080")
    assert config["worker"]["attributes"] == [
        "device-type=tpu",
        "device-variant=v5litepod-16",
        "tpu-name=v5e-0",
        "capacity=on_demand",
    ]
    assert (given["iris-version"], given["iris-nats-ca"]) == ("1.2.3", "CERTIFICATES")
    assert given["startup-script"].startswith("#!/bin/sh\n")
    assert "ExecStart=/opt/iris/bin/iris server worker" in given["iris-unit"]


async def test_a_slice_without_keys_is_a_failed_creation_and_nothing_is_asked(
    cloud: CloudTpu, provider: TpuProvider, tmp_path: Path
) -> None:
    Keys(tmp_path / "keys").path(login("worker", "v5e-0-2").label).unlink()
    answer = await provider.create(order())
    assert (answer.answer, "v5e-0-2 has no key" in answer.detail) == ("failed", True)
    assert cloud.calls == []


async def test_keys_are_in_the_metadata_and_nowhere_else(
    cloud: CloudTpu, provider: TpuProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = refused(3, f"Invalid value at 'metadata': v5e-0-1 {SEEDS[1]}")
    cloud.faults.append(Fault("POST", "queuedResources", echo))
    told = [await provider.create(order())]
    told += [await provider.create(order())]
    cloud.advance()
    listed = await provider.listed(OPTIONS)
    told += [await provider.delete(order("delete"))]
    said = f"{told} {listed} {caplog.text}"
    assert [seed for seed in SEEDS if seed in said] == []
    labels = cloud.queued["v5e-0"]["tpu"]["nodeSpec"][0]["node"]["labels"]
    assert [seed for seed in SEEDS if seed in json.dumps(labels)] == []
    assert told[0].detail == "INVALID_ARGUMENT: Invalid value at 'metadata': v5e-0-1 (a key)"


# ── answers to a creation ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("options", [OPTIONS, NODE], ids=["queued", "node"])
@pytest.mark.parametrize(
    ("error", "answer", "retry_after_s"),
    [
        (refused(8, "There is no more capacity"), "exhausted", 0.0),
        (refused(8, "quota", **RETRY_INFO), "exhausted", 31.5),
        (refused(7, "rate", reason="RATE_LIMIT_EXCEEDED"), "exhausted", 0.0),
        (refused(7, "caller does not have permission"), "refused", 0.0),
        (refused(3, "unknown runtime version"), "refused", 0.0),
        (refused(5, "no such zone"), "refused", 0.0),
        (refused(9, "the API is not enabled"), "refused", 0.0),
        (refused(10, "another operation"), "failed", 0.0),
        (refused(13, "internal"), "failed", 0.0),
        (refused(14, "try again"), "failed", 0.0),
    ],
)  # fmt: skip
async def test_an_error_is_an_answer_at_once_or_with_the_operation(
    cloud: CloudTpu,
    provider: TpuProvider,
    options: ProviderOptions,
    error: Refused,
    answer: str,
    retry_after_s: float,
) -> None:
    cloud.faults.append(Fault("POST", "/v2/", error))
    at_once = await provider.create(order(options=options))
    cloud.polls = 2
    cloud.failing.append(error)
    later = await provider.create(order(options=options))
    for told in (at_once, later):
        assert (told.answer, told.retry_after_s) == (answer, retry_after_s)
        assert str(error) in told.detail


@pytest.mark.parametrize("wait", ["17", "172800"])
async def test_too_many_requests_say_how_long_to_wait(
    cloud: CloudTpu, provider: TpuProvider, wait: str
) -> None:
    cloud.faults.append(Fault("POST", "/v2/", refused(8), headers={"Retry-After": wait}))
    told = await provider.create(order())
    assert (told.answer, told.retry_after_s) == ("exhausted", float(wait))


@pytest.mark.parametrize("options", [OPTIONS, NODE], ids=["queued", "node"])
async def test_an_answer_that_was_lost_is_no_second_slice(
    cloud: CloudTpu, provider: TpuProvider, options: ProviderOptions
) -> None:
    cloud.faults.append(Fault("POST", "/v2/", takes_effect=True))
    assert (await provider.create(order(options=options))).answer == "failed"
    assert (await provider.create(order(options=options))).answer == "accepted"
    assert [one.label for one in await provider.listed(options)] == [7]


@pytest.mark.parametrize("options", [OPTIONS, NODE], ids=["queued", "node"])
async def test_a_name_that_is_taken_is_told_by_its_number_and_its_cluster(
    cloud: CloudTpu, provider: TpuProvider, tmp_path: Path, options: ProviderOptions
) -> None:
    await provider.create(order(options=options))
    other = await provider.create(order(options=options, label=8))
    assert (other.answer, other.detail) == ("failed", "v5e-0 is there with number 7")
    stranger = provider_of(cloud, tmp_path, "two")
    told = await stranger.create(order(options=options))
    assert (told.answer, "not of this cluster" in told.detail) == ("refused", True)
    await stranger.delete(order("delete", options=options))
    assert [one.name for one in await provider.listed(options)] == ["v5e-0"]
    assert await stranger.listed(options) == ()
    await stranger.close()
    await provider.delete(order("delete", options=options))
    again = await provider.create(order(options=options, label=9))
    assert again.answer == "failed"
    cloud.advance()
    assert (await provider.create(order(options=options, label=9))).answer == "accepted"


@pytest.mark.parametrize(
    ("code", "answer"), [(8, "exhausted"), (7, "refused"), (13, "failed"), (None, "failed")]
)
async def test_a_repeated_creation_of_what_has_failed_tells_why(
    cloud: CloudTpu, provider: TpuProvider, code: int | None, answer: str
) -> None:
    await provider.create(order())
    state: dict[str, Any] = {"state": "FAILED"}
    if code is not None:
        state["failedData"] = {"error": {"code": code, "message": "because"}}
    cloud.queued["v5e-0"]["state"] = state
    told = await provider.create(order())
    assert told.answer == answer
    assert ("because" in told.detail) == (code is not None)


# ── deletion ──────────────────────────────────────────────────────────────────────────────────────

STATES = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "FAILED", "SUSPENDING",
          "SUSPENDED", "ACTIVE", "DELETING")  # fmt: skip


@pytest.mark.parametrize("state", STATES)
async def test_a_queued_resource_is_deleted_in_each_state(
    cloud: CloudTpu, provider: TpuProvider, state: str
) -> None:
    await provider.create(order())
    cloud.queued["v5e-0"]["state"] = {"state": state}
    assert (await provider.delete(order("delete", label=6))).answer == "accepted"
    assert cloud.queued["v5e-0"]["state"]["state"] == state
    assert (await provider.delete(order("delete"))).answer == "accepted"
    assert cloud.queued["v5e-0"]["state"]["state"] == "DELETING"
    cloud.advance()
    assert (await provider.delete(order("delete"))).answer == "accepted"
    assert (await provider.create(order(label=8))).answer == "accepted"


async def test_a_node_is_deleted_whatever_way_its_pool_makes_slices(
    cloud: CloudTpu, provider: TpuProvider
) -> None:
    await provider.create(order(options=NODE))
    assert (await provider.delete(order("delete"))).answer == "accepted"
    cloud.advance()
    assert cloud.nodes == {}


@pytest.mark.parametrize(
    ("code", "answer"),
    [(5, "accepted"), (7, "failed"), (8, "failed"), (9, "failed"), (10, "failed"), (13, "failed")],
)
async def test_a_deletion_that_comes_to_nothing_says_so(
    cloud: CloudTpu, provider: TpuProvider, code: int, answer: str
) -> None:
    await provider.create(order())
    cloud.faults.append(Fault("DELETE", "queuedResources", refused(code)))
    assert (await provider.delete(order("delete"))).answer == answer
    cloud.failing.append(refused(code))
    assert (await provider.delete(order("delete"))).answer == answer


async def test_a_deletion_whose_answer_was_lost_is_repeated(
    cloud: CloudTpu, provider: TpuProvider
) -> None:
    await provider.create(order())
    cloud.faults.append(Fault("DELETE", "queuedResources", takes_effect=True))
    assert (await provider.delete(order("delete"))).answer == "failed"
    assert (await provider.delete(order("delete"))).answer == "accepted"


# ── lists ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ({"state": "CREATING"}, "creating"),
        ({"state": "ACCEPTED"}, "creating"),
        ({"state": "WAITING_FOR_RESOURCES"}, "creating"),
        ({"state": "PROVISIONING"}, "creating"),
        ({"state": "ACTIVE"}, "running"),
        ({"state": "FAILED", "failedData": {"error": {"code": 8, "message": "late"}}}, "failed"),
        ({"state": "SUSPENDING", "stateInitiator": "SERVICE"}, "preempted"),
        ({"state": "SUSPENDED"}, "preempted"),
        ({"state": "SUSPENDED", "stateInitiator": "USER"}, "failed"),
        ({"state": "DELETING"}, "deleting"),
        ({"state": "SOMETHING_NEW"}, "running"),
    ],
)
async def test_a_list_has_each_state_of_a_queued_resource(
    cloud: CloudTpu, provider: TpuProvider, state: dict[str, Any], status: str
) -> None:
    await provider.create(order())
    cloud.queued["v5e-0"]["state"] = state
    [found] = await provider.listed(OPTIONS)
    assert (found.name, found.label, found.status) == ("v5e-0", 7, status)
    assert state["state"] in found.detail or "late" in found.detail


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("CREATING", "creating"),
        ("READY", "running"),
        ("REPAIRING", "running"),
        ("RESTARTING", "running"),
        ("PREEMPTED", "preempted"),
        ("TERMINATED", "preempted"),
        ("STOPPED", "failed"),
        ("UNKNOWN", "failed"),
        ("DELETING", "deleting"),
    ],
)
async def test_a_list_has_states_of_nodes_below_an_active_queued_resource(
    cloud: CloudTpu, provider: TpuProvider, state: str, status: str
) -> None:
    await provider.create(order(options=NODE))
    cloud.nodes["v5e-0"]["state"] = state
    assert [one.status for one in await provider.listed(NODE)] == [status]
    await provider.create(order())
    cloud.queued["v5e-0"]["state"] = {"state": "ACTIVE"}
    assert [one.status for one in await provider.listed(OPTIONS)] == [status]


async def test_all_pages_of_a_list_are_read_and_strangers_are_left_out(
    cloud: CloudTpu, provider: TpuProvider
) -> None:
    await provider.create(order())
    mine = cloud.queued["v5e-0"]
    for number in range(1, 8):
        copy = codec.from_json(codec.to_json(mine), dict)
        copy["tpu"]["nodeSpec"][0]["node"]["labels"]["iris-number"] = str(number)
        cloud.queued[f"v5e-{number}"] = {**copy, "name": f"{PLACE}/queuedResources/v5e-{number}"}
    labels = {"iris-cluster": "one", "iris-number": "x"}
    cloud.nodes["odd"] = {"name": f"{PLACE}/nodes/odd", "state": "READY", "labels": labels}
    cloud.nodes["bare"] = {"name": f"{PLACE}/nodes/bare", "state": "READY"}
    found = await provider.listed(OPTIONS)
    assert sorted(one.name for one in found) == [f"v5e-{number}" for number in range(8)]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GET", "queuedResources", refused(7, "no permission")),
        Fault("GET", "nodes", refused(14, "unavailable")),
        Fault("GET", "nodes", refused(8, "too many")),
        Fault("GET", "queuedResources"),
        Fault("GET", "queuedResources", body=b"<html>"),
        Fault("GET", "nodes", body=b'{"unreachable": ["locations/x"]}'),
        Fault("GET", "nodes", body=b'{"nodes": 7}'),
    ],
    ids=["403", "503", "429", "lost", "no JSON", "unreachable", "odd"],
)
async def test_half_a_list_is_none(cloud: CloudTpu, provider: TpuProvider, fault: Fault) -> None:
    await provider.create(order())
    cloud.faults.append(fault)
    with pytest.raises(ListFailed):
        await provider.listed(OPTIONS)
    assert [one.name for one in await provider.listed(OPTIONS)] == ["v5e-0"]


async def test_a_creation_that_fails_after_it_was_accepted_is_listed_as_failed(
    cloud: CloudTpu, provider: TpuProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tpu, "SETTLE_S", 0.1)
    cloud.polls, cloud.capacity = 1000, 0
    assert (await provider.create(order(options=NODE))).answer == "accepted"
    assert await provider.listed(NODE) == ()
    [name] = cloud.operations
    cloud.operations[name][0] = 0
    [found] = await provider.listed(NODE)
    assert found == FoundSlice("v5e-0", 7, status="failed", detail=found.detail)
    assert "no more capacity" in found.detail
    assert (await provider.delete(order("delete", options=NODE))).answer == "accepted"
    assert await provider.listed(NODE) == ()


# ── credentials ───────────────────────────────────────────────────────────────────────────────────


async def test_a_token_that_has_ended_is_replaced(cloud: CloudTpu, provider: TpuProvider) -> None:
    await provider.listed(OPTIONS)
    cloud.tokens.clear()
    assert (await provider.create(order())).answer == "accepted"
    assert cloud.given == 2


async def test_refused_credentials_refuse_the_order(cloud: CloudTpu, provider: TpuProvider) -> None:
    cloud.accepts = False
    told = await provider.create(order())
    assert (told.answer, "credentials are refused: " in told.detail) == ("refused", True)
    assert (await provider.delete(order("delete"))).answer == "failed"
    with pytest.raises(ListFailed, match="credentials are refused"):
        await provider.listed(OPTIONS)
    cloud.accepts = True
    assert (await provider.create(order())).answer == "accepted"


async def test_credentials_that_are_not_there_refuse_the_order(
    provider: TpuProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/account.json")
    told = await provider.create(order())
    assert (told.answer, "/nowhere/account.json" in told.detail) == ("refused", True)


@pytest.mark.parametrize(
    ("text", "value"),
    [("one", "one"), ("My.Cluster", "my-cluster-"), ("a" * 80, "a" * 54 + "-")],
)
def test_a_label_has_the_letters_that_labels_have(text: str, value: str) -> None:
    made = label_value(text)
    assert made.startswith(value)
    assert len(made) <= 63
    assert label_value("my-cluster") != label_value("My.Cluster") != label_value("my.cluster")


def test_each_code_that_the_server_answers_is_known() -> None:
    assert {code: tpu_api.RPC[code] for code in RPC} == RPC
