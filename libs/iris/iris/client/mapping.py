"""`Client.map`: one function over many items, each a task, each result a future.

The function travels with cloudpickle: a lambda, or what a script or notebook defines, by value; what an installed
module or the directory sent along defines, by its name, so the tasks must be able to import it. Results come back
through the tasks' output, so they should be small (a megabyte); large ones belong into files. Out of scope: the
task's side (`client.map_task`). Source: docs/design/interfaces.md#sdk.
"""

from __future__ import annotations

import base64
import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import cloudpickle

from iris.client.bundle import IgnoreFiles
from iris.client.jobs import Job
from iris.client.map_task import FUNCTION, ITEMS, MARK, CallOutcome
from iris.client.problems import ClientError, JobFailed, RemoteError, job_ended
from iris_core.views import LogLineView

T = TypeVar("T")
R = TypeVar("R")

COMMAND = ("python", "-P", "-m", "iris.client.map_task")


class RemoteTraceback(Exception):
    """The traceback of an exception on its host, as text; the exception's ``__cause__``."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class Mapped(Generic[R]):
    """The result of a map: ``job``, and one future per item, in order.

    A future cannot be cancelled, because one task of a job cannot be: ``future.cancel()`` is False. ``job.cancel()``
    ends all of them.
    """

    def __init__(self, job: Job, count: int) -> None:
        self.job = job
        self.futures: list[Future[R]] = [Future() for _ in range(count)]
        for future in self.futures:
            future.set_running_or_notify_cancel()
        threading.Thread(target=self._collect, name=f"iris-map {job.name}", daemon=True).start()

    def __iter__(self) -> Iterator[Future[R]]:
        return iter(self.futures)

    def __len__(self) -> int:
        return len(self.futures)

    def results(self, timeout: float | None = None) -> list[R]:
        """Every result in the order of the items. Raises the exception of the first failing call, TimeoutError."""
        return [future.result(timeout) for future in self.futures]

    def _collect(self) -> None:
        """Set every future; whatever ends the reading of results is the error of those that are left."""
        errors: dict[int, BaseException] = {}
        try:
            for index, outcome in outcomes(self.job.logs()):
                try:
                    self.futures[index].set_result(read_outcome(outcome))
                except BaseException as error:  # noqa: BLE001 - the call, or the unpickling of its result, raises anything
                    errors[index] = error
            self.job.wait()
            self._finish(errors)
        except BaseException as error:  # noqa: BLE001 - nobody else would learn of it
            self._finish(dict.fromkeys(range(len(self.futures)), error) | errors)

    def _finish(self, errors: dict[int, BaseException]) -> None:
        """Fail the remaining futures with the error of their call, else with the end of the job."""
        for index, future in enumerate(self.futures):
            if not future.done():
                future.set_exception(errors.get(index) or self._ending(index))

    def _ending(self, index: int) -> ClientError:
        if self.job.state == "succeeded":
            return JobFailed(f"{self.job.name}/{index}", "succeeded", "its result was lost from its output")
        error = ": ".join(part for part in (self.job.view.error or "", self._last_words(index)) if part)
        return job_ended({"name": self.job.name, "state": self.job.state, "error": error})

    def _last_words(self, index: int) -> str:
        """The last line of a task's stderr, which names the exception that ended it."""
        try:
            attempts = self.job.task(index).attempts
        except ClientError:
            return ""
        lines = (attempts[-1].stderr_tail or "").strip().splitlines() if attempts else []
        return lines[-1] if lines else ""


def outcomes(lines: Iterable[LogLineView]) -> Iterator[tuple[int, CallOutcome]]:
    """Task index and outcome, as soon as each is complete in the output."""
    open_: dict[tuple[int, int], tuple[int, list[str]]] = {}
    for line in lines:
        if line.stream != "stdout" or not line.line.startswith(MARK):
            continue
        source, text = (line.index, line.attempt), line.line.removeprefix(MARK)
        if source not in open_:
            open_[source] = (int(text), [])
            continue
        count, pieces = open_[source]
        pieces.append(text)
        if len(pieces) == count:
            yield line.index, pickle.loads(base64.b64decode("".join(pieces)))


def read_outcome(outcome: CallOutcome) -> Any:
    """The value of a call. Raises what the call raised, with its traceback as the cause; RemoteError when either cannot
    be unpickled here.
    """
    kind, data, trace = outcome
    try:
        what = pickle.loads(data)
    except BaseException as error:  # noqa: BLE001 - unpickling may raise anything
        last = trace.strip().rpartition("\n")[2] or "it returned a value"
        raise RemoteError(f"{last} (it cannot be unpickled here: {type(error).__name__}: {error})") from (
            RemoteTraceback(trace) if trace else error
        )
    if kind == "value":
        return what
    raise what from RemoteTraceback(trace)


@contextmanager
def packed_call(function: Callable[[T], R], items: Sequence[T], workdir: Path | None) -> Iterator[Path]:
    """A directory with everything the tasks need. Raises what pickling raises."""
    with tempfile.TemporaryDirectory(prefix="iris-map-") as made:
        root = Path(made)
        if workdir is not None:
            rules = IgnoreFiles(workdir)
            shutil.copytree(workdir, root, symlinks=True, dirs_exist_ok=True, ignore=rules.left_out)
        (root / FUNCTION).write_bytes(cloudpickle.dumps(function))
        (root / ITEMS).write_bytes(pickle.dumps([cloudpickle.dumps(item) for item in items]))
        yield root
