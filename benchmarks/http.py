"""The few HTTP calls a benchmark makes, on one kept-alive connection."""

from __future__ import annotations

import http.client
import time
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec


class Gateway:
    """A gateway by its address; raises RuntimeError with the body of any answer that is not 2xx."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        data = msgspec.json.encode(body) if body is not None else None
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:2000]!r}")
        return msgspec.json.decode(text)

    def submit(self, **spec: Any) -> str:
        """Submit one job; its id."""
        return str(self.ask("POST", "/v1/jobs", spec)["id"])

    def job(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/v1/jobs/{quote(job, safe='')}")
        return found

    def until_workers(self, count: int, within_s: float = 30.0) -> None:
        """Wait until that many workers are healthy."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            page = self.ask("GET", "/v1/workers?limit=500")
            if sum(worker["state"] == "healthy" for worker in page["items"]) >= count:
                return
            time.sleep(0.02)
        raise RuntimeError(f"fewer than {count} workers after {within_s:g} s")
