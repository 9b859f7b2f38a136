"""Puts an attempt's bundle, and what a call of a map reads, into its directory. Part of the shell:
it waits for the object store and for threads.

Out of scope: what an archive may contain (manifest), and the next stage of the attempt (agent).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from weakref import WeakValueDictionary

from iris_bus.contract import Blobs, Unavailable
from iris_core.admission.archive_paths import InvalidArchive
from iris_core.admission.jobs import MASK
from iris_core.messages.state_worker import Ended
from iris_core.spec.calls import Calls, is_inline
from iris_core.states import Cause
from iris_service.fair_turns import FairTurns
from iris_worker.attempt.bundles.bundle import BundleStore, digest_of
from iris_worker.attempt.calls.files import CallFiles
from iris_worker.attempt.slots.workspaces import Workspace
from iris_worker.clock import HostClock
from iris_worker.launcher.starts.spawn import NOT_EXECUTABLE
from iris_worker.metrics import WorkerMetrics

_TRIES = 3
_RETRY_S = 0.3
OWN_FIRST = (
    "its files wait to be fetched: as many of the same user as may be at a time are being fetched "
    "on this host"
)
OTHERS_FIRST = (
    "its files wait to be fetched: as many as may be at a time are being fetched on this host"
)
FETCHES = "fetches its files"

OnDetail = Callable[[str], object]


def ignore(detail: str) -> None:
    """Nobody is told."""


class Fetcher:
    """Downloads and unpacks each bundle, and each file of a map, once for all attempts that need
    it.

    Args:
        store: of bundles. calls: files of maps.
        at_once: bundles that are fetched or copied at a time, half of them of one user.
        on_error: called with the number and the words of an error of this host.
    """

    def __init__(
        self,
        blobs: Blobs,
        store: BundleStore,
        calls: CallFiles,
        at_once: int,
        clock: HostClock,
        metrics: WorkerMetrics,
        on_error: Callable[[int | None, str], object],
    ) -> None:
        self._blobs = blobs
        self._store = store
        self._calls = calls
        self._clock = clock
        self._metrics = metrics
        self._on_error = on_error
        self._turns = FairTurns(at_once)
        self._one_by_one: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def fetch(
        self,
        bundle: str,
        workdir: str,
        each_line: str = "",
        index: int = 0,
        owner: tuple[int, int] | None = None,
        user: str = "",
        on_detail: OnDetail = ignore,
    ) -> Ended | str:
        """Copy a bundle of a submitting user into ``workdir`` for ``owner``; returns the end of the
        attempt when that failed, else the line ``index`` of its file ``each_line``. A bad archive
        is its owner's failure. The end does not name the bundle, because others read it too.

        ``on_detail``: called with what is done when that is to wait for others, and afterwards.
        """
        line = ""
        try:
            digest = digest_of(bundle)
            with self._store.holds.hold(digest):
                if not each_line and self._store.is_small(digest) and self._store.has(digest):
                    self._store.use(digest, user)
                    with self._timing("copy"):
                        self._store.copy(digest, workdir, owner)
                    return line
                async with self._turn(user, on_detail):
                    await self._have(self._store, digest, user)
                    if each_line:
                        line = await asyncio.to_thread(self._store.line, digest, each_line, index)
                    with self._timing("copy"):
                        await asyncio.to_thread(self._store.copy, digest, workdir, owner)
        except InvalidArchive as error:
            return Ended(Cause.EXITED, NOT_EXECUTABLE, error=_unnamed(error, bundle))
        except (Unavailable, ValueError, OSError) as error:
            return self._failed(error, _unnamed(error, bundle))
        return line

    async def bring_call(
        self, calls: Calls, slot: Workspace, *, keeps: bool = False, on_detail: OnDetail = ignore
    ) -> Ended | None:
        """Give the call of an attempt what it reads; returns the end of the attempt when that
        failed.

        ``keeps``: the next call of its job may have its directory. ``on_detail``: as for `fetch`.
        """
        index = slot.ref.index
        segment = calls.place(index)[0]
        files = () if is_inline(segment) else (segment,)
        if slot.files is None:  # else they are in the directory
            files = (calls.runner, calls.function, *files)
        try:
            with self._calls.holds.hold(*files):
                if not all(self._calls.has(digest) for digest in files):
                    async with self._turn(slot.user, on_detail):
                        for digest in files:
                            await self._have(self._calls, digest, slot.user)
                slot.files = self._calls.give(
                    calls, index, slot.workdir, slot.owner, slot.files, keeps=keeps
                )
            slot.code_version = self._calls.code_version(calls.function)
        except InvalidArchive as error:
            return Ended(Cause.EXITED, NOT_EXECUTABLE, error=f"map: {error}")
        except (Unavailable, ValueError, OSError) as error:
            return self._failed(error, f"map: {error}")
        return None

    @contextlib.asynccontextmanager
    async def _turn(self, user: str, on_detail: OnDetail) -> AsyncIterator[None]:
        waits = self._turns.would_wait(user)
        if waits:
            on_detail(OWN_FIRST if self._turns.has_all(user) else OTHERS_FIRST)
        async with self._turns.turn(user):
            if waits:
                on_detail(FETCHES)
            yield

    def _failed(self, error: Exception, text: str) -> Ended:
        """The end of an attempt for an error that is not its owner's."""
        if isinstance(error, OSError):
            self._on_error(error.errno, text)
        return Ended(Cause.INFRASTRUCTURE, error=text)

    async def _have(self, store: BundleStore | CallFiles, digest: str, user: str) -> None:
        """Raises InvalidArchive, Unavailable, ValueError, OSError."""
        lock = self._one_by_one.setdefault(
            digest, asyncio.Lock()
        )  # as long as an attempt needs this bundle
        async with lock:
            if store.has(digest):
                store.use(digest, user)
            else:
                with self._timing("download"):
                    data = await self._download(digest)
                with self._timing("unpack"):
                    await asyncio.to_thread(store.add, digest, data, user)

    async def _download(self, digest: str) -> bytes:
        for left in reversed(range(_TRIES)):
            try:
                data = await self._blobs.get(digest)
            except (Unavailable, ValueError):
                if not left:
                    raise
                await asyncio.sleep(_RETRY_S)
            else:
                if data is None:
                    raise OSError(f"{digest} is not in the store")
                return data
        raise AssertionError("the last try raises")

    @contextlib.contextmanager
    def _timing(self, step: str) -> Iterator[None]:
        began_s = self._clock.steady_s()
        yield
        self._metrics.built(step, self._clock.steady_s() - began_s)


def _unnamed(error: Exception, bundle: str) -> str:
    return f"bundle: {error}".replace(bundle, MASK)
