"""Three machines with the units of deploy/systemd behind nginx with its shipped file: every service
is restarted, upgraded and rolled back as the manual says, and no request fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_systemd_machines import START_S, healthy, install, steps
from tests.soak.night import (
    ADDRESSES,
    COMPUTER,
    FRONT,
    MACHINES,
    OLDER,
    PLANE,
    TLS,
    Night,
    start_load,
    start_nginx,
    with_builds,
)
from tests.soak.night_load import ACKNOWLEDGED
from tests.support import systemd as init
from tests.support.builds import has_commit
from tests.support.cluster import until
from tests.support.page_machines import page_machines

pytestmark = [
    pytest.mark.integration,
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.needs("git", "ip", "network namespaces", "nginx", "systemd in namespaces"),
]

ENOUGH = 20
"""Requests that are answered between two steps."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Night]:
    """One of the older build, with a load."""
    assert has_commit(OLDER), f"the repository has no {OLDER}: fetch its history"
    with init.systemd(tmp_path) as first, page_machines(tmp_path, ADDRESSES, first) as machines:
        made = with_builds(machines, OLDER)
        install(machines)
        made.run(FRONT, f"mkdir -p {TLS}")
        contexts = steps("three-machines.md")[5]
        machines.run(contexts)
        until(lambda: healthy(machines), "three workers have registered", START_S)
        start_nginx(made)
        start_load(made)
        yield made


def restart(cluster: Night, service: str) -> None:
    """On one machine after the other; `systemctl` returns when it is ready."""
    for name in PLANE:
        cluster.run(name, f"systemctl restart iris-{service}", START_S)
        cluster.answered(ENOUGH)


def restart_workers(cluster: Night) -> None:
    for name in MACHINES:
        cluster.run(COMPUTER, f"iris worker drain {name}")
        until(lambda name=name: tasks_of(cluster, name) == [], f"{name} runs nothing", START_S)
        cluster.run(name, "systemctl restart iris-worker", START_S)
        cluster.run(COMPUTER, f"iris worker undrain {name}")
        until(lambda: healthy(cluster.machines), "three workers are healthy", START_S)


def tasks_of(cluster: Night, name: str) -> list[str]:
    lines = cluster.run(COMPUTER, "iris worker list --output jsonl").splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    return next(row["tasks"] for row in rows if row["id"] == name)


def failures(cluster: Night) -> list[object]:
    """Requests since the last look that were not answered as they should be."""
    answers = cluster.answers()
    print(f"{len(answers)} requests")
    cluster.compare([answer["id"] for answer in answers if "id" in answer])
    return [answer for answer in answers if answer["status"] not in ACKNOWLEDGED]


def test_no_request_fails_while_units_are_restarted_and_upgraded(cluster: Night):
    cluster.answers()
    for service in ("state", "scheduler", "gateway"):
        restart(cluster, service)
    restart_workers(cluster)
    assert failures(cluster) == [], "a restart"

    for name in ADDRESSES:
        cluster.use_build(name, "new")
    for service in ("state", "scheduler", "gateway"):
        restart(cluster, service)
    restart_workers(cluster)
    assert failures(cluster) == [], "an upgrade"

    for name in ADDRESSES:
        cluster.use_build(name, "old")
    restart(cluster, "gateway")
    restart_workers(cluster)
    for service in ("scheduler", "state"):
        restart(cluster, service)
    assert failures(cluster) == [], "the way back"
