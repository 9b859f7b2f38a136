"""Reads the items of a map whose number is not known, and adds their calls to an open map as they
come.

The iterator is read by a thread of its own, because it may take any time for an item. Out of scope:
the job (`open_map`), packing (`calls`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from iris.client.maps.calls import Arguments, pack_arguments
from iris.client.maps.future import CallFuture
from iris.client.maps.open_map import OpenMap
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
        self._over = self._stopped = False
        self.error: BaseException | None = None
        threading.Thread(target=self._run, name="iris-map-items", daemon=True).start()

    def _run(self) -> None:
        try:
            self._places.acquire()
            for item in self._items:
                with self._arrival:
                    self._read.append(tuple(item))
                    self._arrival.notify_all()
                self._places.acquire()
                if self._stopped:
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

    def stop(self) -> None:
        """Take no further items."""
        with self._arrival:
            self._stopped = True
        self._places.release()

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
    run = _Feed(reader, onto, chunksize).run
    threading.Thread(target=run, name=f"iris-map-feed {onto.mapped.job.name}", daemon=True).start()


class _Feed:
    def __init__(self, reader: ItemReader, onto: OpenMap, chunksize: int) -> None:
        self._reader, self._map, self._chunksize = reader, onto, chunksize

    def run(self) -> None:
        error: BaseException | None = None
        try:
            while not self._reader.is_over and not self._map.closed:
                self._add(self._reader.take(self._chunksize, self._map.keep_s))
            error = self._reader.error
        except BaseException as raised:  # noqa: BLE001 - whoever waits for the map must learn of it
            error = raised
        finally:
            self._reader.stop()
            who = "its iterator" if error is self._reader.error else "adding its calls"
            self._map.close(
                clipped(f"closed: {who} raised {error!r}") if error is not None else "", error
            )

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
