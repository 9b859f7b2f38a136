"""Gangs by levels of the topology, on real processes: what people are told before, while and after
they run.
"""

from __future__ import annotations

import pytest

from tests.support.cluster import Cluster, until

pytestmark = pytest.mark.integration

GANG = ("--replicas", 2, "--cpu", 0.1, "--group-by", "hostname:preferred", "--group-by", "os")


def test_a_gang_by_levels_runs_and_shows_where_its_members_are(cluster: Cluster) -> None:
    before = cluster.iris("plan", *GANG, "--", "true")
    ran = cluster.iris("run", "--name", "near", *GANG, "--", "true")
    shown = cluster.iris("show", "near").out
    members = list(cluster.client.job("near").tasks())

    assert before.out.splitlines()[-2:] == ["  hostname: 1 (preferred)", "  os: 1 (required)"]
    assert (ran.code, [[*task.levels] for task in members]) == (0, [["hostname", "os"]] * 2)
    assert "by hostname (preferred), os" in shown
    assert [word in shown for word in ("HOSTNAME", "OS")] == [True, True]


def test_a_level_that_no_host_has_is_told_before_and_while_a_gang_waits(cluster: Cluster) -> None:
    never = ("--replicas", 2, "--group-by", "os", "--group-by", "row")
    before = cluster.iris("plan", *never, "--", "true")
    submitted = cluster.iris("run", "--detach", "--name", "rows", *never, "--", "true")
    until(lambda: "os and row" in cluster.iris("why", "rows").out, "why says it")
    cluster.iris("cancel", "rows")

    words = (
        "needs 2 workers free at once with the same os and row; no matching worker has os and row"
    )
    assert (before.code, words in before.out) == (13, True)
    assert "has the attribute row" in submitted.err


def test_a_level_that_is_mistyped_is_refused(cluster: Cluster) -> None:
    wrong = cluster.iris("run", "--group-by", "rack", "--group-by", "rack:preferred", "--", "true")
    assert (wrong.code, "--group-by" in wrong.err, "rack is a level twice" in wrong.err) == (
        2,
        True,
        True,
    )
