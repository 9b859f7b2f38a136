"""``night_load.py load|compare URL CA TOKEN_FILE FILE``: a steady load through a balancer, and
whether everything that was acknowledged is there.

``load`` reads the list of jobs and submits short jobs until it is killed. Each answer is a line of
FILE, and so is each job that was acknowledged: a submission is sent again with its key until it
is. ``compare`` reads the ids of jobs from its standard input and prints the state of each.
Standard library only: it runs on a machine of the test beside any build.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from itertools import count
from pathlib import Path
from typing import Any

READ_PAUSE_S, SUBMIT_PAUSE_S, AGAIN_S = 0.1, 1.0, 0.5
ACKNOWLEDGED = (200, 201)


class Api:
    """Requests with a token; every answer is noted."""

    def __init__(self, url: str, authority: str, token: str) -> None:
        self._url = url
        self._token = token
        self._trusted = ssl.create_default_context(cafile=authority)

    def ask(self, path: str, body: dict[str, Any] | None = None, key: str = "") -> tuple[int, Any]:
        """The status and the body of an answer; 0 and why there was none."""
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        if key:
            headers["idempotency-key"] = key
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self._url}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60, context=self._trusted) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
        except (OSError, HTTPException) as error:
            return 0, repr(error)


class Notes:
    """Lines of a file, from several threads."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()

    def add(self, **said: object) -> None:
        with self._lock:
            self._file.write(json.dumps({"at": time.time(), **said}) + "\n")


def read_jobs(api: Api, notes: Notes) -> None:
    """One request after another."""
    while True:
        status, said = api.ask("/v1/jobs?limit=1")
        wrong = {} if status in ACKNOWLEDGED else {"said": str(said)[:300]}
        notes.add(method="GET", status=status, **wrong)
        time.sleep(READ_PAUSE_S)


def submit_jobs(api: Api, notes: Notes) -> None:
    """One job after another, each until it is acknowledged."""
    for number in count(1):
        name = f"/night-{number}"
        body = {"name": name, "command": ["true"], "resources": {"cpu_millis": 100}}
        status = 0
        while status not in ACKNOWLEDGED:
            status, said = api.ask("/v1/jobs", body, key=name)
            if status in ACKNOWLEDGED:
                notes.add(method="POST", status=status, name=name, id=said["id"])
            else:
                notes.add(method="POST", status=status, name=name, said=str(said)[:300])
                time.sleep(AGAIN_S)
        time.sleep(SUBMIT_PAUSE_S)


def main() -> None:
    what, url, authority, token_file, file = sys.argv[1:]
    api = Api(url, authority, Path(token_file).read_text().strip())
    if what == "compare":
        for job in sys.stdin.read().split():
            status, said = api.ask(f"/v1/jobs/{job}")
            print(job, said["state"] if status in ACKNOWLEDGED else f"{status} {said}")
        return
    notes = Notes(Path(file))
    threading.Thread(target=read_jobs, args=(api, notes), daemon=True).start()
    submit_jobs(api, notes)


if __name__ == "__main__":
    main()
