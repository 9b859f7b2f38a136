"""Reads what calls of a map have left: values, exceptions with their traceback, and how a process
died.

Source: docs/design/calls.md#results. Out of scope: waiting for results
    (`mapping`).
"""

from __future__ import annotations

import base64
import pickle
import tempfile
import time
from pathlib import Path
from typing import Any

from iris.client.http.api import GatewayApi
from iris.client.maps import call_runner
from iris.client.problems import (
    Conflict,
    JobEnded,
    NotFound,
    RemoteError,
    TryAgain,
    Unreachable,
    job_ended,
)
from iris_core.views.causes import end_of
from iris_core.views.jobs import AttemptView, TaskView
from iris_core.views.streams import CallResultView

_END_WITHIN_S = 60.0
_RETRY_S = 0.05

CallOutcome = tuple[Any, BaseException | None]
"""The value of a call, or its exception."""


class Superseded(Exception):
    """A result of an attempt that its task has not ended with: the task is or was tried again."""


class RemoteTraceback(Exception):
    """The traceback of an exception on its host, as text; the exception's ``__cause__``."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def outcomes_of(task: str, result: CallResultView, payload: bytes) -> list[CallOutcome]:
    """The outcome of each call of a task that left a result; what was raised has a note that names
    the call.
    """
    if result.kind == "value":
        return [value_of(payload)]
    if result.kind == "error":
        found = [error_of(payload)]
    else:
        found = [
            value_of(data) if kind == call_runner.VALUE else error_of(data)
            for kind, data in pickle.loads(payload)
        ]
    for number, (_, error) in enumerate(found, 1):
        if isinstance(error, ModuleNotFoundError):
            error.add_note(
                f"{error.name} is not installed where the calls run: send its directory with workdir=, or have it "
                "installed with packages= or an image="
            )
        if error is not None:
            error.add_note(
                f"from {task}"
                if len(found) == 1
                else f"from call {number} of {len(found)} of {task}"
            )
    return found


def value_of(data: bytes) -> CallOutcome:
    """A pickled value; RemoteError when it cannot be unpickled here."""
    try:
        return pickle.loads(data), None
    except BaseException as error:  # noqa: BLE001 - unpickling may raise anything
        return None, _undecodable("it returned a value", error)


def error_of(data: bytes) -> CallOutcome:
    """What a call raised, with its traceback as the cause.

    RemoteError when it is no ``Exception``, such as KeyboardInterrupt, or cannot be pickled there
    or unpickled here; then the traceback is in its text.
    """
    size = int.from_bytes(data[:4], "little")
    text = data[4 : 4 + size].decode(errors="replace")
    pickled = data[4 + size :]
    name, _, trace = text.partition("\n")
    if not pickled:
        return None, RemoteError(text)
    try:
        raised = pickle.loads(pickled)
        if not isinstance(raised, BaseException):
            raise TypeError(f"it is a {type(raised).__name__}, not an exception")
    except BaseException as error:  # noqa: BLE001 - unpickling may raise anything
        return None, _undecodable(name, error, f"\n{trace}")
    if not isinstance(raised, Exception):  # it would end what waits for it, such as an event loop
        raised = RemoteError(f"the function raised {name}")
    raised.__cause__ = RemoteTraceback(trace)
    return None, raised


def _undecodable(what: str, error: BaseException, trace: str = "") -> RemoteError:
    found = RemoteError(
        f"{what} (it cannot be unpickled here: {type(error).__name__}: {error}){trace}"
    )
    found.__cause__ = error
    return found


def payload_of(api: GatewayApi, job: str, result: CallResultView) -> bytes:
    """What the runner wrote; a large result is fetched as the artifact of its attempt.

    Its end may not be committed yet, and the gateway may restart meanwhile: it is asked again.
    Raises Superseded for a large result of an attempt that its task has not ended with, Conflict
    when the attempt has not ended within a minute; Problem, Unreachable, InvalidArchive, OSError,
    RemoteError.
    """
    if not result.stored:
        return base64.b64decode(result.data)
    start_s = time.monotonic()
    while True:
        with tempfile.TemporaryDirectory(prefix="iris-result-") as made:
            try:
                api.fetch(f"{job}/{result.index}", made, attempt=result.attempt)
                return (Path(made) / call_runner.LARGE_NAME).read_bytes()
            except (Conflict, TryAgain, Unreachable) as error:
                if isinstance(error, Conflict) and error.code == "gone":
                    raise RemoteError(
                        f"{job}/{result.index} returned a large value that is not kept any more: "
                        f"{error}"
                    ) from error
                most_s = (
                    _END_WITHIN_S
                    if isinstance(error, Conflict)
                    else api.transport.current_timeout_s
                )
                if time.monotonic() - start_s > most_s:
                    raise
            except (NotFound, FileNotFoundError) as error:
                if _is_last(api.task(f"{job}/{result.index}"), result.attempt):
                    raise RemoteError(
                        f"{job}/{result.index} returned a large value that is not kept: {error}"
                    ) from error
        time.sleep(_RETRY_S)


def _is_last(task: TaskView, attempt: int) -> bool:
    """Whether a task has ended with this attempt; False: that is not recorded yet. Raises
    Superseded for one after which another follows.
    """
    last = task.attempts[-1] if task.attempts else None
    if last is None or last.number < attempt or (last.number == attempt and last.open):
        return False  # read from a replica that is behind
    if last.number > attempt or task.state == "pending":
        raise Superseded
    return True


def death_of(name: str, result: CallResultView, calls: int) -> JobEnded:
    """The exception of the calls of a task whose process ended without a result."""
    state = "failed" if result.cause == "exited" else "killed"
    words = (
        f"killed by signal {result.signal}" if result.signal else f"exit code {result.exit_code}"
    )
    if result.exit_code == 0:
        words = "it exited without a result"
    elif result.cause != "exited":
        words = result.cause.replace("_", " ")
    elif result.error:
        words = result.error
    return _died(name, state, words + _lost(calls), result)


def ending_of(
    name: str, task: TaskView, calls: int, result: CallResultView | None = None
) -> JobEnded | RemoteError:
    """The exception of the calls of a task that has ended and left nothing to read. ``result``: how
    its process ended.
    """
    last = task.attempts[-1] if task.attempts else None
    if task.state == "succeeded":
        return RemoteError(
            f"{name} succeeded, and its result is not kept any more: results are deleted by age, and "
            "to make room from the user who holds most; iris rerun runs it again"
        )
    words = [task.error or (last and last.cause) or (task.cause or "").replace("_", " ")]
    if last is not None and (line := end_of(last.stderr_tail)) and line not in str(words[0]):
        words.append(line)
    return _died(name, task.state, ": ".join(filter(None, words)) + _lost(calls), result or last)


def _lost(calls: int) -> str:
    """What else is lost with a process: results of one task are stored together."""
    if calls == 1:
        return ""
    return (
        f"; none of the {calls} calls of this task has a result, not even those that had returned"
    )


def _died(
    name: str, state: str, words: str, ended: CallResultView | AttemptView | None
) -> JobEnded:
    """``ended``: how its process ended. Of one that was stopped that may be known before or after
    this.
    """
    error = job_ended({"name": name, "state": state, "error": words})
    if ended is not None and ended.cause == "exited":
        error.exit_code = ended.exit_code
        error.signal = ended.signal
    return error
