"""Stores the output directories of attempts that have ended. Part of the shell: it waits for the
disk and the stream.

One piece after the other is packed by a thread and stored, so a worker holds one piece of each
upload; what is small is packed at once, which takes less than a thread's turn. An upload that
breaks off is begun again under another name until its time is over; what it has left is deleted
with the oldest of the stream. Out of scope: what is packed (directory), and the end of the attempt
    (executor).
Source: docs/adr/0048-artifacts-are-a-stream.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from iris_bus.contract import Full, Streams, Unavailable
from iris_core import subjects
from iris_core.limits import clipped
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Artifact
from iris_service.fair_turns import FairTurns
from iris_service.run import shared
from iris_worker.attempt.artifacts.directory import PIECE_BYTES, NotStored, OutputDirectory
from iris_worker.limits import ArtifactLimits

log = logging.getLogger(__name__)

OWN_FIRST = (
    "its output directory waits to be stored: as many of the same user as may be at a time are being stored "
    "on this host"
)
OTHERS_FIRST = "its output directory waits to be stored: as many as may be at a time are being stored on this host"
STOPPED = "its task was stopped before it was stored"
_RETRY_S = 1.0
_ANSWER_S = 10.0
_SMALL = ArtifactLimits(64 << 10, 16)
_SMALL_AT_ONCE = 16
"""For each larger one: together they hold as much memory."""

T = TypeVar("T")


@dataclass(slots=True)
class ArtifactUpload:
    """An output directory to store.

    Attributes:
        user: who has submitted its job. until_s: when to stop trying. timeout: ends it then, once it
            has begun.
        on_measured: called with the bytes of its files, which are ``measured``, when storing them
            takes a while: when they are several pieces, or cannot be stored now.
        on_waits: called when it has to wait for others, with the words for its owner. on_end:
            called once, with what has become of it.
        late: what is said when it was not stored by then.
    """

    ref: AttemptRef
    workdir: str
    output: str
    user: str
    until_s: float
    on_measured: Callable[[int], None]
    on_waits: Callable[[str], object]
    on_end: Callable[[Artifact], None]
    late: str
    measured: int = 0
    timeout: asyncio.Timeout | None = None


class Uploader:
    """Stores output directories, some at a time.

    Args:
        worker: its id. timeout_s: for one directory, from the end of its process, with all waiting.
        at_once: pieces that are packed and stored at a time, half of them of one user.
        spawn: runs a coroutine; one that raises ends this worker.
    """

    def __init__(
        self,
        worker: str,
        streams: Streams,
        limits: ArtifactLimits,
        timeout_s: float,
        at_once: int,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._worker = worker
        self._streams = streams
        self._limits = limits
        self._timeout_s = timeout_s
        self._small = ArtifactLimits(
            min(limits.bytes, _SMALL.bytes), min(limits.entries, _SMALL.entries)
        )
        self._small_turns = FairTurns(at_once * _SMALL_AT_ONCE)
        self._turns = FairTurns(at_once)
        self._spawn = spawn
        self._clock = asyncio.get_running_loop().time
        self._uploads: dict[AttemptRef, ArtifactUpload] = {}

    def begin(
        self,
        ref: AttemptRef,
        workdir: str,
        output: str,
        on_measured: Callable[[int], None],
        on_end: Callable[[Artifact], None],
        *,
        user: str = "",
        on_waits: Callable[[str], object] = str,
        needed: bool = False,
    ) -> None:
        """Store the output directory of an attempt whose processes have ended.

        Args:
            user, on_waits: as in `ArtifactUpload`.
            needed: without it the attempt would have been for nothing: until it is stopped, it is
                tried without an end.
        """
        until_s = math.inf if needed else self._clock() + self._timeout_s
        late = f"it was not stored within {self._timeout_s:g} s"
        upload = self._uploads[ref] = ArtifactUpload(
            ref,
            workdir,
            output,
            user,
            until_s,
            on_measured=on_measured,
            on_waits=on_waits,
            on_end=on_end,
            late=late,
        )
        self._spawn(self._run(upload))

    def __len__(self) -> int:
        """How many have begun and not ended."""
        return len(self._uploads)

    def end_all(self) -> None:
        """All uploads end at once."""
        for ref in self._uploads:
            self.limit(ref, 0.0)

    def limit(self, ref: AttemptRef, left_s: float) -> bool:
        """The upload of an attempt ends within that time, stored or not; False when it has none."""
        upload = self._uploads.get(ref)
        if upload is None:
            return False
        upload.until_s = min(upload.until_s, self._clock() + left_s)
        upload.late = STOPPED
        if upload.timeout is not None and not upload.timeout.expired():
            upload.timeout.reschedule(upload.until_s)
        return True

    async def _run(self, upload: ArtifactUpload) -> None:
        try:
            until_s = upload.until_s if math.isfinite(upload.until_s) else None
            async with asyncio.timeout_at(until_s) as upload.timeout:
                artifact = await self._keep(upload)
        except TimeoutError:
            artifact = Artifact(note=upload.late)
        except (NotStored, OSError) as error:
            artifact = Artifact(note=clipped(str(error)))
        del self._uploads[upload.ref]
        if not artifact.upload:
            log.warning(
                "an output directory is not kept: %s", artifact.note, extra={"attempt": upload.ref}
            )
        upload.on_end(artifact)

    async def _keep(self, upload: ArtifactUpload) -> Artifact:
        """Upload until it is stored. Raises NotStored, OSError."""
        while True:
            try:
                async with self._small_turns.turn(upload.user):
                    stored = await self._store_small(upload)
                if stored is None:
                    if self._turns.would_wait(upload.user):
                        upload.on_waits(
                            OWN_FIRST if self._turns.has_all(upload.user) else OTHERS_FIRST
                        )
                    async with self._turns.turn(upload.user):
                        stored = await self._store(upload)
            except (Full, Unavailable) as error:
                log.warning("an output directory cannot be stored now: %s", error)
                upload.on_measured(upload.measured)
            else:
                return stored
            await asyncio.sleep(_RETRY_S)

    async def _store_small(self, upload: ArtifactUpload) -> Artifact | None:
        """Upload once what is small; None: it is not, or may not be stored. Raises OSError, Full,
        Unavailable.
        """
        try:
            with contextlib.closing(
                OutputDirectory(upload.workdir, upload.output, self._small)
            ) as directory:
                piece = b"".join(directory.pack())
        except NotStored:
            return None
        upload.measured = directory.packed_bytes
        name = secrets.token_hex(8)
        await self._send(upload, name, piece, 0)
        return Artifact(name, len(piece), directory.files, str(directory.left_out))

    async def _store(self, upload: ArtifactUpload) -> Artifact:
        """Upload once. Raises NotStored, OSError, Full, Unavailable."""
        with (
            contextlib.closing(
                OutputDirectory(upload.workdir, upload.output, self._limits)
            ) as directory,
            contextlib.closing(directory.pack()) as pieces,
        ):
            name = secrets.token_hex(8)
            size = 0
            measured, piece = await _in_thread(lambda: (directory.measure(), next(pieces, b"")))
            upload.measured = measured
            if len(piece) >= PIECE_BYTES:
                upload.on_measured(measured)
            for part in itertools.count():
                await self._send(upload, name, piece, part)
                size += len(piece)
                if len(piece) < PIECE_BYTES or not (
                    piece := await _in_thread(lambda: next(pieces, b""))
                ):
                    break
        return Artifact(name, size, directory.files, str(directory.left_out))

    async def _send(self, upload: ArtifactUpload, name: str, piece: bytes, part: int) -> None:
        """Store one piece. Raises Full, Unavailable."""
        subject = subjects.artifact(self._worker, upload.ref.job, name)
        await self._streams.publish(
            subject, piece, headers={subjects.PART: str(part)}, timeout=_ANSWER_S
        )


async def _in_thread(work: Callable[[], T]) -> T:
    """Work in a thread. Who is cancelled waits until that has ended, for it uses descriptors that
    are closed then.
    """
    working = shared(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    finally:
        if not working.done():
            await asyncio.wait({working})
