"""Fixtures for all tests, and hypothesis profiles: HYPOTHESIS_PROFILE=soak, as in `make soak`, runs
more examples.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.budget import Budget
from tests.support.cluster import cluster, map_cluster, restoring_cluster
from tests.support.docker import base_image, container_url, docker, nats_container
from tests.support.hangs import Hangs
from tests.support.hosts import mark, place
from tests.support.nats import connection, nats_server, nats_url, own_nats
from tests.support.needs import Needs
from tests.support.runtimes import docker_runtime, podman
from tests.support.state import state

__all__ = [
    "base_image",
    "cluster",
    "connection",
    "container_url",
    "docker",
    "docker_runtime",
    "map_cluster",
    "mark",
    "nats_container",
    "nats_server",
    "nats_url",
    "own_nats",
    "place",
    "podman",
    "restoring_cluster",
    "state",
]

# No deadline per example: on shared cores it would measure the neighbours.
settings.register_profile("check", deadline=None, max_examples=40, derandomize=True)
settings.register_profile("soak", deadline=None, max_examples=5_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "check"))

# Hundreds of processes would compile the same modules again, which is two fifths of the CPU that a
# service starts with.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A script that runs the tests in the background ignores SIGINT, and every process that they start
# would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Budget(config), "budget")
    config.pluginmanager.register(Hangs(), "hangs")
    config.pluginmanager.register(Needs(config), "needs")


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nearly all that collection makes stays: searching it for garbage would be a quarter of the
    CPU that it takes.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.enable()
