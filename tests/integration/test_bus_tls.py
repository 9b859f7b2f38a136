"""The bus over TLS: small and large messages; a server without a trusted certificate is refused."""

import asyncio
from pathlib import Path

import pytest

from iris_bus.connection.connection import Credentials
from iris_bus.contract import Unavailable
from iris_bus.jetstream import connect
from iris_service.certificate import Certificate
from iris_service.settings import BadSetting
from tests.support.certificates import make_certificate
from tests.support.damage import admin
from tests.support.nats_config import configured_nats

pytestmark = pytest.mark.integration


@pytest.fixture
def certificate(tmp_path):
    """A certificate for loopback that vouches for itself, and its key."""
    return make_certificate(tmp_path)


@pytest.fixture
async def url(tmp_path, certificate):
    """A server that speaks TLS only."""
    cert, key = certificate
    async with configured_nats(
        tmp_path / "nats", f'tls {{ cert_file: "{cert}", key_file: "{key}" }}\n'
    ) as server:
        yield server.url.replace("nats://", "tls://")


async def test_messages_of_any_size_pass_both_ways(url, certificate):
    connection = await connect(
        url, name="test", credentials=Credentials(tls_ca=str(certificate[0])), retry_for_s=60
    )
    try:
        seen = []
        await connection.bus.subscribe("iris.a", lambda message: seen.append(len(message.data)))
        await connection.bus.subscribe(
            "iris.ask", lambda asked: connection.bus.publish(asked.reply, asked.data * 2)
        )
        for size in range(0, 400_000, 20_000):
            connection.bus.publish("iris.a", b"x" * size)
        answer = await connection.bus.request("iris.ask", b"y" * 500_000, timeout=30)
        assert (seen, len(answer.data)) == (list(range(0, 400_000, 20_000)), 1_000_000)
    finally:
        await connection.close()


async def test_a_server_nobody_vouches_for_is_refused(url, certificate):
    with pytest.raises(Unavailable, match=r"(?i)certificate"):
        await connect(url, name="test", credentials=Credentials(tls_ca="/dev/null"), retry_for_s=60)


async def test_a_certificate_that_nobody_vouches_for_is_said_before_a_retry(url):
    words = "the certificate of the server is not accepted: .*; \\[nats\\] tls_ca names the file"
    with pytest.raises(Unavailable, match=words):
        await asyncio.wait_for(
            connect(url, name="test", credentials=Credentials(), retry_for_s=3600), timeout=60
        )


async def test_a_server_that_is_trusted_is_found_behind_one_that_is_not(
    tmp_path: Path, url: str, certificate: tuple[Path, Path]
):
    (tmp_path / "other").mkdir()
    cert, key = make_certificate(tmp_path / "other")
    lines = f'tls {{ cert_file: "{cert}", key_file: "{key}" }}\n'
    async with configured_nats(tmp_path / "nats-2", lines) as other:
        servers = f"{other.url.replace('nats://', 'tls://')},{url}"
        for _ in range(4):  # which one is tried first is chosen at random
            connection = await connect(
                servers,
                name="test",
                credentials=Credentials(tls_ca=str(certificate[0])),
                retry_for_s=60,
            )
            assert connection.connected
            await connection.close()


async def test_a_backup_says_what_is_wrong_with_the_certificate(tmp_path: Path, url: str):
    ended = await asyncio.to_thread(admin, "backup", tmp_path / "backup", url=url)
    assert (ended.code, "certificate of the server is not accepted" in ended.err) == (1, True)


@pytest.mark.parametrize("damaged", ["tls_ca", "tls_cert", "tls_key"])
def test_a_damaged_file_of_tls_is_refused_by_its_name(
    tmp_path: Path, certificate: tuple[Path, Path], damaged: str
):
    cert, key = certificate
    files = {"tls_ca": cert, "tls_cert": cert, "tls_key": key}
    torn = tmp_path / "torn.pem"
    torn.write_bytes(files[damaged].read_bytes()[:60])
    given = {name: str(path) for name, path in files.items()} | {damaged: str(torn)}
    with pytest.raises(ValueError, match=f"{torn} .*cannot be used: .*; put back a copy"):
        Credentials(**given).context()
    if damaged != "tls_ca":
        with pytest.raises(BadSetting, match=f"{torn} .*cannot be used: .*; put back a copy"):
            Certificate("gateway", given["tls_cert"], given["tls_key"])
