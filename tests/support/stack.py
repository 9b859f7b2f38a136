"""The stack of docker-compose.yml on a daemon that reaches no registry.

Its images are made of programs of this machine, by an override of the same file. Grafana is left
out: no part of it is here.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.house.repository import ROOT
from tests.support.cluster import until
from tests.support.docker import Docker
from tests.support.images import nats_image, nginx_image, prometheus_image
from tests.support.nats_config import free_ports

LEFT_OUT = frozenset({"grafana"})
_PROJECT = "iris"
_UP_S = 480
_LOOK_S = 0.5
"""A look starts a program or two."""


class Stack:
    """The services of docker-compose.yml.

    Attributes:
        url, prometheus: addresses on this machine. services: those that run, and `init`.
    """

    def __init__(self, docker: Docker, base: str, place: Path) -> None:
        self.docker = docker
        [http, prometheus] = free_ports(2)
        self.url, self.prometheus = f"http://127.0.0.1:{http}", f"http://127.0.0.1:{prometheus}"
        docker.environ |= {
            "HTTP": f"127.0.0.1:{http}",
            "PROMETHEUS": f"127.0.0.1:{prometheus}",
            "URL": self.url,
        }
        # What differs from a machine that reaches a registry: the base image, and a build without a
        # network.
        override = {"services": {"init": {"build": {"network": "none", "args": {"PYTHON": base}}}}}
        (place / "override.yml").write_text(json.dumps(override))
        self._files = ("--file", ROOT / "docker-compose.yml", "--file", place / "override.yml")
        yaml = pytest.importorskip(
            "yaml", reason="PyYAML comes with kubernetes-validate; `make venv` installs both"
        )
        self.file: dict[str, Any] = yaml.safe_load(self.compose("config"))
        self.services = {
            name for name, service in self.file["services"].items() if "profiles" not in service
        }
        self.services -= LEFT_OUT

    def compose(self, *words: object, within_s: float = 120) -> str:
        return self.docker.run(*self.command.split(), *words, within_s=within_s)

    @property
    def command(self) -> str:
        """That of Compose for this stack."""
        return " ".join(map(str, ("docker-compose", "--project-name", _PROJECT, *self._files)))

    def script(self, text: str, within_s: float = 240) -> str:
        """Run lines of a page, in which this stack's command stands for `docker compose`."""
        return self.docker.run(
            "sh", "-euc", text.replace("docker compose", self.command), within_s=within_s
        )

    def make_images(self) -> None:
        """Those of other programs; Compose builds our own."""
        services = self.file["services"]
        self.docker.image(services["nats-1"]["image"], nats_image())
        self.docker.image(services["nginx"]["image"], nginx_image())
        self.docker.image(services["prometheus"]["image"], prometheus_image())

    def container(self, service: str) -> str:
        label = f"label=com.docker.compose.service={service}"
        return self.docker("ps", "--all", "--quiet", "--filter", label).strip()

    def inspect(self, service: str, template: str) -> str:
        return self.docker("inspect", "--format", template, self.container(service)).strip()

    def run_in(self, service: str, *words: str) -> str:
        return self.docker("exec", self.container(service), *words)

    def starts(self, service: str) -> int:
        """How often Docker has started it again."""
        return int(self.inspect(service, "{{.RestartCount}}"))

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 120) -> Any:
        """What ``condition`` returns as soon as that is true."""
        return until(condition, what, seconds, _LOOK_S)

    def health(self) -> dict[str, str]:
        """What Docker says of each container that runs; it looks each 30 s."""
        ours = f"label=com.docker.compose.project={_PROJECT}"
        listed = self.docker(
            "ps",
            "--filter",
            ours,
            "--format",
            '{{.Label "com.docker.compose.service"}} {{.Status}}',
        )
        return dict(line.split(" ", 1) for line in listed.splitlines())

    def wait_ready(self, seconds: float = 120) -> None:
        """Until every service passes the check of its container, and a NATS server has fetched what
        it missed.
        """
        for service in sorted(self.services - {"init"}):
            self.until(partial(self._is_ready, service), f"{service} is ready", seconds)

    def _is_ready(self, service: str) -> bool:
        try:
            kind, *check = json.loads(self.inspect(service, "{{json .Config.Healthcheck.Test}}"))
            if kind != "CMD":
                raise ValueError(service)
            # As deploy/docker/update.sh asks, which is stricter.
            check = [word.replace("?js-server-only=true", "") for word in check]
            words = (
                [*check, "/readyz"]
                if self.file["services"][service]["image"] == "iris:local"
                else check
            )
            self.run_in(service, *words)
        except (AssertionError, subprocess.TimeoutExpired):
            return False
        return True

    def metric(self, service: str, name: str) -> float:
        """The value of a metric without labels; -1 while the service does not answer, or for no
        service.
        """
        address = service and self.inspect(
            service, "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        )
        try:
            with urllib.request.urlopen(f"http://{address}:9100/metrics", timeout=5) as answer:
                found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
        except (OSError, HTTPException):
            return -1
        return float(found[1]) if found else -1

    def leader(self) -> str:
        """The replica of the state service that leads; empty while none does, or both say so."""
        leading = [name for name in ("state-1", "state-2") if self.metric(name, "iris_leader") == 1]
        return leading[0] if len(leading) == 1 else ""

    def server_that_leads(self, stream: str) -> str:
        """The NATS server that leads the stream."""
        [found] = [one for one in self._streams("nats-1") if one["name"] == stream]
        return str(found["cluster"]["leader"])

    def copies_agree(self) -> bool:
        """Whether all servers have a copy of each stream, with the same last sequence."""
        names = ("nats-1", "nats-2", "nats-3")
        first, *others = [
            {one["name"]: one["state"]["last_seq"] for one in self._streams(name)} for name in names
        ]
        return first != {} and all(other == first for other in others)

    def _streams(self, server: str) -> list[dict[str, Any]]:
        page = "http://127.0.0.1:8222/jsz?streams=true&accounts=true"
        accounts = json.loads(self.run_in(server, "wget", "-q", "-O", "-", page))["account_details"]
        return [one for account in accounts for one in account.get("stream_detail", [])]


@contextmanager
def stack_of(docker: Docker, base: str, place: Path) -> Iterator[Stack]:
    """The stack, up and ready."""
    stack = Stack(docker, base, place)
    stack.make_images()
    try:
        stack.compose("up", "--detach", *sorted(stack.services), within_s=_UP_S)
        stack.wait_ready(_UP_S)
        yield stack
    finally:
        stack.compose("down", "--volumes", "--timeout", "0")
