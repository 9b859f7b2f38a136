"""Every query of the dashboards and alerts, run by a real Prometheus that scrapes a busy
cluster.
"""

from __future__ import annotations

import contextlib
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from drawings.alerts import ALERTS
from drawings.dashboards import panels
from iris import Job
from tests.house.repository import ROOT
from tests.support.cluster import Cluster, cluster_on, is_served, settings, until
from tests.support.prometheus import Prometheus, has_number, prometheus_of

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.needs("prometheus"),
]

SERVE = ROOT / "examples" / "serve"
METRICS = '[run]\nmetrics = "127.0.0.1:0"\n'
WINDOW = "2m"
SAY_HOW_BUSY = {"IrisCommitsSlow", "IrisHeartbeatsLate"}
"""Alerts that hold when somebody else keeps this machine busy."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("dashboards") / "cluster"
    given = (
        "--workers",
        "2",
        "--tpu",
        "v4-16",
        "--replicas",
        "state=2",
        "--replicas",
        "scheduler=2",
    )
    with cluster_on(data, *given, *settings(data, METRICS)) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus_of(addresses(cluster), tmp_path_factory.mktemp("prometheus") / "it") as running:
        begin(cluster)
        yield running


def addresses(cluster: Cluster) -> dict[str, list[str]]:
    """Where each service serves its metrics, by the label `job` that deploy/prometheus gives it."""
    return {
        f"iris-{name}": [urlsplit(url).netloc for url in urls]
        for name, urls in cluster.file["metrics"].items()
    }


def begin(cluster: Cluster) -> None:
    """What stays: work that runs, work that waits, and a service."""
    assert (
        cluster.iris("admin", "backup", cluster.data / "backup", "--data", cluster.data).code == 0
    )
    cluster.submit("sleep", "600", name="running", cpu=0.1)
    cluster.submit("true", name="too-large", cpu=1000)
    quick = {"probe_interval": "0.2s", "start_timeout": "30s"}
    cluster.client.deploy(
        [sys.executable, "server.py", "v1"], "chat", workdir=SERVE, replicas=1, cpu=0.1, **quick
    ).wait_ready(60)


def load(cluster: Cluster) -> None:
    """Something of everything that ends: tasks, a gang, an attempt that is retried, requests, a
    refusal.
    """
    jobs: list[Job] = [
        cluster.submit("true", cpu=0.1, replicas=4, workdir=SERVE),
        cluster.submit("true", cpu=0.1, tpu="v4-16"),
        cluster.submit("false", cpu=0.1, max_retries_failure=1),
    ]
    for job in jobs:
        job.wait(60)
    until(
        lambda: is_served(cluster, "chat"), "the service answers"
    )  # on a busy machine its probes may fail for a moment
    unknown = urllib.request.Request(f"{cluster.url}/v1/jobs/nobody", headers=cluster.headers)
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(unknown, timeout=60)


def shown(query: str) -> str:
    return query.replace("$__rate_interval", WINDOW)


def test_every_panel_that_must_have_data_has_it(cluster: Cluster, prometheus: Prometheus):
    missing = {
        (panel.title, query) for panel in panels() if not panel.empty for query, _ in panel.queries
    }

    def answered() -> bool:
        load(cluster)
        missing.difference_update(
            {one for one in missing if has_number(prometheus.query(shown(one[1])))}
        )
        return not missing

    try:
        until(answered, "every panel has data", 150)
    except AssertionError:
        raise AssertionError(sorted(missing)) from None


def test_the_queries_of_the_other_panels_can_be_run(prometheus: Prometheus):
    for panel in panels():
        for query, _ in panel.queries:
            prometheus.query(shown(query))


def test_no_condition_of_an_alert_holds_on_a_cluster_at_work(prometheus: Prometheus):
    """A process that was scraped too slowly is missing for a moment."""
    holding: list[str] = []

    def none_holds() -> bool:
        judged = [alert for alert in ALERTS if alert.name not in SAY_HOW_BUSY]
        holding[:] = [alert.name for alert in judged if prometheus.query(alert.query)]
        return not holding

    try:
        until(none_holds, "no condition holds")
    except AssertionError:
        raise AssertionError(holding) from None


def test_missing_capacity_is_in_http_and_the_query_for_keda_has_an_answer(
    cluster: Cluster, prometheus: Prometheus
):
    page = (ROOT / "docs" / "autoscaling.md").read_text()
    [query] = re.findall(r"query: >-\n((?: {10}.*\n)+)", page)
    until(lambda: has_number(prometheus.query(query)), "the query has an answer")
    # A job has a reason only after a plan; until then, and on a state service that has just become
    # leader, it counts as not yet looked at.
    [(tasks, example, constraint)] = until(
        lambda: unsatisfiable(cluster), "the scheduler has looked at the job"
    )
    assert (tasks, example) == (1, "/too-large")
    assert constraint.startswith("cpu 1000 of at most ")


def unsatisfiable(cluster: Cluster) -> list[tuple[int, str, str]]:
    return [
        (one.tasks, one.example, one.constraints[0])
        for one in cluster.client.demand().unsatisfiable
    ]


def test_the_standby_and_the_leader_are_both_seen(cluster: Cluster, prometheus: Prometheus):
    states = set(addresses(cluster)["iris-state"])

    def seen(query: str) -> dict[str, str]:
        return {one["metric"]["instance"]: one["value"][1] for one in prometheus.query(query)}

    until(lambda: set(seen("iris_leader")) == states, "both are scraped")
    until(
        lambda: (
            sorted(seen("iris_leader").values()) == ["0", "1"]
            and set(seen("iris_leader")) == states
        ),
        "one leads",
    )
    until(lambda: len(set(seen("iris_epoch").values())) == 1, "both know the epoch")
    until(
        lambda: set(seen('iris_consumer_pending{consumer="journal"}')) == states,
        "both know what they lack",
    )


def test_a_standby_is_ready_when_it_follows(cluster: Cluster):
    for address in addresses(cluster)["iris-state"]:
        until(lambda: is_ready(address), f"{address} is ready")  # noqa: B023


def is_ready(address: str) -> bool:
    with (
        contextlib.suppress(urllib.error.HTTPError),
        urllib.request.urlopen(f"http://{address}/readyz", timeout=60),
    ):
        return True
    return False


def test_every_process_is_scraped(cluster: Cluster, prometheus: Prometheus):
    expected = {address for each in addresses(cluster).values() for address in each}
    until(lambda: prometheus.targets() == dict.fromkeys(expected, "up"), "all are scraped")
    services = ["gateway", "notifier", "provisioner", "proxy", "scheduler", "state", "worker"]

    def seen() -> list[str]:
        """Each service, once for each of its versions."""
        found = (one["metric"] for one in prometheus.query("iris_service_info"))
        return sorted(service for service, _ in {(one["service"], one["version"]) for one in found})

    until(lambda: seen() == services, "each service is seen, in one version")
