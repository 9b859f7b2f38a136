"""Asks the metadata server of a virtual machine what it is, and waits for notices. HTTP is spoken
by hand: one GET. A file may stand for a server.

Out of scope: what the answer means (instance).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from iris_worker.agent.instance import Instance, Notice, notice_of

log = logging.getLogger(__name__)

GOOGLE = "http://169.254.169.254"
"""By number: a look-up of the name might wait."""
_PRODUCT = Path("/sys/class/dmi/id/product_name")
_ANSWER_BYTES = 1 << 20
_START_S = 2.0
"""How long the start of a worker may wait for the answer."""
_CHANGE_S = 60
"""How long one request waits for a change."""
_RETRY_S = 1.0
"""Between requests, should the server not wait, and between looks at a file."""
FILE = "file:"
_PATH = "/computeMetadata/v1/instance/?recursive=true&alt=json"


class NoMetadata(Exception):
    """The metadata server cannot be reached, or is none."""


def server(setting: str) -> str:
    """The address to ask: that of the setting, or for "auto" Google's on a VM of Google. Empty:
    nobody is asked.
    """
    if setting != "auto":
        return setting
    with contextlib.suppress(OSError):
        return GOOGLE if _PRODUCT.read_text().startswith("Google") else ""
    return ""


async def ask(url: str, timeout_s: float = _START_S) -> Instance:
    """What this machine is; nothing when the server does not answer soon."""
    try:
        return (await _get(url, "", timeout_s))[1] if url else {}
    except NoMetadata as error:
        log.warning("the metadata server does not say what this machine is: %s", error)
        return {}


async def notices(url: str) -> AsyncIterator[Notice | None]:
    """Each notice when it is given, and None when it is withdrawn."""
    tag = ""
    last = None
    while True:
        change = f"&wait_for_change=true&timeout_sec={_CHANGE_S}&last_etag={tag}" if tag else ""
        with contextlib.suppress(NoMetadata):
            tag, instance = await _get(url, change, 2.0 * _CHANGE_S)
            if (notice := notice_of(instance)) != last:
                last = notice
                yield notice
        await asyncio.sleep(_RETRY_S)


async def _get(url: str, query: str, timeout_s: float) -> tuple[str, Instance]:
    """The tag of the answer, and the answer. Raises NoMetadata."""
    if url.startswith(FILE):
        return "", _from_file(Path(url.removeprefix(FILE)))
    where = urlsplit(url)
    request = (
        f"GET {_PATH}{query} HTTP/1.0\r\nHost: {where.netloc}\r\nMetadata-Flavor: Google\r\n\r\n"
    )
    answer = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(where.hostname, where.port or 80)
            try:
                writer.write(request.encode())
                while len(answer) < _ANSWER_BYTES and (data := await reader.read(_ANSWER_BYTES)):
                    answer += data
            finally:
                writer.close()
        return _read(bytes(answer))
    except TimeoutError:
        raise NoMetadata("it does not answer") from None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise NoMetadata(str(error)) from error


def _from_file(path: Path) -> Instance:
    """What a file says in place of a server. Raises NoMetadata."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise NoMetadata(str(error)) from error


def _read(answer: bytes) -> tuple[str, Instance]:
    """Raises ValueError."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
    }
    if status.split(" ")[1:2] != ["200"] or headers.get("metadata-flavor") != "Google":
        raise ValueError(f"no metadata server: {status[:80]!r}")
    return headers.get("etag", ""), msgspec.json.decode(body, type=dict[str, Any])
