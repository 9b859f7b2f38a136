"""What a virtual machine's metadata says, and how it is asked."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from iris_worker.agent.instance import Notice, attributes_of, notice_of
from iris_worker.host import metadata
from tests.support.metadata import PREEMPTED, QUIET, TPU_VM, MetadataServer

SLICE = {
    "device-type": "tpu",
    "device-variant": "v5litepod-16",
    "tpu-topology": "v5litepod-16",
    "tpu-vm-count": 4,
    "tpu-name": "train-0",
    "tpu-worker-id": 2,
}
UNNAMED = {
    "device-type": "tpu",
    "device-variant": "v4-8",
    "tpu-topology": "v4-8",
    "tpu-vm-count": 1,
}
NEWER = {"device-type": "tpu", "device-variant": "v99-8", "tpu-topology": "v99-8"}
ENVIRON = {"TPU_ACCELERATOR_TYPE": "v5litepod-16", "TPU_WORKER_ID": "2", "TPU_NAME": "train-0"}


@pytest.mark.parametrize(
    ("instance", "environ", "attributes"),
    [
        (TPU_VM, {}, {"zone": "us-central2-b", "spot": "true", **SLICE}),
        ({}, ENVIRON, SLICE),
        (
            {"zone": "projects/1/zones/eu-1", "scheduling": {"preemptible": "FALSE"}},
            {},
            {"zone": "eu-1"},
        ),
        ({"attributes": {"accelerator-type": "v99-8"}}, {}, NEWER),
        ({"attributes": {"accelerator-type": "v4-8"}}, {}, UNNAMED),
        ({"attributes": "none", "scheduling": None}, {}, {}),
        ({}, {}, {}),
    ],
)
def test_a_machine_has_the_attributes_of_its_metadata_or_environment(
    instance: dict[str, Any], environ: dict[str, str], attributes: dict[str, Any]
):
    assert attributes_of(instance, environ) == attributes


@pytest.mark.parametrize(
    ("says", "within_s"),
    [
        (PREEMPTED, 30.0),
        ({**PREEMPTED, "attributes": {"iris-notice-s": "4.5"}}, 4.5),
        ({**PREEMPTED, "attributes": {"iris-notice-s": "nan"}}, 30.0),
        ({"attributes": {"iris-notice-s": "4.5"}}, None),
        ({"maintenanceEvent": "TERMINATE_ON_HOST_MAINTENANCE"}, 60.0),
        ({"maintenanceEvent": "MIGRATE_ON_HOST_MAINTENANCE"}, None),
        (QUIET, None),
        ({}, None),
    ],
)
def test_a_notice_says_how_long_the_machine_has(says: dict[str, str], within_s: float | None):
    notice = notice_of(says)
    assert (notice.within_s if notice is not None else None) == within_s


async def test_a_notice_is_told_when_it_is_given_and_when_it_is_withdrawn():
    async with MetadataServer(TPU_VM) as server:
        told = metadata.notices(server.url)
        first = asyncio.ensure_future(anext(told))
        server.say(PREEMPTED)
        given = await asyncio.wait_for(first, 60)
        server.say(QUIET)
        withdrawn = await asyncio.wait_for(anext(told), 60)
        await told.aclose()
    assert (given, withdrawn) == (Notice("this VM is being preempted", 30.0), None)


async def test_a_machine_is_asked_what_it_is():
    async with MetadataServer(TPU_VM) as server:
        assert attributes_of(await metadata.ask(server.url), {})["tpu-name"] == "train-0"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.0 200 OK\r\n\r\n{}",  # it is no metadata server
        b"HTTP/1.0 404 Not Found\r\nMetadata-Flavor: Google\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nMetadata-Flavor: Google\r\n\r\n<html>",
        b"HTTP/1.0 200 OK\r\nMetadata-Flavor: Google\r\n\r\n[]",
    ],
)
async def test_another_server_is_not_believed(answer: bytes):
    def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await metadata.ask(f"http://127.0.0.1:{port}") == {}
    assert await metadata.ask(f"http://127.0.0.1:{port}") == {}


async def test_a_silent_server_delays_the_start_no_longer_than_it_may():
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked = metadata.ask(f"http://127.0.0.1:{server.getsockname()[1]}", 0.01)
        assert await asyncio.wait_for(asked, 60) == {}


async def test_without_a_server_nobody_is_asked():
    assert await metadata.ask("") == {}
    assert metadata.server("http://10.0.0.1") == "http://10.0.0.1"


async def test_a_file_tells_notices_in_the_place_of_a_server(tmp_path: Path):
    path = tmp_path / "metadata.json"
    url = metadata.server(f"file:{path}")
    assert await metadata.ask(url) == {}
    path.write_text('{"zone": "projects/1/zones/eu-1"}')
    assert await metadata.ask(url) == {"zone": "projects/1/zones/eu-1"}
    told = metadata.notices(url)
    first = asyncio.ensure_future(anext(told))
    path.write_text("[]")  # what cannot be read says nothing
    path.write_text('{"preempted": "TRUE", "attributes": {"iris-notice-s": "9"}}')
    assert await asyncio.wait_for(first, 60) == Notice("this VM is being preempted", 9.0)
    await told.aclose()
