"""Deployments in the load: created, scaled, updated to good and bad revisions, rolled back,
deleted.

Every answer is a promise that `serving` judges. A name is used once. Out of scope: requests to them
    (`requests`).
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iris import Client
from iris.client.problems import ClientError, Conflict, NotFound, Problem, TryAgain
from iris_core.views.deployments import DeploymentView
from tests.chaos import server

SERVER = Path(server.__file__)
MAX_DEPLOYMENTS = 3
"""Deployments that live at a time."""
_PAUSE_S = (0.5, 3.0)
_RETRY_S = 0.05
_ROUTES = (1, 3)
_POLICIES = (
    {"max_surge": 1, "max_unavailable": 0},
    {"max_surge": 2, "max_unavailable": 1},
    {"max_surge": "50%"},
)
_VERSIONS = ("good", "good", "good", "bad", "never")
_PROBE = {
    "interval_s": 0.5,
    "timeout_s": 2.0,
    "failures": 3,
    "start_timeout_s": 20.0,
    "grace_s": 3.0,
}
PROXY = {"connect_s": 1.0, "first_byte_s": 5.0, "queue_s": 3.0}
LONGEST_S = 3.0 + 3 * 1.0 + 5.0
"""Any answer takes at most so long: a place in the queue, three connections that time out, and the
first byte.
"""


@dataclass
class Service:
    """One deployment as its owner left it: what was acknowledged last."""

    name: str
    id: str
    replicas: int
    deleted: bool = False

    @property
    def path(self) -> str:
        return f"/v1/deployments/{self.name}"


@dataclass
class Deployments:
    """Somebody who owns a few deployments, until told to stop.

    Attributes:
        directory: where the servers look whether they are to fail their probes.
        asked: acknowledged requests by kind. wrong: refusals that are no answer to what was asked.
    """

    client: Client
    directory: Path
    rng: random.Random
    services: list[Service] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)
    _number: int = 0

    @property
    def live(self) -> list[Service]:
        return [service for service in self.services if not service.deleted]

    def run(self) -> None:
        self.directory.mkdir()
        while not self.enough.is_set():
            if len(self.live) < MAX_DEPLOYMENTS:
                self._create()
            else:
                act = self.rng.choice(
                    (self._update, self._update, self._update, self._scale, self._scale)
                )
                self.rng.choice((act, act, act, self._roll_back, self._delete))(
                    self.rng.choice(self.live)
                )
            self.enough.wait(self.rng.uniform(*_PAUSE_S))

    def _create(self) -> None:
        """A new one; the first ones serve, one of the later ones may not."""
        self._number += 1
        name, replicas = f"service-{self._number}", self.rng.randint(*_ROUTES)
        body = {
            "name": name,
            "replicas": replicas,
            "template": self._template(
                "good" if self._number <= MAX_DEPLOYMENTS else self.rng.choice(_VERSIONS)
            ),
            "update": {
                "min_ready_s": 0.5,
                "progress_deadline_s": 30.0,
                **self.rng.choice(_POLICIES),
            },
            "proxy": PROXY,
            "settle_s": 1.0,
            "grace_s": 3.0,
        }
        made = self._ask("create", lambda key: self._send("POST", "/v1/deployments", body, key))
        if made is not None:
            self.services.append(Service(name, made.id, replicas))

    def _template(self, kind: str) -> dict[str, Any]:
        command = [
            sys.executable,
            str(SERVER),
            f"{kind}-{self.rng.randrange(1_000_000)}",
            str(self.directory),
        ]
        return {"command": command, "resources": {"cpu_millis": 100}, "probe": _PROBE}

    def _update(self, service: Service) -> None:
        body = {"template": self._template(self.rng.choice(_VERSIONS))}
        self._patch("update", service, body)

    def _scale(self, service: Service) -> None:
        replicas = self.rng.randint(*_ROUTES)
        if self._patch("scale", service, {"replicas": replicas}) is not None:
            service.replicas = replicas

    def _roll_back(self, service: Service) -> None:
        """Refused where there is nothing to go back to."""
        self._patch("rollback", service, {"revision": 0}, lawful=(Conflict, NotFound))

    def _delete(self, service: Service) -> None:
        if (
            self._ask("delete", lambda key: self._send("DELETE", service.path, None, key))
            is not None
        ):
            service.deleted = True

    def _patch(
        self,
        kind: str,
        service: Service,
        body: dict[str, Any],
        lawful: tuple[type[Problem], ...] = (),
    ) -> DeploymentView | None:
        return self._ask(kind, lambda key: self._send("PATCH", service.path, body, key), lawful)

    def _send(self, method: str, path: str, body: object, key: str) -> DeploymentView:
        return self.client.change(method, path, DeploymentView, body=body, key=key)

    def _ask(
        self,
        kind: str,
        send: Callable[[str], DeploymentView],
        lawful: tuple[type[Problem], ...] = (),
    ) -> DeploymentView | None:
        """With one key until it is answered, for nobody knows what became of it before; None when
        it was refused.
        """
        key = f"chaos-{kind}-{self.rng.randrange(1 << 60):x}"
        while True:
            try:
                answer = send(key)
            except Problem as problem:
                if isinstance(problem, TryAgain):
                    continue
                if not isinstance(problem, lawful):
                    self.wrong.append(f"wrong: {kind} of a deployment was refused: {problem}")
                return None
            except ClientError:
                time.sleep(_RETRY_S)
            else:
                self.asked[kind] += 1
                return answer

    def delete_all(self) -> None:
        """Nothing of it is to be left."""
        for service in self.live:
            self.client.change("DELETE", service.path, DeploymentView)
            service.deleted = True
