"""A Docker daemon of the tests' own, which needs no registry and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.house.repository import ROOT
from tests.support.cluster import until
from tests.support.images import PATH, PYTHON, Image, nats_image, python_image
from tests.support.nats import OPEN, emptied
from tests.support.needs import needs

_NEEDED = (
    "docker",
    "docker-compose",
    "docker-init",
    "dockerd",
    "nginx",
    "nsenter",
    "prometheus",
    "unshare",
    "wget",
)
DOCKER = ("docker", "docker-compose", "root", "a Docker daemon")
"""What a daemon of the tests needs."""
_NAMESPACES = (
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    "--pid",
    "--mount",
    "--mount-proc",
    "--fork",
    "--kill-child",
)
_START_S = 60
NATS = "nats:local"


class DaemonEnded(Exception):
    """The daemon does not run on this machine; the message is the end of its log."""


class Docker:
    """A daemon that runs, and its images and containers.

    Args:
        socket: where it answers. pid: of its process, which is the first of its namespace.
    """

    def __init__(self, socket: Path, pid: int) -> None:
        self._pid = pid
        self.environ = {**os.environ, "DOCKER_HOST": f"unix://{socket}", "DOCKER_BUILDKIT": "0"}

    def __call__(self, *words: object, given: bytes | None = None, within_s: float = 60) -> str:
        """The output of `docker WORDS`. Raises AssertionError with what it says when it fails."""
        return self.run("docker", *words, given=given, within_s=within_s)

    def run(self, *words: object, given: bytes | None = None, within_s: float = 60) -> str:
        """The same for another client of the daemon."""
        done = subprocess.run(
            list(map(str, words)),
            env=self.environ,
            input=given or b"",
            capture_output=True,
            timeout=within_s,
            check=False,
        )
        assert done.returncode == 0, (
            f"{words}: {done.stdout.decode()[-3000:]}{done.stderr.decode()[-3000:]}"
        )
        return done.stdout.decode()

    def image(self, name: str, files: Image, *changes: str) -> None:
        """Make an image of these files, changed as lines of a Dockerfile say."""
        options = [word for change in changes for word in ("--change", change)]
        self("import", *options, "-", name, given=files.tar(), within_s=120)

    def kill(self, container: str) -> None:
        """End its program from outside, as a crash does: a container that is stopped by command
        would stay down.
        """
        inside = self("inspect", "--format", "{{.State.Pid}}", container).strip()
        words = ["nsenter", "--target", str(self._pid), "--pid", "--mount", "kill", "-KILL", inside]
        subprocess.run(words, check=True, capture_output=True, timeout=30)


def refusal() -> str:
    """Why no daemon can be started here; empty when one can."""
    absent = [name for name in _NEEDED if not shutil.which(name)]
    if absent:
        return f"not installed: {', '.join(absent)}"
    tried = subprocess.run([*_NAMESPACES, "true"], capture_output=True, text=True, check=False)
    return (
        f"a Docker daemon needs root and namespaces: {tried.stderr.strip()}"
        if tried.returncode
        else ""
    )


def _addresses(held: socket.socket) -> list[str]:
    """Addresses for the networks of one daemon: two that make a network at once might choose the
    same.

    Args:
        held: a new local socket; while it is open, no other daemon of tests gets them.

    Raises LookupError when all are taken.
    """
    for number in range(18, 32):
        with contextlib.suppress(OSError):
            held.bind(f"\0iris-docker-{number}")
            return [
                f"base=172.{number}.0.0/16,size=24",
                f"base=192.168.{16 * (number - 18)}.0/20,size=24",
            ]
    raise LookupError("14 Docker daemons of tests run on this machine")


@contextmanager
def docker_daemon() -> Iterator[Docker]:
    """A daemon with directories, socket and networks of its own, which leaves the packet filter as
    it is.

    All containers end with it, however it ends: they are in its process namespace. Its mounts are
    seen by nobody else. Raises DaemonEnded.
    """
    with (
        socket.socket(socket.AF_UNIX) as held,
        tempfile.TemporaryDirectory(prefix="iris-docker-") as directory,
    ):
        place = Path(directory)
        words = [
            *(*_NAMESPACES, "docker-init", "-s", "--"),
            *(
                "dockerd",
                "--data-root",
                place / "data",
                "--exec-root",
                place / "exec",
                "--pidfile",
                place / "pid",
            ),
            *(
                "--host",
                f"unix://{place / 'socket'}",
                "--bridge=none",
                "--iptables=false",
                "--ip6tables=false",
            ),
            *(word for pool in _addresses(held) for word in ("--default-address-pool", pool)),
        ]
        with _running(place, list(map(str, words))) as docker:
            yield docker


@contextmanager
def _running(place: Path, words: list[str]) -> Iterator[Docker]:
    log = place / "log"
    with log.open("wb") as output:
        namespaces = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        [first] = until(
            psutil.Process(namespaces.pid).children, "the namespaces are there", _START_S
        )
    except psutil.NoSuchProcess:
        raise DaemonEnded(log.read_text()[-3000:]) from None
    docker = Docker(place / "socket", first.pid)

    def answers() -> bool:
        if namespaces.poll() is not None:
            raise DaemonEnded(log.read_text()[-3000:])
        asked = subprocess.run(
            ["docker", "info"], env=docker.environ, capture_output=True, check=False
        )
        return asked.returncode == 0 and b"Server Version" in asked.stdout

    try:
        until(answers, "the Docker daemon answers", _START_S)
        yield docker
    finally:
        if first.is_running():
            first.terminate()
        namespaces.wait(_START_S)


@pytest.fixture(scope="session")
@needs(*DOCKER)
def docker() -> Iterator[Docker]:
    """One daemon for all tests of this process, also for their `testcontainers`."""
    with contextlib.ExitStack() as stack:
        try:
            running = stack.enter_context(docker_daemon())
        except DaemonEnded as error:
            pytest.skip(f"a Docker daemon ends at once here: {error}")
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.setenv("DOCKER_HOST", running.environ["DOCKER_HOST"])
        environment.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")  # its image is in a registry
        yield running


def testcontainers(module: str) -> Any:
    """A module of `testcontainers`, which only tests with a daemon load."""
    return pytest.importorskip(
        f"testcontainers.{module}", reason="`make venv` installs testcontainers"
    )


@pytest.fixture(scope="session")
@needs(*DOCKER)
def nats_container(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server from an image, with one user who may do everything."""
    config = tmp_path_factory.mktemp("nats-container") / "nats.conf"
    store = "jetstream { store_dir: /data, max_file_store: 1TB }\n"
    config.write_text(
        f'listen: "0.0.0.0:4222"\nhttp: "0.0.0.0:8222"\nmax_payload: 8MB\n{store}{OPEN}'
    )
    docker.image(NATS, nats_image(), 'ENTRYPOINT ["nats-server"]')
    with testcontainers("core.network").Network() as network:
        server = testcontainers("community.nats").NatsContainer(NATS, network=network)
        server.with_volume_mapping(config, "/nats.conf").with_command("--config /nats.conf")
        with server:
            yield server.nats_uri().replace("//", "//iris:iris@")


@pytest.fixture
async def container_url(nats_container: str) -> str:
    """Where to connect; every stream of earlier tests is gone."""
    return await emptied(nats_container)


@pytest.fixture(scope="session")
@needs(*DOCKER, "wget")
def base_image(docker: Docker) -> str:
    """What stands for the image of Python; images that are built on it share the layers of their
    builds.
    """
    docker.image(PYTHON, python_image(), PATH)
    return PYTHON


@contextmanager
def product_image(base: str) -> Iterator[str]:
    """The name of the product's image, built as deploy/docker/README.md says."""
    build = {"buildargs": {"PYTHON": base}, "network_mode": "none"}
    image = testcontainers("core.image")
    with image.DockerImage(
        ROOT, tag="iris:tested", dockerfile_path="deploy/docker/Dockerfile", **build
    ) as built:
        yield str(built)
