"""Reads the items of a map whose number is not known, and adds their calls to an open map as they
come.

The iterator is read by a thread of its own, because it may take any time for an item. When this
process ends, what was read is added, and what the iterator has left is reported. Out of scope: the
job (`open_map`), packing (`calls`).
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from iris.client.maps.calls import Arguments, pack_arguments
from iris.client.maps.future import CallFuture
from iris.client.maps.mapping import Mapped
from iris.client.maps.open_map import OpenMap
from iris.client.maps.process_end import before_the_end
from iris.client.problems import InvalidOption
from iris_core.limits import clipped
from iris_core.spec.jobs import MAX_REPLICAS

_AT_ONCE = 1000
"""Calls that are added by one request."""
_GATHER_S = 0.02
"""How long an item waits for others that are added with it."""


class ItemReader:
    """Takes items ahead of the calls that have ended, at most ``lookahead``, each tupled as the
    arguments of a call.
    """

    def __init__(self, items: Iterable[Iterable[Any]], lookahead: int, chunksize: int) -> None:
        self._items = items
        self._places = threading.Semaphore(max(lookahead, chunksize))
        self._arrival = threading.Condition()
        self._read: deque[Arguments] = deque()
        self._over = False
        self._stopped = threading.Event()
        self.error: BaseException | None = None
        threading.Thread(target=self._run, name="iris-map-items", daemon=True).start()

    def _run(self) -> None:
        try:
            self._places.acquire()
            for item in self._items:
                with self._arrival:
                    if self._stopped.is_set():
                        return
                    self._read.append(tuple(item))
                    self._arrival.notify_all()
                self._places.acquire()
                if self._stopped.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - whoever waits for the map must learn of it
            self.error = error
        finally:
            with self._arrival:
                self._over = True
                self._arrival.notify_all()

    def on_done(self, _: Future[Any]) -> None:
        """A call has ended: one item more may be taken."""
        self._places.release()

    def stop(self) -> bool:
        """Take no further items. Returns whether there may have been some."""
        with self._arrival:
            cuts = not self._over
            self._stopped.set()
            self._over = True
            self._arrival.notify_all()
        self._places.release()
        return cuts

    @property
    def is_over(self) -> bool:
        """Whether there are no further items, nor will there be."""
        with self._arrival:
            return self._over and not self._read

    def take(self, multiple: int, wait_s: float | None = None) -> list[Arguments]:
        """The items that have come, a multiple of so many until the last ones; empty when none come
        in time, or none are left.
        """
        most = max(_AT_ONCE // multiple, 1) * multiple
        with self._arrival:
            if not self._arrival.wait_for(
                lambda: self._over or len(self._read) >= multiple, wait_s
            ):
                return []
            self._arrival.wait_for(lambda: self._over or len(self._read) >= most, _GATHER_S)
            count = min(len(self._read), most)
            if not self._over or count < len(self._read):
                count -= count % multiple
            return [self._read.popleft() for _ in range(count)]


def feed(reader: ItemReader, onto: OpenMap, chunksize: int) -> None:
    """Add the calls of all items, by a thread of its own, then close the map."""
    _FEEDS.add(_Feed(reader, onto, chunksize))


class _Feed:
    def __init__(self, reader: ItemReader, onto: OpenMap, chunksize: int) -> None:
        self._reader = reader
        self._map = onto
        self._chunksize = chunksize
        self._cut: RuntimeError | None = None
        self._loss = ""
        name = f"iris-map-feed {onto.mapped.job.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while not self._reader.is_over and not self._map.closed:
                self._add(self._reader.take(self._chunksize, self._map.keep_s))
            error = self._reader.error
        except BaseException as raised:  # noqa: BLE001 - whoever waits for the map must learn of it
            error = raised
        self._reader.stop()
        self._close(error)

    def _close(self, error: BaseException | None) -> None:
        name = self._map.mapped.job.name
        cut = self._cut
        reason = ""
        if error is not None:
            who = "its iterator" if error is self._reader.error else "adding its calls"
            reason = clipped(f"closed: {who} raised {error!r}")
        elif cut is not None:
            reason = "closed: the process of its client has ended"
        closes = self._map.close(reason, error or cut)
        if error is not None:
            _UNHEARD.append((self._map.mapped, f"{name} may lack calls of its items: {reason}"))
        elif cut is not None and closes:
            self._loss = f"{cut}: its iterator was not at its end"

    def finish(self, until_s: float) -> str:
        """At the end of the process: add what was read until then, on the monotonic clock. Returns
        what is lost, as a sentence; empty for nothing.
        """
        name = self._map.mapped.job.name
        if self._thread.is_alive() and self._reader.stop():
            self._cut = RuntimeError(f"{name} takes no further items, because this process ends")
        with suppress(KeyboardInterrupt):  # whoever sent it does not want to wait
            self._thread.join(max(0.0, until_s - time.monotonic()))
        if self._thread.is_alive():
            return f"{name} may lack calls: the cluster has not confirmed them before this process ended"
        return self._loss

    def _add(self, calls: list[Arguments]) -> None:
        if not calls:
            self._map.keep()
            return
        blobs = list(pack_arguments(calls, self._chunksize))
        if len(blobs) > self._map.room:
            raise InvalidOption(
                f"a job has at most {MAX_REPLICAS:,} tasks, and there are more items; use a larger chunksize"
            )
        self._map.add(blobs, [CallFuture() for _ in calls])


_FEEDS: weakref.WeakSet[_Feed] = weakref.WeakSet()
_UNHEARD: list[tuple[Mapped[Any], str]] = []
"""Maps that were closed by an error, and a sentence about it; who iterates such a map hears it."""


def _finish_all(until_s: float) -> list[str]:
    cut = [loss for feed in list(_FEEDS) if (loss := feed.finish(until_s))]
    return [loss for mapped, loss in _UNHEARD if not mapped.is_end_heard] + cut


def _forget_all() -> None:
    """In a fork: the threads of these maps run in the other process, which will tell."""
    _FEEDS.clear()
    _UNHEARD.clear()


before_the_end(_finish_all)
os.register_at_fork(after_in_child=_forget_all)
