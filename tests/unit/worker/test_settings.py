"""Settings of a worker: attributes, capacity and their defaults."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from iris_core.spec.resources import Amount
from iris_worker.host import host
from iris_worker.host.devices import Accelerators
from iris_worker.settings import BadAttribute, WorkerSettings, read_attributes


def test_attributes_are_numbers_where_they_look_like_one():
    given = (
        "tpu-name=slice-0",
        "TPU-Worker-Id=3",
        "load=0.5",
        "zone=eu-1",
        "version=007",
        "odd=a=b",
        "empty=",
    )
    assert read_attributes(given) == {
        "tpu-name": "slice-0",
        "tpu-worker-id": 3,
        "load": 0.5,
        "zone": "eu-1",
        "version": "007",
        "odd": "a=b",
        "empty": "",
    }


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e999", "1_000", "+1", " ", "0x10"])
def test_what_only_python_calls_a_number_stays_text(text: str):
    assert read_attributes((f"key={text}",)) == {"key": text.strip()}


@pytest.mark.parametrize("text", ["zone", "=x", " =x"])
def test_what_is_no_attribute_is_refused(text: str):
    with pytest.raises(BadAttribute):
        read_attributes((text,))


def test_what_a_simulated_host_says_outweighs_what_is_found(tmp_path: Path):
    settings = WorkerSettings(
        data=str(tmp_path), attributes=("arch=moon",), cpu_millis=1, memory_bytes=2, chips=4
    )
    found = host.total(settings, Accelerators(), "")
    assert found == Amount(1, 2, found.disk_bytes, 4)
    assert host.attributes(settings, Accelerators(), {})["arch"] == "moon"
    assert host.attributes(settings, Accelerators(), {})["os"] == "linux"


def test_a_simulated_host_may_hide_what_it_runs_on(tmp_path: Path):
    settings = WorkerSettings(data=str(tmp_path), attributes=("zone=a",), detect=False)
    assert host.attributes(settings, Accelerators(), {}) == {"zone": "a"}


@pytest.mark.parametrize(
    "url", ["nats://u:p@127.0.0.1:4222", "localhost", "127.0.0.1:4222, nats://elsewhere:4222"]
)
def test_a_gang_reaches_this_host_where_it_reaches_nats(url: str):
    assert host.address(WorkerSettings(), url) == "127.0.0.1"
    assert host.address(WorkerSettings(address="10.0.0.7"), url) == "10.0.0.7"


def test_a_host_that_has_no_way_to_nats_by_ipv4_is_reached_by_its_name():
    assert host.address(WorkerSettings(), "nats://[::1]:4222") == socket.gethostname()


def test_what_this_host_has_is_found(tmp_path: Path):
    found = host.total(WorkerSettings(data=str(tmp_path)), Accelerators(), "")
    assert found.cpu_millis >= 1000
    assert found.memory_bytes > 1 << 28
    assert found.disk_bytes > 1 << 28


def test_free_ports_are_different_and_free():
    found = host.free_ports(("http", "grpc", "debug"), range(20_000, 30_000))
    assert list(found) == ["http", "grpc", "debug"]
    assert len(set(found.values())) == 3


def test_more_attributes_than_can_be_told_are_refused_with_their_size():
    texts = tuple(f"key-{n}={'x' * 100}" for n in range(1000))
    with pytest.raises(
        BadAttribute, match="the attributes are 109893 bytes, at most 32768 are possible"
    ):
        read_attributes(texts)
