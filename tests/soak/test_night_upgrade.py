"""The cluster of the night shift is upgraded from an older build and rolled back under load, as the
manual says, with TLS: no request through nginx fails and no job that was acknowledged is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.night import (
    COMPUTER,
    MACHINES,
    OLDER,
    PLANE,
    PORTS,
    READY_S,
    Night,
    night,
)
from tests.soak.night_load import ACKNOWLEDGED
from tests.support.builds import has_commit
from tests.support.cluster import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.needs("curl", "git", "ip", "network namespaces", "nginx", "prometheus", "a disk"),
]

ENOUGH = 20
"""Requests that are answered between two steps."""
READY_AT = {**PORTS, "gateway": 8080}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Night]:
    """One of the older build, with a load."""
    assert has_commit(OLDER), f"the repository has no {OLDER}: fetch its history"
    with night(tmp_path / "night", OLDER) as made:
        yield made


def restart(cluster: Night, service: str) -> None:
    """On one machine after the other, each once the one before it is ready."""
    for name in PLANE:
        cluster.run(name, f"stop 'iris_{service} '; start {service}", READY_S)
        ready = f"the {service} of {name} is ready"
        until(lambda name=name: cluster.is_ready(name, READY_AT[service]), ready, READY_S)
        cluster.answered(ENOUGH)


def restart_workers(cluster: Night) -> None:
    for name in MACHINES:
        cluster.run(COMPUTER, f"iris worker drain {name}")
        until(lambda name=name: tasks_of(cluster, name) == [], f"{name} runs nothing", READY_S)
        cluster.run(name, "stop 'm iris_worker '; start_worker", READY_S)
        cluster.run(COMPUTER, f"iris worker undrain {name}")
        until(lambda: cluster.healthy() == len(MACHINES), f"{name} is healthy", READY_S)


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


def test_no_request_fails_while_tls_machines_are_upgraded_and_go_back(cluster: Night):
    cluster.answers()
    for name in cluster.machines.addresses:
        cluster.use_build(name, "new")
    for service in ("state", "scheduler", "gateway", "proxy"):
        restart(cluster, service)
    restart_workers(cluster)
    assert failures(cluster) == [], "an upgrade"

    for name in cluster.machines.addresses:
        cluster.use_build(name, "old")
    for service in ("gateway", "proxy"):
        restart(cluster, service)
    restart_workers(cluster)
    for service in ("scheduler", "state"):
        restart(cluster, service)
    assert failures(cluster) == [], "the way back"
