"""Container runtimes of the tests' own, with an image of programs of this machine, which need no
registry.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from iris_worker.attempt.images.runtimes import WORKER_LABEL
from tests.support.docker import DOCKER, Docker
from tests.support.images import Image
from tests.support.needs import needs

IMAGE = "localhost/tools:1"
PODMAN = ("podman", "runc", "root")
RUNTIMES = (
    pytest.param("podman", marks=pytest.mark.needs("bwrap", *PODMAN)),
    pytest.param("docker_runtime", marks=[pytest.mark.docker, pytest.mark.needs("bwrap", *DOCKER)]),
)
"""Names of fixtures as parameters, for tests whose worker has a sandbox beside containers: without
one its users could not pass the directory of the test.
"""
_PROGRAMS = ("cat", "echo", "env", "id", "ls", "sh", "sleep", "tar", "touch")
_CONTAINERS = """\
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=1000:1000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
"""


@dataclass(frozen=True, slots=True)
class OwnRuntime:
    """A runtime that answers, and what a worker's environment needs to reach it."""

    name: str
    environ: Mapping[str, str]

    def __call__(self, *words: str, given: bytes = b"") -> str:
        """The output of the runtime's command. Raises AssertionError with what it says when it
        fails.
        """
        done = subprocess.run(
            [self.name, *words],
            env={**os.environ, **self.environ},
            input=given,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stderr.decode()[-3000:]}"
        return done.stdout.decode()

    def containers(self) -> list[str]:
        """The names of workers' containers, also of those that have ended; other tests may have
        containers here too.
        """
        return self._names("--all")

    def running(self) -> list[str]:
        """The names of those that run."""
        return self._names()

    def _names(self, *options: str) -> list[str]:
        return self(
            "ps", *options, "--filter", f"label={WORKER_LABEL}", "--format", "{{.Names}}"
        ).split()


def tools_image() -> bytes:
    image = Image()
    image.programs(*_PROGRAMS)
    image.file(Path("/bin/sh"))
    return image.tar()


def _filled(runtime: OwnRuntime) -> OwnRuntime:
    """With the image, whose entrypoint would hide the command."""
    changes = (
        "--change",
        "ENV FROM_IMAGE=yes",
        "--change",
        'ENTRYPOINT ["/bin/echo", "entrypoint"]',
    )
    runtime("import", *changes, "-", IMAGE, given=tools_image())
    return runtime


@contextmanager
def podman_runtime() -> Iterator[OwnRuntime]:
    """podman with storage of its own; ``runc`` and ``cgroupfs`` suit hosts with control groups of
    version 1.
    """
    place = Path(tempfile.mkdtemp(prefix="iris-podman-"))
    storage = (
        f'[storage]\ndriver = "vfs"\ngraphroot = "{place / "graph"}"\nrunroot = "{place / "run"}"\n'
    )
    files = {"CONTAINERS_CONF": _CONTAINERS, "CONTAINERS_STORAGE_CONF": storage}
    for name, text in files.items():
        (place / name).write_text(text)
    runtime = OwnRuntime("podman", {name: str(place / name) for name in files})
    try:
        yield _filled(runtime)
    finally:
        runtime("rm", "--all", "--force", "--time", "0")
        shutil.rmtree(place)


@pytest.fixture(scope="session")
@needs(*PODMAN)
def podman() -> Iterator[OwnRuntime]:
    with podman_runtime() as runtime:
        yield runtime


@pytest.fixture(scope="session")
@needs(*DOCKER)
def docker_runtime(docker: Docker) -> OwnRuntime:
    return _filled(OwnRuntime("docker", {"DOCKER_HOST": docker.environ["DOCKER_HOST"]}))
