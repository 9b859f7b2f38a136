"""Lets joblib, and so scikit-learn, call on a cluster: ``import iris.joblib``, then
``joblib.parallel_config("iris")``.

Each batch of joblib, by default one call, is a call of `iris.Executor`. Needs ``joblib``, which is
not a dependency of Iris, here and on the hosts. Source: docs/howto/functions.md.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any, cast

from joblib import register_parallel_backend
from joblib.parallel import ParallelBackendBase

from iris.client.client import Client
from iris.client.maps.executor import Executor
from iris.client.options.maps import MapOptions
from iris.client.options.units import parse_cpu
from iris_core.spec.resources import CPU

_OF_JOBLIB = {"max_nbytes", "temp_folder", "mmap_mode", "prefer", "require", "verbose", "context"}
"""Options that joblib gives every backend, about memory that processes of one host share."""
_FEWEST = 2
"""With room for one call, joblib would call in its own process."""


class IrisBackend(ParallelBackendBase):  # type: ignore[misc]  # without joblib its type is unknown
    """Calls that joblib makes, as tasks of a cluster. An ``n_jobs`` below zero is the room of the
    cluster.

    Args:
        nesting_level: given by joblib. client: left out, one of its own, as ``Client()``.
        options: of the jobs, as of `iris.Executor`; a ``name`` gets the number of the
            `joblib.Parallel` behind it.
    """

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(
        self, nesting_level: int | None = None, client: Client | None = None, **options: Any
    ) -> None:
        super().__init__(nesting_level=nesting_level)
        self._client = client
        self._options = options
        self._executor: Executor | None = None
        self._opened = 0

    def effective_n_jobs(self, n_jobs: int) -> int:
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        return n_jobs if n_jobs > 0 else max(_FEWEST, self._room() + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: object = None, **options: Any) -> int:
        self.parallel = parallel
        self._options |= {name: value for name, value in options.items() if name not in _OF_JOBLIB}
        count = self.effective_n_jobs(n_jobs)
        if count > 1:
            self._open()
        return count

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Future[Any]], object] | None = None
    ) -> Future[Any]:
        if self._executor is None:
            raise RuntimeError("no call of joblib is under way")
        future = self._executor.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """End what runs, without waiting for that."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None
        if ensure_ready:
            self._open()

    def terminate(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None

    def _open(self) -> None:
        self._opened += 1
        named = {"name": f"{name}-{self._opened}"} if (name := self._options.get("name")) else {}
        self._executor = Executor(self._client, **cast("MapOptions", self._options | named))

    def _room(self) -> int:
        """How many calls the cores of all healthy hosts take at a time."""
        with nullcontext(self._client) if self._client else Client() as client:
            cpu = sum(host.total[CPU.name] for host in client.workers() if host.state == "healthy")
        return cpu // parse_cpu(str(self._options.get("cpu") or 1))


register_parallel_backend("iris", IrisBackend)
