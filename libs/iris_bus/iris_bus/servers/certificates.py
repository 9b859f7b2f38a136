"""When the certificates of NATS servers expire, of those too that no client accepts any more.

A server shows its certificate before it knows who asks, so that no key is needed. Out of scope: a
server with ``handshake_first``, which tells nothing before TLS.
Source: the NATS client protocol (``INFO``, ``tls_required``).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

_ANSWER_S = 3.0
_PORT = 4222


class _Info(msgspec.Struct):
    tls_required: bool = False
    tls_available: bool = False


async def expiries_s(urls: Sequence[str]) -> dict[str, float]:
    """When the certificate of each server with TLS expires (Unix, s), by its address. Servers that
    do not answer are left out.
    """
    found: dict[str, float] = {}

    async def look(address: str, host: str, port: int) -> None:
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
            async with asyncio.timeout(_ANSWER_S):
                if expires_s := await _expiry_s(host, port):
                    found[address] = expires_s

    async with asyncio.TaskGroup() as group:
        for url in urls:
            parts = urlsplit(url if "//" in url else f"//{url}")
            if parts.hostname:
                port = parts.port or _PORT
                group.create_task(look(f"{parts.hostname}:{port}", parts.hostname, port))
    return dict(sorted(found.items()))


async def _expiry_s(host: str, port: int) -> float:
    """0 without TLS. Raises OSError, TimeoutError among them, and ValueError."""
    from cryptography import x509  # large, and needed by few

    reader, writer = await asyncio.open_connection(host, port)
    try:
        said = (await reader.readline()).removeprefix(b"INFO ")
        info = msgspec.json.decode(said, type=_Info)
        if not (info.tls_required or info.tls_available):
            return 0.0
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # an expired one is what is looked for
        await writer.start_tls(context)
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(shown).not_valid_after_utc.timestamp()
    finally:
        writer.transport.abort()
