"""Samples workers and deployments throughout the run.

It sees how many workers became LOST and came back, and that deployments have no more routes than
they may.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from iris import Client
from iris.client.problems import ClientError
from iris_core.views.deployments import DeploymentView
from iris_state.records.deployments import rollout
from tests.chaos.serving import LIVE_STATUSES

_LOOK_S = 0.4


@dataclass
class Watch:
    """Counts until it is told to stop; what happens while nobody answers is not seen, so it counts
    too few.
    """

    client: Client
    changes: Counter[str] = field(default_factory=Counter)
    lost: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    looks: int = 0
    enough: threading.Event = field(default_factory=threading.Event)
    _states: dict[str, str] = field(default_factory=dict)
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)

    def run(self) -> None:
        while not self.enough.wait(_LOOK_S):
            try:
                for worker in self.client.workers():
                    self._note(worker.id, worker.state)
                for deployment in list(self.client.deployments()):
                    self._look(self.client.deployment(deployment.name).view)
            except ClientError:
                continue

    def _note(self, worker: str, state: str) -> None:
        before = self._states.get(worker, state)
        self._states[worker] = state
        if state == "lost":
            self.lost.add(worker)
        if before != state and "lost" in (before, state):
            self.changes["became LOST" if state == "lost" else "came back"] += 1

    def _look(self, view: DeploymentView) -> None:
        """Whatever happens there live at most as many routes as may; none is made while as many are
        held.
        """
        self.looks += 1
        most = view.replicas + rollout.target(view.spec.update, view.replicas).surge
        live = [route.id for route in view.routes if route.status in LIVE_STATUSES]
        held = [route.id for route in view.routes if route.status != "terminated"]
        newest = max([int(id_.rpartition("-")[2]) for id_ in held], default=0)
        if len(live) > (0 if view.status.startswith("destroy") else most):
            self.wrong.append(
                f"wrong: {view.name} is {view.status} with the routes {live}, at most {most} may live"
            )
        version, before = self._seen.get(view.id, (0, 0))
        if version == view.version and newest > before and len(held) > most:
            self.wrong.append(
                f"wrong: {view.name} has made r{newest} and holds {held}, at most {most} are allowed"
            )
        self._seen[view.id] = (view.version, max(newest, before))
