"""HTTP calls of the benchmarks on one kept-alive connection."""

from __future__ import annotations

import asyncio
import http.client
import time
from typing import Any, Self
from urllib.parse import quote, urlsplit

import msgspec

TOKEN = "iris_benchmark"
"""Of everybody here, as an admin: requests are authenticated, as they are in use."""
_AUTHORIZATION = f"Bearer {TOKEN}"
_RETRY_S = 0.1
_REPEATED_S = 60.0


class Gateway:
    """A gateway by its address; raises RuntimeError with the body of any answer that is not 2xx."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)

    def close(self) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None, key: str = "") -> Any:
        """With a ``key``, a request that a busy cluster does not answer (503) is repeated for at
        most a minute.
        """
        headers = {"Authorization": _AUTHORIZATION}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        headers |= {"Idempotency-Key": key} if key else {}
        data = msgspec.json.encode(body) if body is not None else None
        deadline = time.monotonic() + _REPEATED_S
        while True:
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
            text = answer.read()
            if answer.status < 300:
                return msgspec.json.decode(text)
            if answer.status != 503 or not key or time.monotonic() > deadline:
                raise RuntimeError(f"{method} {path}: {answer.status} {text[:2000]!r}")
            time.sleep(_RETRY_S)

    def submit(self, key: str = "", **spec: Any) -> str:
        """Submit one job; its id."""
        return str(self.ask("POST", "/v1/jobs", spec, key)["id"])

    def job(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/v1/jobs/{quote(job, safe='')}")
        return found

    def until_workers(self, count: int, within_s: float = 90.0) -> None:
        """Wait until that many workers are healthy; on a busy machine the state service may not
        answer yet.
        """
        deadline, found = time.monotonic() + within_s, "no answer"
        while time.monotonic() < deadline:
            try:
                states = [
                    worker["state"] for worker in self.ask("GET", "/v1/workers?limit=500")["items"]
                ]
            except RuntimeError as error:
                found = str(error)
            else:
                if states.count("healthy") >= count:
                    return
                found = ", ".join(states)
            time.sleep(0.02)
        raise RuntimeError(f"fewer than {count} healthy workers after {within_s:g} s: {found}")


class Submitter:
    """Submissions, and reads, by an event loop that listens at the same time: no thread stands
    between the two.
    """

    def __init__(self, url: str) -> None:
        self._at = urlsplit(url)
        self._head = f"Host: {self._at.netloc}\r\nAuthorization: {_AUTHORIZATION}\r\n"

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._at.hostname, self._at.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def submit(self, **spec: Any) -> None:
        """Submit one job. Raises RuntimeError with the answer when it is not 201."""
        body = msgspec.json.encode(spec)
        head = f"POST /v1/jobs HTTP/1.1\r\n{self._head}Content-Type: application/json\r\n"
        await self._exchange(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body, b"201")

    async def get(self, path: str) -> bytes:
        """The body of one answer; asked again while there is no time for it. Raises RuntimeError
        with a refusal.
        """
        head = f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode()
        while True:
            if text := await self._exchange(head, b"200", b"503"):
                return text
            await asyncio.sleep(_RETRY_S)

    async def _exchange(self, request: bytes, wanted: bytes, later: bytes = b"") -> bytes:
        """The body of the answer; empty for the status that means to ask again."""
        self._writer.write(request)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in answer.split(b"\r\n")[1:-2])
        text = await self._reader.readexactly(int(fields[b"content-length"]))
        status = answer.split(None, 2)[1]
        if status not in (wanted, later):
            raise RuntimeError(f"{answer!r} {text!r}")
        return text if status == wanted else b""
