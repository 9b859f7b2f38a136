"""The cluster of the night shift is upgraded from an older build and rolled back under load, as the
manual says, with TLS: no request through nginx fails and no job that was acknowledged is lost.
Faults between the steps, which releases side by side meet, lose nothing, and are told and cured as ever.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
from tests.soak.night_faults import BACKUP, CURED_S, FAULTS, USUAL, plant_and_cure
from tests.soak.night_load import ACKNOWLEDGED
from tests.support.builds import has_commit
from tests.support.cluster import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.soak,
    pytest.mark.timeout(3600),
    pytest.mark.needs("curl", "git", "ip", "network namespaces", "nginx", "prometheus", "a disk"),
]

ENOUGH = 20
"""Requests that are answered between two steps."""
READY_AT = {**PORTS, "gateway": 8080}
MIXED = frozenset({"version_skew"})
"""What doctor says for as long as two releases run."""
AMID = (
    "the last backup is three days old",
    "a NATS server has ended",
    "a NATS server hangs",
    "a NATS server lags",
    "the first state service has ended",
    "the second state service has ended",
    "a state service hangs",
    "no provisioner is beside a pool",
    "no notifier is beside a target",
    "a worker has ended",
    "a worker hangs",
    "a worker advertises loopback",
    "a worker declares more memory than there is",
    "tasks of a worker reach no gateway",
    "memory of tasks is not limited",
    "the check of a host fails",
    "the disk of a worker is full",
    "the clock of a worker is off",
    "the certificate of a proxy has expired",
    "a NATS server was started with an expired certificate",
    "a key is not known to the servers",
    "two gateways have different tokens",
    "all can write the token file",
    "all can read a key",
)
"""Faults of one process, host or file of several: the others serve."""
TRY_AGAIN = 503
"""What a request may be answered, with Retry-After, while a fault lasts that ends or stops something: the
manual promises no request that fails of an upgrade only.
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Night]:
    """One of the older build, with a load."""
    assert has_commit(OLDER), f"the repository has no {OLDER}: fetch its history"
    with night(tmp_path / "night", OLDER) as made:
        yield made


Amid = Callable[[], None]
"""What happens after each step."""


def nothing() -> None:
    return


def restart(cluster: Night, service: str, amid: Amid = nothing) -> None:
    """On one machine after the other, each once the one before it is ready."""
    for name in PLANE:
        cluster.run(name, f"stop 'iris_{service} '; start {service}", READY_S)
        ready = f"the {service} of {name} is ready"
        until(lambda name=name: cluster.is_ready(name, READY_AT[service]), ready, READY_S)
        cluster.answered(ENOUGH)
        amid()


def restart_workers(cluster: Night, amid: Amid = nothing) -> None:
    for name in MACHINES:
        cluster.run(COMPUTER, f"iris worker drain {name}")
        until(lambda name=name: tasks_of(cluster, name) == [], f"{name} runs nothing", READY_S)
        cluster.run(name, "stop 'm iris_worker '; start_worker", READY_S)
        cluster.run(COMPUTER, f"iris worker undrain {name}")
        until(lambda: cluster.healthy() == len(MACHINES), f"{name} is healthy", READY_S)
        amid()


def tasks_of(cluster: Night, name: str) -> list[str]:
    lines = cluster.run(COMPUTER, "iris worker list --output jsonl").splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    return next(row["tasks"] for row in rows if row["id"] == name)


def failures(cluster: Night) -> list[dict[str, Any]]:
    """Requests since the last look that were not answered as they should be."""
    answers = cluster.answers()
    print(f"{len(answers)} requests")
    cluster.compare([answer["id"] for answer in answers if "id" in answer])
    return [answer for answer in answers if answer["status"] not in ACKNOWLEDGED]


def upgrade(cluster: Night, amid: Amid = nothing) -> None:
    for name in cluster.machines.addresses:
        cluster.use_build(name, "new")
    for service in ("state", "scheduler", "gateway", "proxy", "provisioner", "notifier"):
        restart(cluster, service, amid)
    restart_workers(cluster, amid)


def go_back(cluster: Night, amid: Amid = nothing) -> None:
    """The machine that asks stays with the newer build, which knows more faults."""
    for name in MACHINES:
        cluster.use_build(name, "old")
    for service in ("gateway", "proxy"):
        restart(cluster, service, amid)
    restart_workers(cluster, amid)
    for service in ("notifier", "provisioner", "scheduler", "state"):
        restart(cluster, service, amid)


def test_no_request_fails_while_tls_machines_are_upgraded_and_go_back(cluster: Night):
    cluster.answers()
    upgrade(cluster)
    assert failures(cluster) == [], "an upgrade"
    go_back(cluster)
    assert failures(cluster) == [], "the way back"


def test_faults_amid_an_upgrade_and_the_way_back_lose_nothing(cluster: Night):
    assert len(AMID) == len(set(AMID) & FAULTS.keys()) == 24
    left = list(AMID)
    cluster.use_build(COMPUTER, "new")
    cluster.run(COMPUTER, BACKUP)
    usual = {*cluster.problems(), *MIXED, *USUAL}

    def amid() -> None:
        if not left:
            return
        name = left.pop(0)
        known = {*usual} - {FAULTS[name].code}
        until(lambda: cluster.problems().keys() <= known, f"all is well before {name}", CURED_S)
        plant_and_cure(cluster, name, known)
        found = failures(cluster)
        print(f"{len(found)} of them were to be sent again")
        assert [one for one in found if one["status"] != TRY_AGAIN] == [], name

    cluster.answers()
    upgrade(cluster, amid)
    go_back(cluster, amid)
    assert not left
