"""Tells how routes of a deployment end while a command waits for it, and when an update gives up.

Out of scope: waiting (`iris.client.deployments`), tables (`deployment_tables`).
"""

from __future__ import annotations

from collections.abc import Iterator

from iris.cli.commands.serve.deployment_tables import ENDED, giving_up
from iris.cli.follow import note
from iris.cli.output.tables import state_word
from iris.client.client import Client
from iris.client.deployments import Deployment
from iris.client.http.transport import in_path
from iris.client.problems import ClientError
from iris_core.codec import to_builtins
from iris_core.views.causes import last_printed
from iris_core.views.deployments import DeploymentView, RouteView


class RouteDeaths:
    """The ends of routes that were reported; those before the wait are not."""

    def __init__(self, client: Client, found: Deployment) -> None:
        self._client = client
        self._reported = {route.id for route in _ended(found.view)}
        self._said = ""

    def tell(self, seen: DeploymentView) -> None:
        """Print each route that has failed since, with its last line, and when the update will give
        up.
        """
        deaths = [route for route in _ended(seen) if route.id not in self._reported]
        for route in deaths:
            self._reported.add(route.id)
            if route.status == "failed_to_start" or route.revision == seen.revision:
                note(f"{route.id} {_end_of(route)}")
                if line := self._last_line(route):
                    note(f"  {line}")
        update = None if seen.update is None else giving_up(to_builtins(seen.update))
        if update and (deaths or not self._said):
            note(f"{seen.name}: {update}")
        self._said = self._said or update or ""

    def _last_line(self, route: RouteView) -> str:
        """What it printed last to stderr; empty when that is not kept, or not for this caller."""
        try:
            return last_printed(
                self._client.get(f"/v1/tasks/{in_path(f'{route.job_id or route.job}/0')}", dict)
            )
        except ClientError:
            return ""


def _ended(seen: DeploymentView) -> Iterator[RouteView]:
    return (route for route in seen.routes if route.status in ENDED)


def _end_of(route: RouteView) -> str:
    return f"{state_word(route.status)}{f': {route.detail}' if route.detail else ''}"
