"""The handle of a deployment: wait until it serves, scale, update, roll back, delete.

Out of scope: sending requests (`http.transport`), options (`options.deployments`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Unpack

from iris.client.http.api import GatewayApi
from iris.client.http.events import read_events
from iris.client.http.transport import in_path
from iris.client.options.deployments import deployment_fields
from iris.client.options.jobs import CommandLine
from iris.client.options.names import takes
from iris.client.problems import DeploymentFailed, InvalidOption, WaitTimeout, following
from iris_core.spec.option_table import DeployOptions
from iris_core.units import counted
from iris_core.views.deployments import DeploymentView, RouteView
from iris_core.views.jobs import HistoryRow

_POLL_S = 2.0
"""How often the deployment is polled, for changes without an event, such as the end of retries."""
_FAILURE_CODES = frozenset({"crash_loop", "rolled_back", "update_failed"})


def resumable(deployment: Deployment) -> AbstractContextManager[None]:
    """As `jobs.resumable`."""
    name = deployment.name
    return following(
        name, f"`client.deployment({name!r})` returns to it, `iris deploy show {name}` shows it"
    )


class Deployment:
    """One deployment, by its name."""

    def __init__(self, api: GatewayApi, deployment: DeploymentView) -> None:
        self._api = api
        self._path = f"/v1/deployments/{in_path(deployment.name)}"
        self._wanted = deployment.revision
        self._seen = deployment
        self._on_look: Callable[[DeploymentView], None] | None = None
        self.id = deployment.id
        self.name = deployment.name

    def __repr__(self) -> str:
        return f"<Deployment {self.name} {self.status}>"

    @property
    def status(self) -> str:
        """Lower case, as last read; `refresh` reads it again."""
        return self._seen.status

    @property
    def view(self) -> DeploymentView:
        """The whole object, as last read."""
        return self._seen

    @property
    def is_ready(self) -> bool:
        """Whether all routes served and no update was in progress, when last read."""
        seen = self._seen
        return seen.status == "ready" and seen.update is None and seen.ready >= seen.replicas

    def refresh(self) -> DeploymentView:
        """Read it again. Raises Problem, Unreachable."""
        self._seen = self._api.get(self._path, DeploymentView)
        return self._seen

    def wait_ready(
        self,
        timeout: float | None = None,
        *,
        on_look: Callable[[DeploymentView], None] | None = None,
    ) -> DeploymentView:
        """Wait until every route of the requested revision serves; returns the deployment.

        Args:
            timeout: seconds; None waits for ever. on_look: called with the deployment each time it
                was read.

        Raises DeploymentFailed (it is rolled back, has failed, or is deleted), WaitTimeout,
        Problem, Unreachable.
        """
        self._on_look = on_look
        deadline = None if timeout is None else time.monotonic() + timeout
        with resumable(self):
            while not self.is_ready_within(
                _POLL_S if deadline is None else min(_POLL_S, deadline - time.monotonic())
            ):
                if deadline is not None and time.monotonic() >= deadline:
                    raise self.gave_up(timeout)
        return self._seen

    def is_ready_within(self, seconds: float = _POLL_S) -> bool:
        """True when it is ready now; else False after its next event, or after so many seconds.

        Raises as `wait_ready`.
        """
        with self._api.stream(
            "/v1/events", {"deployment": self.name}, timeout=max(seconds, 0.01)
        ).open() as news:
            if self._has_come():
                return True
            next(read_events(news), None)
            return False

    def gave_up(self, timeout: float | None) -> WaitTimeout:
        """The error of a wait that lasted longer than ``timeout`` seconds."""
        seen = self._seen
        others = sum(route.discovered and route.revision != seen.revision for route in seen.routes)
        of_it = (
            f"of revision {seen.revision} serve, and {others} of other revisions,"
            if others
            else "serve"
        )
        serve = f"{seen.ready - others} of {counted(seen.replicas, 'route')} {of_it}"
        return WaitTimeout(
            f"{self.name}: {serve} after {round(timeout or 0.0, 1):g} s ({seen.status}); it goes on"
        )

    def _has_come(self) -> bool:
        """Whether it is ready. Raises DeploymentFailed when it will not become ready."""
        seen = self.refresh()
        if self._on_look is not None:
            self._on_look(seen)
        if seen.id != self.id or seen.status in ("destroying", "destroyed"):
            raise DeploymentFailed(self.name, f"{self.name} is being deleted")
        for condition in seen.conditions:
            of_this = condition.code != "rolled_back" or seen.revision != self._wanted
            if condition.code in _FAILURE_CODES and of_this:
                raise DeploymentFailed(self.name, f"{self.name}: {condition.message}")
        return self.is_ready

    def scale(self, replicas: int) -> DeploymentView:
        """Set the number of routes."""
        return self._patch({"replicas": replicas})

    @takes(DeployOptions)
    def update(
        self,
        command: CommandLine | None = None,
        *,
        version: int | None = None,
        **options: Unpack[DeployOptions],
    ) -> DeploymentView:
        """Change the given options; others are unchanged. Another command, environment or port is a
        new revision.

        ``version``: raises Conflict when the deployment has another version. Raises InvalidOption.
        """
        fields = deployment_fields(command, options)
        if not fields:
            raise InvalidOption("specify what to change")
        return self._patch(fields, version)

    def rollback(self, revision: int = 0) -> DeploymentView:
        """Roll back to a revision, or to the one before. Raises NotFound, Conflict."""
        return self._patch({"revision": revision})

    def pause(self) -> DeploymentView:
        """Pause an update."""
        return self._patch({"paused": True})

    def resume(self) -> DeploymentView:
        """Resume an update, and retry after failed starts."""
        return self._patch({"paused": False})

    def delete(self) -> DeploymentView:
        """Remove its routes from discovery and stop them."""
        self._seen = self._api.change("DELETE", self._path, DeploymentView)
        return self._seen

    def routes(self) -> Iterator[RouteView]:
        """Its routes, newest first, including the last few that have ended."""
        return self._api.pages(f"{self._path}/routes", RouteView)

    def history(self) -> Iterator[HistoryRow]:
        """Judgements about it and its routes, oldest first."""
        return self._api.pages(f"{self._path}/history", HistoryRow)

    def why(self) -> dict[str, Any]:
        """Its conditions, the routes that do not serve, and the newest judgements."""
        return self._api.get(f"{self._path}/why", dict[str, Any])

    def _patch(self, fields: dict[str, Any], version: int | None = None) -> DeploymentView:
        self._seen = self._api.change(
            "PATCH", self._path, DeploymentView, body=fields, version=version
        )
        self._wanted = self._seen.revision
        return self._seen
