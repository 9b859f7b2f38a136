"""A worker that finds a launcher of another version goes on with it, or refuses it in words."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from iris_core import codec
from iris_worker.launcher.cgroups.files import CgroupSupport
from iris_worker.launcher.client import LauncherClient, LauncherGone
from iris_worker.launcher.records.frames import with_length
from iris_worker.launcher.records.records import NEEDED, SOCKET, VERSION, Ready

LATER = ["a field of a later version", {"and": "another"}]


@contextlib.asynccontextmanager
async def launcher_that_says(root: Path, *answers: bytes):
    """Listens where a launcher does, and sends these answers to whoever connects."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(answers))
        await reader.read()  # until the worker closes the connection
        writer.close()
        served.set()

    served = asyncio.Event()

    directory = os.open(root, os.O_PATH)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"/proc/self/fd/{directory}/{SOCKET}")  # a path of any length
    os.close(directory)
    async with await asyncio.start_unix_server(answer, sock=listener):
        yield
        await served.wait()


def client(root: Path) -> LauncherClient:
    return LauncherClient(root, on_answers=lambda _: None, on_gone=lambda _: None)


def ready(version: int, *more: Any) -> bytes:
    fields = codec.unpack(codec.pack(Ready(CgroupSupport(), version)), list[Any])
    return with_length(codec.pack([*fields, *more]))


async def test_a_launcher_that_understands_too_little_is_refused(tmp_path: Path):
    found = client(tmp_path)
    async with launcher_that_says(tmp_path, ready(NEEDED - 1)):
        with pytest.raises(LauncherGone, match="of an older version; end its tasks"):
            await found.connect()
        found.close()


async def test_a_launcher_of_a_later_version_is_understood(tmp_path: Path):
    found = client(tmp_path)
    async with launcher_that_says(tmp_path, ready(VERSION + 1, *LATER)):
        assert await found.connect() == {}
        assert (found.version, found.outlived) == (VERSION + 1, True)
        found.close()
