"""deploy/docker/update.sh, run twice on a stack that works: nobody who uses the cluster notices, and
no request through nginx fails.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException

import pytest

from iris import Client
from iris.client.jobs import Job
from tests.house.repository import ROOT
from tests.support.docker import Docker
from tests.support.stack import LEFT_OUT, Stack, stack_of

pytestmark = [pytest.mark.docker, pytest.mark.soak, pytest.mark.timeout(2400)]

WAIT_S = 240
UPDATE_S = 900
TIMES = 2
PAUSE_S, JOB_PAUSE_S = 0.05, 1.0


@dataclass
class Asking:
    """Requests to one address, one after the other, none of them repeated.

    Attributes:
        submits: each request submits a job of its own, which is held.
        answers: what has been answered, how often: a status or what went wrong.
        failures: when each failure began, in seconds since the start, and what it was.
    """

    url: str
    token: str = ""
    submits: bool = False
    answers: Counter[int | str] = field(default_factory=Counter)
    failures: list[tuple[float, int | str]] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        began_s = time.monotonic()
        while not self.enough.wait(PAUSE_S):
            at_s = time.monotonic() - began_s
            answer = self._ask(self._request())
            self.answers[answer] += 1
            if answer != self.wanted:
                self.failures.append((at_s, answer))

    @property
    def wanted(self) -> int:
        return 201 if self.submits else 200

    def _request(self) -> urllib.request.Request:
        headers = {"Authorization": f"Bearer {self.token}"}
        if not self.submits:
            return urllib.request.Request(self.url, headers=headers)
        number = self.answers.total()
        job = {"name": f"/submitted-{number}", "command": ["true"], "hold": True}
        headers["Content-Type"] = "application/json"
        return urllib.request.Request(self.url, json.dumps(job).encode(), headers)

    def _ask(self, request: urllib.request.Request) -> int | str:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except (OSError, HTTPException) as error:
            return repr(error)


@dataclass
class Tasks:
    """Short jobs, a new one when the one before is acknowledged."""

    client: Client
    jobs: list[Job] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.enough.wait(JOB_PAUSE_S):
            self.jobs.append(
                self.client.run(["sleep", "2"], name=f"short-{len(self.jobs)}", cpu=0.1, replicas=2)
            )


@contextmanager
def under(*loads: Asking | Tasks) -> Iterator[None]:
    """Load until the block has ended; what it dies of is raised."""
    with ThreadPoolExecutor(len(loads)) as pool:
        running = [pool.submit(load.run) for load in loads]
        try:
            yield
        finally:
            for load in loads:
                load.enough.set()
        for one in running:
            one.result(WAIT_S)


def update(stack: Stack) -> None:
    """By the script as it stands; Grafana is not here."""
    services = [
        name for name in stack.file["services"] if name in stack.services - LEFT_OUT - {"init"}
    ]
    environ = {**stack.docker.environ, "COMPOSE": stack.command}
    done = subprocess.run(
        [ROOT / "deploy/docker/update.sh", *sorted(services, key=ORDER.index)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=UPDATE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def script_order() -> list[str]:
    """The services in the order of the script."""
    text = (ROOT / "deploy/docker/update.sh").read_text()
    return (
        text[text.index("set -- ") + len("set -- ") : text.index("\nfi\nfor ")]
        .replace("\\\n", " ")
        .split()
    )


ORDER = script_order()


def test_an_update_names_every_service_of_the_stack():
    yaml = pytest.importorskip("yaml")
    file = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    assert sorted(ORDER) == sorted(
        n for n, one in file["services"].items() if "profiles" not in one and n != "init"
    )


def test_nobody_notices_two_updates_of_all_containers(
    docker: Docker, base_image: str, tmp_path_factory: pytest.TempPathFactory
):
    with stack_of(docker, base_image, tmp_path_factory.mktemp("stack")) as stack:
        token = stack.compose(
            "run", "--rm", "--entrypoint", "cat", "cli", "/etc/iris/token"
        ).strip()
        with Client(stack.url, token=token, retry_for_s=WAIT_S) as client:
            place = ROOT / "examples" / "serve"
            deployment = client.deploy(
                ["python", "server.py"],
                "chat",
                workdir=place,
                cpu=0.1,
                replicas=2,
                start_timeout="120s",
            )
            deployment.wait_ready(WAIT_S)
            containers = {
                name: stack.container(name) for name in stack.services - {"init", "nginx"}
            }
            asking = (
                Asking(f"{stack.url}/d/chat/healthz"),
                Asking(f"{stack.url}/v1/jobs?limit=1", token),
                Asking(f"{stack.url}/v1/jobs", token, submits=True),
            )
            tasks = Tasks(client)
            with under(*asking, tasks):
                for _ in range(TIMES):
                    update(stack)
            assert [one.failures for one in asking] == [[], [], []]
            assert all(one.answers[one.wanted] for one in asking)
            for job in tasks.jobs:
                job.wait(WAIT_S)
                job.raise_for_state()
            assert all(stack.container(name) != before for name, before in containers.items()), (
                "all are new"
            )
