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
from iris.client.map_task import FUNCTION, ITEMS, MARK
from iris.client.problems import ClientError, JobFailed, job_ended
from iris_core.views import LogLineView

T = TypeVar("T")
R = TypeVar("R")

COMMAND = ("python", "-P", "-m", "iris.client.map_task")


class Mapped(Generic[R]):
    """The result of a map: ``job``, and one future per item, in order."""

    def __init__(self, job: Job, count: int) -> None:
        self.job = job
        self.futures: list[Future[R]] = [Future() for _ in range(count)]
        threading.Thread(target=self._collect, name=f"iris-map {job.name}", daemon=True).start()

    def __iter__(self) -> Iterator[Future[R]]:
        return iter(self.futures)

    def __len__(self) -> int:
        return len(self.futures)

    def results(self, timeout: float | None = None) -> list[R]:
        """Every result in the order of the items. Raises the exception of the first failing call, TimeoutError."""
        return [future.result(timeout) for future in self.futures]

    def _collect(self) -> None:
        errors: dict[int, BaseException] = {}
        try:
            for index, (kind, what) in outcomes(self.job.logs()):
                if kind == "error":
                    errors[index] = what
                elif not self.futures[index].done():
                    self.futures[index].set_result(what)
            self.job.wait()
        except ClientError as error:
            errors = dict.fromkeys(range(len(self.futures)), error)
        self._finish(errors)

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


def outcomes(lines: Iterable[LogLineView]) -> Iterator[tuple[int, tuple[str, Any]]]:
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
