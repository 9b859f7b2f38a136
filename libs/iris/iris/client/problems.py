"""The exceptions of the client. Out of scope: printing them (`iris.cli`).

IrisError
└── ClientError
    ├── NoGateway           no address of a gateway is known
    ├── Unreachable         it does not answer
    ├── InvalidOption              an option that cannot be understood, found before anything was
    sent ├── Problem             it answered with a problem document (RFC 9457)
    │   ├── Rejected        400, 405, 413, 415, 422: the request itself is wrong
    │   ├── NotAllowed      401, 403
    │   ├── NotFound        404
    │   ├── Conflict        409, 410, 412
    │   └── TryAgain        429, 502, 503, 504: worth sending again later
    ├── RemoteError         the result or exception of a mapped call cannot be pickled there, or
    unpickled here ├── ExecutionLost       a command beside a task was ended, or the connection to
    it broke ├── WaitTimeout         the job continues, only the wait ended
    ├── DeploymentFailed    a deployment will not become what was waited for
    └── JobEnded            a job ended otherwise than by success
        ├── JobFailed
        ├── JobKilled
        ├── JobWorkerFailed
        └── JobUnschedulable
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import msgspec

from iris_core.errors import IrisError
from iris_core.views.causes import FailureGroup


class ClientError(IrisError):
    """The root of the client's exceptions; they can be pickled, so a task may raise one through
    `Client.map`.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[ClientError], words: tuple[Any, ...], facts: dict[str, Any]
) -> ClientError:
    error = kind.__new__(kind, *words)
    error.__dict__.update(facts)
    return error


class NoGateway(ClientError):
    """No option, environment variable, context or local cluster has the address of the gateway."""


class Unreachable(ClientError):
    """The gateway does not answer."""


class InvalidOption(ClientError):
    """An option that cannot be parsed; the message names it and shows a valid one."""


class RemoteError(ClientError):
    """The result or exception of a mapped call cannot be pickled there, or unpickled here.

    The message names the exception; its traceback follows.
    """


class ExecutionLost(ClientError):
    """A command beside a task was ended, or the connection to it broke; its exit code is not
    known.
    """


class WaitTimeout(ClientError):
    """The timeout of a wait has passed; the job continues."""


def gave_up(name: str, state: str, timeout: float | None) -> WaitTimeout:
    """The error of a wait for a job that lasted longer than ``timeout`` seconds."""
    return WaitTimeout(f"{name} is still {state} after {round(timeout or 0.0, 1):g} s; it goes on")


class FieldMistake(msgspec.Struct, frozen=True):
    """One wrong field of a request: a JSON pointer, a code, what is wrong, what would be right."""

    pointer: str = ""
    code: str = ""
    message: str = ""
    hint: str = ""


class Document(msgspec.Struct, frozen=True):
    """The problem document of a response; absent members are empty."""

    title: str = ""
    code: str = ""
    detail: str = ""
    request_id: str = ""
    retryable: bool = False
    errors: tuple[FieldMistake, ...] = ()
    type: str = ""


_read = msgspec.json.Decoder(Document).decode


class Problem(ClientError):
    """The gateway refused a request.

    Args:
        status: the HTTP status.
        document: the problem document.
        retry_after_s: seconds to wait before a retry; None when not given.
        gateway: its address, which the URI of the problem's type is relative to.
    """

    def __init__(
        self, status: int, document: Document, retry_after_s: float | None = None, gateway: str = ""
    ) -> None:
        super().__init__(document.detail or document.title or f"the gateway answered {status}")
        self.status = status
        self.document = document
        self.retry_after_s = retry_after_s
        self._gateway = gateway

    def explained(self, detail: str, mistakes: tuple[FieldMistake, ...] = ()) -> Self:
        """The same problem with another detail and other mistakes."""
        document = msgspec.structs.replace(self.document, detail=detail, errors=mistakes)
        return type(self)(self.status, document, self.retry_after_s, self._gateway)

    @property
    def code(self) -> str:
        """For programs: it never gets a second meaning."""
        return self.document.code

    @property
    def type(self) -> str:
        """The address of a page about this type of problem; empty when the answer names none."""
        uri = self.document.type
        return f"{self._gateway.rstrip('/')}{uri}" if uri.startswith("/") else uri

    @property
    def mistakes(self) -> tuple[FieldMistake, ...]:
        return self.document.errors


class Rejected(Problem):
    """The request is invalid; a retry would be refused again."""


class NotAllowed(Problem):
    """A token is missing, or does not permit the request."""


class NotFound(Problem):
    """The named object does not exist."""


class Conflict(Problem):
    """The request conflicts with the present state."""


class TryAgain(Problem):
    """Temporarily refused; the same request may be sent again."""


def away(error: Unreachable | TryAgain, name: str, how: str) -> ClientError:
    """The same error of a gateway that is away, which says that something goes on, and how to
    return to it.
    """
    words = f"{error}; {name} goes on: {how}"
    resumable = error.explained(words) if isinstance(error, TryAgain) else Unreachable(words)
    resumable.__cause__ = error
    return resumable


@contextmanager
def following(name: str, how: str) -> Iterator[None]:
    """Raise `away` for the error of a gateway that is away for too long."""
    try:
        yield
    except (Unreachable, TryAgain) as error:
        raise away(error, name, how) from error


_KINDS: dict[int, type[Problem]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    408: TryAgain,
    409: Conflict,
    410: Conflict,
    412: Conflict,
    429: TryAgain,
    502: TryAgain,
    503: TryAgain,
    504: TryAgain,
}


def problem_from(
    status: int,
    body: bytes,
    retry_after: str | None = None,
    gateway: str = "",
    *,
    wordless: bool = False,
) -> Problem:
    """The exception for a refusal. An answer that is not a problem document, such as a proxy's
    page, becomes one line: its status, its host, what to do. ``wordless``: it is one of the
    gateway, to a HEAD, which has no body.
    """
    try:
        document = _read(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = Document()
    if not document.code and not document.detail:
        document = Document(detail=(_wordless if wordless else _foreign)(status, gateway))
    kind = _KINDS.get(status, Rejected if status < 500 else Problem)
    return kind(status, document, _seconds(retry_after), gateway)


def _foreign(status: int, gateway: str) -> str:
    """About an answer that is not the gateway's."""
    from urllib.parse import urlsplit

    host = urlsplit(gateway).netloc or "something else"
    what = _REMEDIES.get(
        status, "check that this is the gateway's address, and what stands in front of it"
    )
    return f"{host} answered {status}, which is not an answer of Iris: {what}"


def _wordless(status: int, gateway: str) -> str:
    """About a refusal of the gateway of which only the status came."""
    what = {
        401: "the token is missing, is not known or has expired",
        403: "the token does not permit this",
    }
    return f"{gateway or 'the gateway'} answered {status}: " + what.get(
        status, "its log says why; look for the request there"
    )


_REMEDIES = {
    408: "the request arrived too slowly; try again, or look at the network",
    401: "a proxy in front of the gateway asks for credentials of its own",
    407: "a proxy in front of the gateway asks for credentials of its own",
    413: "a proxy in front of the gateway limits the size of requests; raise its limit",
    **dict.fromkeys(
        (502, 503, 504),
        "a proxy cannot reach the gateway; try again, or look whether the gateway is up",
    ),
}


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None


class DeploymentFailed(ClientError):
    """It is rolled back, has stopped retrying, or is deleted: the message says which."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name


class JobEnded(ClientError):
    """A job, or a call of a map, ended otherwise than by success.

    Attributes:
        exit_code, signal: of a call whose process ended by itself without a result; None of one
            that was stopped.

    Args:
        name: the job. state: its last state, lower case. error: one line about why, may be empty.
        causes: failed tasks of it and its children, by their last line; ``lines`` are those causes
            as text.
    """

    def __init__(
        self,
        name: str,
        state: str,
        error: str = "",
        causes: Sequence[FailureGroup] = (),
        lines: Sequence[str] = (),
    ) -> None:
        self.exit_code: int | None = None
        self.signal: int | None = None
        said = f"{name} {state}: {error}" if error else f"{name} {state}"
        super().__init__("\n".join([said, *(f"  {line}" for line in lines)]))
        self.causes = tuple(causes)
        self.name = name
        self.state = state
        self.error = error


class JobFailed(JobEnded):
    """Its tasks exited with a code other than 0 more often than allowed."""


class JobKilled(JobEnded):
    """It was cancelled, timed out, or its parent ended."""


class JobWorkerFailed(JobEnded):
    """Its hosts failed more often than its preemption budget allows."""


class JobUnschedulable(JobEnded):
    """It was not placed in time."""


_ENDINGS: dict[str, type[JobEnded]] = {
    "failed": JobFailed,
    "killed": JobKilled,
    "worker_failed": JobWorkerFailed,
    "unschedulable": JobUnschedulable,
}


def job_ended(
    job: dict[str, Any], causes: Sequence[FailureGroup] = (), lines: Sequence[str] = ()
) -> JobEnded:
    """The exception for a job view whose state is terminal and not succeeded."""
    kind = _ENDINGS.get(job["state"], JobEnded)
    return kind(job["name"], job["state"], job.get("error") or "", causes, lines)
