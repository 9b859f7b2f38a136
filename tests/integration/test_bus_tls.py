"""The bus over TLS: small and large messages; a server without a trusted certificate is refused."""

import pytest

from iris_bus.connection.connection import Credentials
from iris_bus.contract import Unavailable
from iris_bus.jetstream import connect
from tests.support.certificates import make_certificate
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
