"""Reads a cluster's stored data from outside its services: from every NATS server, or from the
files of a stopped one.

Out of scope: evaluating it (`examine`), and changing it (`repair`).
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle, islice
from pathlib import Path

from iris_bus.contract import NoResponders, Unavailable
from iris_bus.jetstream import JetStreamConnection, connect
from iris_core import subjects
from iris_nats.blocks import Files
from iris_nats.nats_process import NatsProcess, journal_of, streams_of
from iris_service.directories import make_directory
from iris_service.process_settings import NatsSettings

_PING_S = 1.0
_AT_ONCE = 256
_ASKED_TIMES = 30
"""How often an entry is requested: any server may answer, and the answer does not name it. With
three servers, 30 answers miss one of them in 5 of a million cases: (2/3)^30.
"""


class Stored:
    """Connections to every given server, and what was read from files before a server was started
    on them.

    Attributes:
        connection: the one for data that all servers share.
        on_disk, missing: the journal's messages in the files of a stopped server, and the ranges
            that lack there.
        lacking: journal entries that one server cannot read and another can.
    """

    def __init__(self, connections: Sequence[JetStreamConnection], files: Files) -> None:
        self._connections = connections
        self.connection = connections[0]
        self.on_disk, self.missing = files
        self.lacking: list[int] = []

    async def journal(self, after: int, end: int) -> dict[int, bytes]:
        """Every journal message after ``after`` that any server can read, by ascending sequence."""
        raw = self.connection.raw(subjects.JOURNAL.name)
        found = {
            sequence: record.data
            for sequence, record in self.on_disk.items()
            if after < sequence <= end
        }
        async for message in raw.readable(after, end):
            found[message.sequence] = message.data
        if len(self._connections) > 1:
            await self._compare_copies(after, end, found)
        return dict(sorted(found.items()))

    async def _compare_copies(self, after: int, end: int, found: dict[int, bytes]) -> None:
        """Request each entry so often that every server answers: an entry that any server has is
        found, and missing copies are recorded.
        """
        raws = [connection.raw(subjects.JOURNAL.name) for connection in self._connections]
        lacking: set[int] = set()
        for at in range(after, end, _AT_ONCE):
            sequences = range(at + 1, min(at + _AT_ONCE, end) + 1)
            for raw in islice(cycle(raws), _ASKED_TIMES):
                for sequence, copy in zip(
                    sequences, await asyncio.gather(*map(raw.copy, sequences)), strict=True
                ):
                    if copy is None:
                        lacking.add(sequence)
                    else:
                        found.setdefault(sequence, copy.data)
        self.lacking = sorted(lacking & found.keys())

    async def is_led(self) -> bool:
        """Whether a state service leads now. Raises Unavailable when that cannot be determined."""
        try:
            await self.connection.bus.request(subjects.STATE_PING, b"", timeout=_PING_S)
        except NoResponders:
            return False
        return True


@asynccontextmanager
async def on_servers(settings: NatsSettings) -> AsyncIterator[Stored]:
    """The stored data of the servers in ``settings.url``. Raises Unavailable when none answers."""
    made: list[JetStreamConnection] = []
    why = ""
    try:
        for url in settings.url.split(","):
            try:
                made.append(
                    await connect(
                        url.strip(),
                        name="admin",
                        credentials=settings.credentials(),
                        replicas=settings.replicas,
                        table=settings.streams(),
                        retry_for_s=settings.retry_for_s,
                    )
                )
            except Unavailable as error:
                why = str(error)
        if not made:
            raise Unavailable(f"no server of {_without_password(settings.url)} answers: {why}")
        yield Stored(made, Files({}, []))
    finally:
        for connection in made:
            await connection.close()


@asynccontextmanager
async def in_files(directory: Path, settings: NatsSettings) -> AsyncIterator[Stored]:
    """The stored data of a stopped server's directory; a server runs on it during the block.

    Raises Occupied, StartFailed, NoServer.
    """
    files = await asyncio.to_thread(journal_of, directory)
    make_directory(directory.parent, passed=True)
    server = NatsProcess(directory, program=settings.server, guarded=False)
    await asyncio.to_thread(server.start)
    try:
        credentials = server.credentials("admin")
        table = settings.streams()
        connection = await connect(server.url, name="admin", credentials=credentials, table=table)
        try:
            await connection.streams.ensure()
            yield Stored([connection], files)
        finally:
            await connection.close()
    finally:
        await asyncio.to_thread(server.stop)


def set_aside(directory: Path, target: Path) -> None:
    """Copy the files that a repair replaces."""
    make_directory(target)
    for name in (subjects.JOURNAL.name, f"OBJ_{subjects.SNAPSHOTS_BUCKET}"):
        if (streams_of(directory) / name).exists():
            shutil.copytree(streams_of(directory) / name, target / name)


def copy_of(directory: Path, target: Path) -> None:
    """Copy a stopped server's store without the output of tasks, so that a server may run on the
    copy.
    """
    printed = str(streams_of(directory) / subjects.LOGS.name)
    shutil.copytree(
        directory / "store",
        target / "store",
        ignore=lambda at, names: [n for n in names if f"{at}/{n}" == printed],
    )


def _without_password(url: str) -> str:
    return ",".join(part.rpartition("@")[2] for part in url.split(","))
