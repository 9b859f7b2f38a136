"""Updates a file with a deployment's routes, and runs a command that makes a proxy reload it.

Source: docs/design/serving.md#discovery.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from iris.cli.follow import note
from iris.client.client import Client
from iris.client.http.transport import in_path
from iris.client.problems import ClientError
from iris_core.backoff import Backoff
from iris_core.spec.serving import Discovery
from iris_core.units import counted

QUIET_S = 1
LONGEST_QUIET_S = 10.0
_WAIT_S = 20
_FIRST_PAUSE_S = 1
_LONGEST_PAUSE_S = 20


class DiscoveryFile:
    """One file, its template, and the commands run when it changes.

    Args:
        then: a shell command; run again until it succeeds. check: one that may refuse the new file.
    """

    def __init__(self, template: Path, out: Path, then: str, check: str) -> None:
        try:
            import jinja2
        except ImportError:
            raise click.ClickException(
                "templates need Jinja2: pip install 'iris-control-plane[server]'"
            ) from None
        loader = jinja2.FileSystemLoader(template.parent)
        strict = jinja2.Environment(
            loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
        )
        self._errors = jinja2.TemplateError
        self._template = strict.get_template(template.name)
        self._out = out
        self._then = then
        self._check = check
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self.due = False

    def update(self, found: Discovery) -> None:
        """Write the file if its content changes, and run the command if the file was written or the
        command has failed before.
        """
        try:
            text = self._template.render(variables(found)).encode()
        except self._errors as error:
            note(f"the template fails, so {self._out} stays: {error}")
            return
        before = self._out.read_bytes() if self._out.exists() else None
        if text != before:
            replace(self._out, text)
            if self._check and not run(self._check):
                note(
                    f"{self._check!r} refuses the routes of version {found.version}, so {self._out} is restored"
                )
                self._go_back(before)
                return
            self.due = True
            routes = counted(len(found.routes), "route")
            note(f"{self._out} holds {routes} of {found.deployment}, version {found.version}")
        self.due = self.due and bool(self._then) and not run(self._then)
        if self.due:
            self._backoff.next_s()
        else:
            self._backoff.reset()

    @property
    def wait_s(self) -> int:
        """Seconds to wait for a change before the next request."""
        return round(self._backoff.pause_s) if self.due else _WAIT_S

    def _go_back(self, before: bytes | None) -> None:
        if before is None:
            self._out.unlink()
        else:
            replace(self._out, before)


def follow(client: Client, name: str, file: DiscoveryFile) -> None:
    """Keep the file up to date until interrupted; while the gateway cannot be reached the file is
    unchanged.
    """
    version = 0
    while True:
        try:
            found = settled(client, name, version, file.wait_s)
        except ClientError as error:
            note(f"the routes of {name} are not known, the file stays: {error}")
            time.sleep(_FIRST_PAUSE_S)
            continue
        version = found.version
        file.update(found)


def settled(client: Client, name: str, version: int, wait_s: int) -> Discovery:
    """The set when its version has changed or so many seconds have passed, after changes have
    stopped, at most ten seconds later.
    """
    found = fetch(client, name, version, wait_s)
    until = time.monotonic() + LONGEST_QUIET_S
    while version and found.version != version and time.monotonic() < until:
        version = found.version
        found = fetch(client, name, version, QUIET_S)
    return found


def fetch(client: Client, name: str, after: int, wait_s: int) -> Discovery:
    """Raises ClientError."""
    path = f"/v1/deployments/{in_path(name)}/discovery"
    return client.get(path, Discovery, {"after": after, "wait_s": wait_s})


def variables(found: Discovery) -> dict[str, Any]:
    """What a template may use."""
    routes = []
    for route in found.routes:
        host, _, port = route.address.rpartition(":")
        routes.append(
            {
                "id": route.id,
                "address": route.address,
                "host": host,
                "port": port,
                "state": route.state,
            }
        )
    return {
        "deployment": found.deployment,
        "version": found.version,
        "reason": found.reason,
        "routes": routes,
    }


def replace(path: Path, data: bytes) -> None:
    """Replace a file atomically; it keeps its mode."""
    umask = os.umask(0)
    os.umask(umask)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~umask
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as draft:
        draft.write(data)
    os.chmod(draft.name, mode)
    os.replace(draft.name, path)


def run(command: str) -> bool:
    """Whether a shell command succeeds; its output is shown."""
    code = subprocess.run(command, shell=True, stdin=subprocess.DEVNULL, check=False).returncode
    if code:
        note(f"{command!r} ended with {code}")
    return code == 0
