"""Starts a local cluster: starts its supervisor, then waits until the cluster is ready.

The supervisor reports on a pipe that everything is started, or why not. Out of scope: running the
processes (`supervisor`), stopping them (`teardown`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from iris.cli.errors import complain
from iris.cli.exit_codes import ExitCode
from iris.cli.follow import note
from iris.cli.output.progress import StatusLine
from iris.client.client import Client
from iris.client.http.address import (
    ClusterFile,
    data_dir,
    find_gateway,
    leads_to,
    read_cluster,
    read_token,
)
from iris.client.http.transport import HttpRequest
from iris.client.problems import ClientError, InvalidOption, NoGateway, Problem, Unreachable
from iris.cluster.options import StartedCluster, StartOptions
from iris.cluster.paths import ClusterPaths, lock_holder
from iris.cluster.process import ISOLATED
from iris_bus.connection.keys import write_private
from iris_core.limits import LOGIN_LINK_MINUTES
from iris_core.placement.constraints import DEVICE_TYPE
from iris_core.placement.limits import LIMIT_MEMORY
from iris_core.units import counted
from iris_service.child import end_with_parent

_LOOK_S = 0.03
_HELD = {
    "none": "not at all",
    "rlimit": "by the address space of each process",
    "sampled": "by samples, once a second,",
}


def launch(data: Path, config: Path | None, given: Mapping[str, Any], *, detach: bool) -> int:
    """Start a cluster on ``data`` and wait until it is ready; without ``detach`` wait until it has
    ended.
    """
    check_utf8(data)
    paths = ClusterPaths(data)
    paths.prepare()
    options = StartOptions(
        data=str(data),
        config=str(config.absolute()) if config else "",
        given=dict(given),
        attached=not detach,
    )
    with StatusLine(sys.stderr) as status:
        status.show("starting NATS and the services")
        supervisor, first_words = start_supervisor(options, paths, detach=detach)
    verdict, _, rest = first_words.partition(" ")
    if verdict != "started":
        supervisor.wait()
        if verdict == "occupied" and detach:
            return join(paths)
        complain(rest or f"the supervisor ended at once; see {paths.logs / 'supervisor.log'}")
        return ExitCode.CONFLICT if verdict == "occupied" else ExitCode.UNEXPECTED
    try:
        return attend(msgspec.json.decode(rest, type=StartedCluster), paths, supervisor, detach)
    except BaseException:  # nobody else would know that it runs
        supervisor.terminate()
        supervisor.wait()
        raise


def check_utf8(data: Path) -> None:
    """Refuse a directory whose name no file of the cluster can contain. Raises InvalidOption."""
    try:
        str(data).encode()
    except UnicodeEncodeError:
        raise InvalidOption(
            f"the data directory {os.fsencode(data)!r} is not UTF-8; choose another with --data"
        ) from None


def attend(
    started: StartedCluster, paths: ClusterPaths, supervisor: subprocess.Popen[bytes], detach: bool
) -> int:
    """Wait until what was started is ready; without ``detach`` until it has ended, too."""
    try:
        with StatusLine(sys.stderr) as status:
            missing = wait_until_ready(started, lambda: supervisor.poll() is not None, status)
    except KeyboardInterrupt:
        supervisor.terminate()
        supervisor.wait()
        return ExitCode.DETACHED
    if missing:
        complain_of(missing, paths)
        supervisor.terminate()
        supervisor.wait()
        return ExitCode.UNEXPECTED
    for words in set_pools(started, paths):
        note(f"warning: {words}")
    if not started.auth:
        note(
            f"warning: no authentication: whoever reaches {started.url} is admin and runs commands as you"
        )
    for warning in (
        *started.warnings,
        *warnings_of_hosts(started),
        *elsewhere(started.url, paths.data),
    ):
        note(f"warning: {warning}")
    if detach:
        for line in remarks(started, paths.data) if sys.stderr.isatty() else ():
            note(line)
        click.echo(started.url)
        return ExitCode.SUCCEEDED
    return stay(started, paths.data, supervisor)


def set_pools(started: StartedCluster, paths: ClusterPaths) -> list[str]:
    """Set the pools of the start, but for those that somebody has changed since the last one;
    returns what was not done, each in a sentence.
    """
    if not started.pools:
        return []
    said = []
    with connect(started) as client:
        versions = read_versions(paths)
        known = {pool.name: pool.version for pool in client.pools()}
        for spec in started.pools:
            if spec.name in known and known[spec.name] != versions.get(spec.name):
                words = f"pool {spec.name} was changed since it was set at a start, and stays so"
                said.append(words)
                continue
            try:
                versions[spec.name] = client.replace_pool(spec).version
            except ClientError as error:
                said.append(f"pool {spec.name} is not set: {error}")
        write_private(paths.pools, msgspec.json.encode(versions).decode())
    return said


def read_versions(paths: ClusterPaths) -> dict[str, int]:
    """The versions of the pools that were set at the last start; of none where the file is not
    there or damaged.
    """
    try:
        return msgspec.json.decode(paths.pools.read_bytes(), type=dict[str, int])
    except (OSError, msgspec.DecodeError):
        return {}


def join(paths: ClusterPaths) -> int:
    """Wait until the cluster that another `iris up` has started on this directory is ready, and
    print its address.
    """
    with StatusLine(sys.stderr) as status:
        status.show("waiting for the cluster that another `iris up` is starting")
        running = find_running(paths)
        if running is None:
            complain(f"the cluster that was starting on {paths.data} has ended; see {paths.logs}")
            return ExitCode.UNEXPECTED
        address = running.proxy_url.removeprefix("http://")
        workers = len(running.pids.get("worker", ()))
        started = StartedCluster(
            running.url,
            address,
            workers,
            running.ready_s,
            sandbox=True,
            auth=True,
            token_file=running.token_file,
        )
        missing = wait_until_ready(started, lambda: lock_holder(paths) is None, status)
    if missing:
        complain_of(missing, paths)
        return ExitCode.UNEXPECTED
    note(f"the cluster on {paths.data} is up already; options have no effect on it")
    click.echo(running.url)
    return ExitCode.SUCCEEDED


def find_running(paths: ClusterPaths) -> ClusterFile | None:
    """What the supervisor that holds the lock has written, once it has; None when it has ended."""
    while holder := lock_holder(paths):
        running = read_cluster(paths.data)
        if running is not None and holder in running.pids.get("supervisor", ()):
            return running
        time.sleep(_LOOK_S)
    return None


def remarks(started: StartedCluster, data: Path) -> list[str]:
    """How to reach a cluster that is ready, line by line."""
    lines = [f"its data: {data}"]
    if not is_default(data):
        lines[0] += f"; `export IRIS_DATA={shlex.quote(str(data))}` in other shells"
    if started.token_file:
        lines.append(f"your token: {started.token_file}; iris and the SDK find it there")
    elif started.auth:
        lines.append("it requires a token that [gateway] names; set IRIS_TOKEN to yours")
    if started.auth:
        with connect(started) as client, contextlib.suppress(ClientError):
            within = f"within {LOGIN_LINK_MINUTES} minutes"
            lines.append(f"a link that signs a browser in, once, {within}: {client.login_link()}")
            lines.append("`iris open` makes another")
    if not started.sandbox:
        lines.append("tasks run as you without a sandbox; --sandbox confines them")
    elif os.geteuid() == 0 and (closed := closed_directory(Path(sys.executable))):
        lines.append(
            f"tasks run as users of their own, who may not enter {closed}: calls of maps are run by "
            f"the python of their PATH, not by {sys.executable}; `chmod o+x {closed}` lets them in"
        )
    return lines


def closed_directory(program: Path) -> Path | None:
    """The uppermost directory above a program, or above what it is a link to, that other users may
    not enter.
    """
    above = [*reversed(program.parents), *reversed(program.resolve().parents)]
    return next((one for one in above if not one.stat().st_mode & stat.S_IXOTH), None)


def elsewhere(url: str, data: Path, environ: Mapping[str, str] = os.environ) -> list[str]:
    """That commands of this shell go to another gateway than the cluster's, and what brings them
    here; empty: they do not, or find none.
    """
    try:
        found = find_gateway(environ=environ)
    except (
        InvalidOption,
        NoGateway,
        RuntimeError,
    ):  # the last: a user without a home, as in a container
        return []
    if leads_to(found.url, url):
        return []
    given = (
        f"IRIS_URL={url}"
        if is_default(data, environ)
        else f"IRIS_DATA={shlex.quote(str(data))} IRIS_URL={url}"
    )
    source = "the context in use" if found.origin == "context" else found.origin
    return [
        f"from this shell, iris and the SDK go to {found.url} ({source}), not here; to go here: export {given}"
    ]


def is_default(data: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the command line looks for the cluster there by itself."""
    try:
        return data == data_dir(environ)
    except RuntimeError:  # a user without a home, as in a container
        return False


def connect(started: StartedCluster) -> Client:
    """A client of what has been started, with the owner's token, or without one as any other
    client.
    """
    return Client(started.url, token=read_token(started.token_file) or None, retry_for_s=0.0)


def start_supervisor(
    options: StartOptions, paths: ClusterPaths, *, detach: bool
) -> tuple[subprocess.Popen[bytes], str]:
    """Start the supervisor's process and read its reply."""
    read_end, write_end = os.pipe()
    program = [sys.executable, *ISOLATED, "-m", "iris.cluster"]
    with (paths.logs / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            [*program, str(write_end), msgspec.json.encode(options).decode()],
            stdin=subprocess.DEVNULL,
            stdout=log if detach else subprocess.PIPE,
            stderr=log,
            pass_fds=[write_end],
            start_new_session=True,
            preexec_fn=None if detach else end_with_parent(),  # noqa: PLW1509 - this process has one thread
        )
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        return process, pipe.read()


def wait_until_ready(
    started: StartedCluster, has_ended: Callable[[], bool], status: StatusLine
) -> str:
    """Return an empty text once jobs can be submitted, placed and run, and the proxy listens; else
    what is missing. Raises InvalidOption when no request can be sent.
    """
    until = time.monotonic() + started.ready_s
    missing = ""
    known = bool(started.token_file)
    looks = (
        look_scheduler(known=known),
        look_workers(started.workers, known=known),
        look_proxy(started.proxy),
    )
    with connect(started) as client:
        for look in (look_ready, *looks):
            while missing := look(client):
                status.show(missing)
                if time.monotonic() > until:
                    return f"the cluster is not ready after {started.ready_s:g} s: {missing}"
                if has_ended():
                    return "the cluster could not start"
                time.sleep(_LOOK_S)
    return missing


def look_ready(client: Client) -> str:
    """What is missing until the gateway is ready, empty when nothing is."""
    try:
        client.transport.send(HttpRequest("GET", "/readyz"))
    except Problem as problem:
        return str(problem)
    except Unreachable:
        return "the gateway does not listen"
    return ""


def _unless_denied(error: ClientError, *, known: bool) -> str:
    """The error, unless the gateway may deny the caller: it knows the token made for it, and only
    another cluster's gateway, which was given the same port, refuses that.
    """
    return (
        ""
        if not known and isinstance(error, Problem) and error.status in (401, 403)
        else str(error)
    )


def look_scheduler(*, known: bool) -> Callable[[Client], str]:
    """Check the scheduler by a dry run; skipped when the caller is not authorized, and not
    ``known``.
    """

    def look(client: Client) -> str:
        try:
            client.post("/v1/jobs:plan", dict, body={"name": "/ready", "command": ["true"]})
        except ClientError as error:
            return _unless_denied(error, known=known)
        return ""

    return look


def look_workers(wanted: int, *, known: bool) -> Callable[[Client], str]:
    """Check the number of workers that are not lost; skipped when the caller is not authorized, and
    not ``known``.
    """

    def look(client: Client) -> str:
        if not wanted:
            return ""
        try:
            found = sum(worker["state"] != "lost" for worker in client.pages("/v1/workers", dict))
        except ClientError as error:
            return _unless_denied(error, known=known)
        return "" if found >= wanted else f"{found} of {counted(wanted, 'worker')} registered"

    return look


def warnings_of_hosts(started: StartedCluster) -> list[str]:
    """What people may not expect of the hosts, each in a sentence; empty when nobody here may
    ask.
    """
    with connect(started) as client, contextlib.suppress(ClientError):
        hosts = list(client.pages("/v1/workers", dict))
        return [*limits_not_held([host["attributes"] for host in hosts]), *divided_gpus(hosts)]
    return []


def limits_not_held(attributes: Sequence[Mapping[str, Any]]) -> list[str]:
    """That hosts with these attributes do not hold tasks to their memory by control groups."""
    how = {str(one[LIMIT_MEMORY]) for one in attributes if LIMIT_MEMORY in one} - {"cgroup"}
    why = next((str(one["cgroup"]) for one in attributes if "cgroup" in one), "")
    words = " and ".join(sorted(_HELD[one] for one in how))
    return [f"--memory is enforced {words} on this machine (control groups: {why})"] if how else []


def divided_gpus(hosts: Sequence[Mapping[str, Any]]) -> list[str]:
    """That the GPUs of this machine are divided, so that no task can have all of them."""
    gpus = [
        host["total"]["chips"] for host in hosts if host["attributes"].get(DEVICE_TYPE) == "gpu"
    ]
    if len(gpus) < 2:
        return []
    each = ", ".join(map(str, gpus))
    return [f"{len(gpus)} hosts share {sum(gpus)} GPUs: {each}; --workers 1 offers them together"]


def look_proxy(address: str) -> Callable[[Client], str]:
    """Check that the proxy listens on ``address``, host and port."""
    host, _, port = address.rpartition(":")

    def look(_: Client) -> str:
        try:
            socket.create_connection((host.strip("[]"), int(port)), 1.0).close()
        except OSError:
            return f"the proxy does not listen on {address}"
        return ""

    return look


def stay(started: StartedCluster, data: Path, supervisor: subprocess.Popen[bytes]) -> int:
    """Print commands to try, then what the supervisor says; Ctrl-C and TERM stop the cluster."""
    assert supervisor.stdout is not None
    words = [
        f"the cluster is up; dashboard and API: {started.url}",
        "\n".join(remarks(started, data)) + "\n",
        "try:  iris run --replicas 3 -- sh -c 'echo hello $IRIS_TASK_INDEX'\n      iris ls\n\nCtrl-C stops it.",
    ]
    signal.signal(signal.SIGTERM, lambda *_: supervisor.terminate())
    while supervisor.returncode is None:
        try:
            while words:
                note(words.pop(0))
            for line in supervisor.stdout:
                note(line.decode(errors="replace").rstrip())
            supervisor.wait()
        except KeyboardInterrupt:
            words.clear()
            note("stopping")
            supervisor.terminate()
    return ExitCode.SUCCEEDED if supervisor.returncode == 0 else ExitCode.UNEXPECTED


def complain_of(missing: str, paths: ClusterPaths) -> None:
    """Say why a start failed: one sentence, and where the logs are."""
    words = missing
    if paths.failure.exists():
        words += f"; {paths.failure.read_text()}"
    if paths.damage.exists():
        words = paths.damage.read_text()
    complain(f"{words} (the logs are in {paths.logs})")
