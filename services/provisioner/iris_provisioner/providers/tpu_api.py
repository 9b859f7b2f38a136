"""Cloud TPU's REST API, version 2: access tokens, errors, pages and long-running operations.

It knows no slices. Needs the extra ``gcp``. Source: docs/design/fleet.md#cloud-tpu.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping
from typing import Any, TypeVar

import google.auth
import google.auth.exceptions
import google.auth.transport
import httpx
import msgspec

from iris_core import codec
from iris_core.limits import clipped
from iris_provisioner.providers.provider import CallAnswer, ProviderResult

logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request says nothing here

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
PAGE_SIZE = 500
_PAGES = 1000
"""Pages of one list at most: one that does not end is none."""
POLL_S = 0.5
_SEED = re.compile(r"\bS[A-Z][A-Z2-7]{56}\b")
"""The seed of a key of NATS, should an error repeat what it was sent."""
_RATE_REASONS = ("RATE_LIMIT_EXCEEDED", "rateLimitExceeded", "userRateLimitExceeded")


class TpuApiError(Exception):
    """A call came to nothing.

    Attributes:
        answer: what that is to whoever ordered a slice. detail: in words.
        status: of google.rpc, such as ``NOT_FOUND``; empty: there was no answer.
    """

    def __init__(
        self, answer: ProviderResult, detail: str, *, status: str = "", retry_after_s: float = 0.0
    ) -> None:
        super().__init__(detail)
        self.answer = answer
        self.detail = clipped(_SEED.sub("(a key)", detail))
        self.status = status
        self.retry_after_s = max(0.0, retry_after_s)

    def as_answer(self) -> CallAnswer:
        return CallAnswer(self.answer, self.detail, self.retry_after_s)


class Status(msgspec.Struct, frozen=True):
    """An error of google.rpc. ``code``: of HTTP in an answer, of google.rpc in an operation."""

    code: int = 0
    message: str = ""
    status: str = ""
    details: list[dict[str, Any]] = []


class Operation(msgspec.Struct, frozen=True):
    """A long-running operation."""

    name: str = ""
    done: bool = False
    error: Status | None = None


class _ErrorBody(msgspec.Struct, frozen=True):
    error: Status


RPC = {
    1: "CANCELLED",
    2: "UNKNOWN",
    3: "INVALID_ARGUMENT",
    4: "DEADLINE_EXCEEDED",
    5: "NOT_FOUND",
    6: "ALREADY_EXISTS",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    10: "ABORTED",
    11: "OUT_OF_RANGE",
    12: "UNIMPLEMENTED",
    13: "INTERNAL",
    14: "UNAVAILABLE",
    15: "DATA_LOSS",
    16: "UNAUTHENTICATED",
}
"""The codes of google.rpc, as operations have them."""
_BY_HTTP = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
}
_ANSWERS: dict[str, ProviderResult] = {
    "RESOURCE_EXHAUSTED": "exhausted",
    "INVALID_ARGUMENT": "refused",
    "NOT_FOUND": "refused",
    "PERMISSION_DENIED": "refused",
    "FAILED_PRECONDITION": "refused",
    "OUT_OF_RANGE": "refused",
    "UNIMPLEMENTED": "refused",
    "UNAUTHENTICATED": "refused",
}
"""What a status is to a creation; any other one may pass: it has failed."""

T = TypeVar("T")


def error_of(status: Status, retry_after_s: float = 0.0) -> TpuApiError:
    """What the error of an operation or of a resource means."""
    name = status.status or RPC.get(status.code) or _BY_HTTP.get(status.code, "UNKNOWN")
    reasons = [str(one.get("reason", "")) for one in status.details]
    answer = _ANSWERS.get(name, "failed")
    if any(reason in _RATE_REASONS for reason in reasons):
        answer = "exhausted"
    for one in status.details:
        if str(one.get("@type", "")).endswith("google.rpc.RetryInfo"):
            retry_after_s = retry_after_s or _seconds(str(one.get("retryDelay", "")))
    words = f"{name}: {status.message}" if status.message else name
    return TpuApiError(answer, words, status=name, retry_after_s=retry_after_s)


def _seconds(text: str) -> float:
    """Seconds, as a header or a duration of JSON has them; 0: a date, or nothing."""
    try:
        return float(text.removesuffix("s"))
    except ValueError:
        return 0.0


class TpuApi:
    """Calls below one address, with the credentials of this process.

    Args:
        endpoint: the address. timeout_s: of one request.
    """

    def __init__(self, endpoint: str, *, timeout_s: float) -> None:
        self._client = httpx.AsyncClient(base_url=f"{endpoint.rstrip('/')}/v2/", timeout=timeout_s)
        self._tokens = _Tokens()

    async def close(self) -> None:
        await self._client.aclose()

    async def get(self, path: str, kind: type[T]) -> T:
        """Raises TpuApiError, as all calls do."""
        return _decoded(await self._call("GET", path), kind)

    async def create(self, path: str, params: Mapping[str, str], body: object) -> Operation:
        return _decoded(await self._call("POST", path, params, body), Operation)

    async def delete(self, path: str, params: Mapping[str, str]) -> Operation:
        return _decoded(await self._call("DELETE", path, params), Operation)

    async def pages(self, path: str, kind: type[T]) -> list[T]:
        """All pages of a list. ``kind`` has ``next_page_token`` and ``unreachable``."""
        found: list[T] = []
        token = ""
        for _ in range(_PAGES):
            params = {"pageSize": str(PAGE_SIZE), **({"pageToken": token} if token else {})}
            page = _decoded(await self._call("GET", path, params), kind)
            unreachable: list[str] = getattr(page, "unreachable", [])
            if unreachable:
                raise TpuApiError("failed", f"{', '.join(unreachable)} could not be reached")
            found.append(page)
            before, token = token, getattr(page, "next_page_token", "")
            if not token:
                return found
            if token == before:
                break
        raise TpuApiError("failed", "its list does not end")

    async def settled(self, operation: Operation, within_s: float) -> Operation:
        """An operation when it is done, or as it is after a while."""
        until = time.monotonic() + within_s
        while not operation.done and operation.name and time.monotonic() < until:
            await asyncio.sleep(POLL_S)
            operation = await self.get(operation.name, Operation)
        return operation

    async def _call(
        self, method: str, path: str, params: Mapping[str, str] | None = None, body: object = None
    ) -> bytes:
        token = await self._tokens.get()
        answer = await self._ask(method, path, params, body, token)
        if answer.status_code == 401:  # it has ended sooner than it said
            token = await self._tokens.get(unlike=token)
            answer = await self._ask(method, path, params, body, token)
        if answer.is_success:
            return answer.content
        raise _refusal(answer)

    async def _ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: object,
        token: str,
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = codec.to_json(body)
        try:
            return await self._client.request(
                method, path, params=params, content=content, headers=headers
            )
        except httpx.TimeoutException:
            raise TpuApiError("failed", f"{self._client.base_url.host} did not answer") from None
        except httpx.HTTPError as error:
            words = f"{self._client.base_url.host}: {str(error) or type(error).__name__}"
            raise TpuApiError("failed", words) from None


def _decoded(data: bytes, kind: type[T]) -> T:
    try:
        return codec.from_json(data, kind)
    except codec.Undecodable as error:
        raise TpuApiError("failed", f"its answer cannot be read: {error}") from None


def _refusal(answer: httpx.Response) -> TpuApiError:
    retry_after_s = _seconds(answer.headers.get("Retry-After", ""))
    try:
        status = codec.from_json(answer.content, _ErrorBody).error
    except codec.Undecodable:
        status = Status(message=f"it answered {answer.status_code} without a reason")
    if answer.status_code >= 500 and answer.status_code != 501:
        return TpuApiError(
            "failed", f"{answer.status_code}: {status.message}", status="UNAVAILABLE"
        )
    name = status.status or _BY_HTTP.get(answer.status_code, "UNKNOWN")
    return error_of(msgspec.structs.replace(status, status=name), retry_after_s)


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────


class _Tokens:
    """Access tokens of the credentials of this process: of a file, or of the machine."""

    def __init__(self) -> None:
        self._credentials: Any = None
        self._lock = asyncio.Lock()

    async def get(self, unlike: str = "") -> str:
        """A token that is valid. ``unlike``: one that was refused."""
        async with self._lock:
            try:
                return await asyncio.to_thread(self._get, unlike)
            except google.auth.exceptions.TransportError as error:
                raise TpuApiError("failed", f"no token: {error}") from None
            except google.auth.exceptions.GoogleAuthError as error:
                self._credentials = None
                may_pass = getattr(error, "retryable", False)
                raise TpuApiError(
                    "failed" if may_pass else "refused",
                    f"the provisioner's credentials are refused: {_first(error)}",
                    status="UNAUTHENTICATED",
                ) from None

    def _get(self, unlike: str) -> str:
        if self._credentials is None:
            self._credentials, _ = google.auth.default(scopes=[SCOPE])
        if not self._credentials.valid or self._credentials.token == unlike:
            self._credentials.refresh(_Transport())
        return str(self._credentials.token)


def _first(error: Exception) -> str:
    """What an error of the library says; the rest repeats it."""
    return str(error.args[0]) if error.args else type(error).__name__


class _Transport(google.auth.transport.Request):
    """How the library asks for a token."""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 30.0,
        **_: Any,
    ) -> _TokenAnswer:
        try:
            answer = httpx.request(
                method, url, content=body, headers=dict(headers or {}), timeout=timeout
            )
        except httpx.HTTPError as error:
            raise google.auth.exceptions.TransportError(str(error)) from error  # type: ignore[no-untyped-call]
        return _TokenAnswer(answer)


class _TokenAnswer(google.auth.transport.Response):
    def __init__(self, answer: httpx.Response) -> None:
        self._answer = answer

    @property
    def status(self) -> int:
        return self._answer.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        return self._answer.headers

    @property
    def data(self) -> bytes:
        return self._answer.content
