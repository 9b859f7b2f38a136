"""The alert rules of deploy/prometheus: each fires in a constructed case, none on a healthy
cluster.
"""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from drawings.alerts import ALERTS, Alert
from tests.support.alert_cases import CASES, HEALTHY, LEADER, SCHEDULER, STANDBY, STILL, Case
from tests.support.cluster import until
from tests.support.fleet import Member, fleet
from tests.support.prometheus import DEPLOYED, promtool

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.needs("prometheus"),
]

AT = "175m"
EVERY = "5m"
"""How often rules are evaluated until then. Each case lasts longer than the ``for`` of its rule and
this.
"""


def expected(alert: Alert, case: Case) -> dict[str, Any]:
    summary = re.sub(
        r"\{\{ \$labels\.(\w+) \}\}", lambda found: case.labels[found[1]], alert.summary
    )
    return {
        "exp_labels": {**case.labels, "severity": alert.severity},
        "exp_annotations": {"summary": summary, "runbook_url": alert.runbook},
    }


def checked(
    directory: Path, series: dict[str, str], firing: dict[str, list[dict[str, Any]]]
) -> str:
    """What promtool finds wrong. It reads YAML, and so JSON."""
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": AT, "alertname": alert.name, "exp_alerts": firing.get(alert.name, [])}
            for alert in ALERTS
        ],
    }
    document = {
        "rule_files": [str(DEPLOYED / "alerts.yml")],
        "evaluation_interval": EVERY,
        "tests": [test],
    }
    path = directory / "test.yml"
    path.write_text(json.dumps(document))
    done = promtool("test", "rules", path)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_rules_and_the_configuration_can_be_read():
    done = promtool("check", "config", DEPLOYED / "prometheus.yml")
    assert done.returncode == 0, done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


def test_no_alert_fires_on_a_healthy_cluster(tmp_path: Path):
    assert checked(tmp_path, HEALTHY, {}) == ""


def test_the_epoch_of_a_restore_is_no_change_of_leaders(tmp_path: Path):
    """It is higher than all that were before: the time, in milliseconds."""
    [epoch] = [name for name in HEALTHY if name.startswith("iris_epoch")]
    restored = HEALTHY | {epoch: "1795897878000x170 1795900000000x10"}
    assert checked(tmp_path, restored, {}) == ""


def test_need_that_a_dry_run_only_shows_is_no_unmet_need(tmp_path: Path):
    """In its own cluster, and as the leader says: a standby may have another configuration."""
    [alert] = [alert for alert in ALERTS if alert.name == "IrisNeedUnmet"]
    needing = HEALTHY | CASES[alert.name].differs
    dry = {f"iris_fleet_dry_run{{{LEADER}}}": f"1{STILL}"}
    assert checked(tmp_path, needing | dry, {}) == ""
    other = {
        series.replace('cluster="c"', 'cluster="d"'): values for series, values in needing.items()
    }
    fires = [expected(alert, Case({}, {"cluster": "d", "pool": "cpu"}))]
    assert checked(tmp_path, needing | dry | other, {alert.name: fires}) == ""
    standby = {f"iris_fleet_dry_run{{{STANDBY}}}": f"1{STILL}"}
    fires = [expected(alert, CASES[alert.name])]
    assert checked(tmp_path, needing | standby, {alert.name: fires}) == ""


def test_every_alert_has_a_case():
    assert set(CASES) == {alert.name for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_fires_in_its_case_and_no_other_alert_does(alert: Alert, tmp_path: Path):
    case = CASES[alert.name]
    assert checked(tmp_path, HEALTHY | case.differs, {alert.name: [expected(alert, case)]}) == ""


def test_of_two_clusters_the_one_without_a_leader_is_named(tmp_path: Path):
    [no_leader] = [alert for alert in ALERTS if alert.name == "IrisNoLeader"]
    other = {
        series.replace('cluster="c"', 'cluster="d"'): values for series, values in HEALTHY.items()
    }
    fires = expected(no_leader, Case({}, {"cluster": "d"}))
    leader = 'iris_leader{cluster="d", job="iris-state", instance="state-0:9101"}'
    assert checked(tmp_path, HEALTHY | other, {}) == ""
    assert checked(tmp_path, HEALTHY | other | {leader: "0x180"}, {"IrisNoLeader": [fires]}) == ""
    without = {
        series: values for series, values in other.items() if 'job="iris-state"' not in series
    }
    assert checked(tmp_path, HEALTHY | without, {"IrisNoLeader": [fires]}) == ""


def scraped(member: Member, metric: str) -> str:
    """The value that a process says, as one series that stays; empty: it says nothing."""
    try:
        with urllib.request.urlopen(f"{member.url}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except OSError:
        return ""
    [value] = re.findall(rf"^{metric} (\S+)$", text, re.MULTILINE)
    return f"{float(value):g}{STILL}"


def test_a_real_scheduler_that_is_stopped_or_has_no_records_is_told(nats_url: str, tmp_path: Path):
    """What a real one says, and says no more, under the rules of the deployment."""
    age = f"iris_snapshot_age_seconds{{{SCHEDULER}}}"
    others = {series: values for series, values in HEALTHY.items() if series != age}

    def firing(said: str) -> str:
        fires = {
            name: [expected(alert, CASES[name])]
            for alert in ALERTS
            if (name := alert.name) == ("IrisSchedulerStale" if said else "IrisNoScheduler")
        }
        return checked(tmp_path, others | ({age: said} if said else {}), fires)

    with fleet(nats_url, tmp_path) as made:
        state = made.add("state", "state")
        scheduler = made.add("scheduler", "scheduler")
        until(
            lambda: not scraped(scheduler, "iris_snapshot_age_seconds").startswith("-"), "records"
        )
        said = scraped(scheduler, "iris_snapshot_age_seconds")
        assert checked(tmp_path, others | {age: said}, {}) == "", "nothing is wrong"

        state.terminate()
        scheduler.terminate()
        assert scraped(scheduler, "iris_snapshot_age_seconds") == ""
        assert firing("") == ""

        scheduler.start()
        until(lambda: scraped(scheduler, "iris_snapshot_age_seconds"), "it can be scraped")
        assert firing(scraped(scheduler, "iris_snapshot_age_seconds")) == ""
