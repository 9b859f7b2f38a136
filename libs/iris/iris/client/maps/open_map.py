"""Open maps: jobs to which calls are added until they are closed.

A client that dies cannot close its map; the cluster does after `IDLE_S`. Out of scope: where calls
come from, and the end of this process (`items`, `executor`); their results (`mapping`). Source:
    docs/design/calls.md#open-maps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from iris.client.http.api import GatewayApi
from iris.client.maps.calls import send_arguments
from iris.client.maps.future import CallFuture
from iris.client.maps.mapping import Mapped
from iris.client.problems import ClientError, Conflict, TryAgain
from iris_core.spec.jobs import MAX_REPLICAS
from iris_core.views.jobs import JobView

IDLE_S = 600.0
"""An open map is closed so long after the last request of its client."""
_OVER_QUOTA_S = 1.0


class OpenMap:
    """Adds calls to the open job of a map. One thread adds, any may close.

    Attributes:
        keep_s: a request is due when none was sent for so long, see `keep`.
    """

    def __init__(self, client: GatewayApi, mapped: Mapped[Any]) -> None:
        calls = mapped.job.view.spec.calls
        assert calls is not None
        self._client = client
        self.mapped = mapped
        self._path = f"/v1/jobs/{mapped.job.id}/calls"
        self._count = calls.count
        self._chunksize = calls.chunksize
        self.keep_s = (calls.idle_s or IDLE_S) / 4
        self._closed = threading.Event()
        self._adding, self._closing = threading.Lock(), threading.Lock()

    @property
    def room(self) -> int:
        """How many tasks can be added."""
        return MAX_REPLICAS - -(-self._count // self._chunksize)

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def add(self, blobs: Sequence[bytes], futures: Sequence[CallFuture[Any]]) -> None:
        """Add calls: the pickled arguments of each task, and the futures of all. While the user's
        limit of waiting tasks is reached it waits.

        Raises Conflict when the job takes no calls any more, Problem, Unreachable.
        """
        with self._adding:
            self._add(blobs, futures)

    def _add(self, blobs: Sequence[bytes], futures: Sequence[CallFuture[Any]]) -> None:
        first = self._count // self._chunksize
        segments, firsts = send_arguments(self._client.transport, blobs, first)
        body = {
            "offset": self._count,
            "segments": segments,
            "firsts": firsts,
            "count": len(futures),
        }
        while True:
            try:
                self._client.post(self._path, JobView, body=body)
                break
            except TryAgain as problem:
                if problem.code != "over_quota" or self.closed:
                    raise
                self.keep()
                time.sleep(_OVER_QUOTA_S)
        self._count += len(futures)
        self.mapped.adopt(futures)

    def keep(self) -> None:
        """Show that this client is there; a failure is told when calls are added."""
        with suppress(ClientError):
            self._client.post(self._path, JobView)

    def close(self, reason: str = "", error: BaseException | None = None) -> bool:
        """Add nothing more; ``error``: what ends the map behind its last call. Returns False when
        it was closed before, by whomever.
        """
        if not self._closing.acquire(blocking=False):  # and it is never released
            return False
        self._closed.set()
        closes = True
        try:
            self._client.close_map(self.mapped.job.id, reason)
        except Conflict:
            closes = False
        except ClientError:  # then the cluster closes it
            pass
        with self._adding:  # the calls that are being added are this map's, too
            self.mapped.end(error)
        return closes
