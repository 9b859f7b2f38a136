"""Every judgement of `iris doctor` is tested against a cluster in that state, or stands in the list
of those that are not: one made-up fact agrees with any judgement.
"""

import ast
from collections.abc import Iterator

from iris.doctor.checks import CHECKS
from tests.house.repository import ROOT

PLACES = (
    "test_damage.py",
    "test_doctor.py",
    "test_doctor_states.py",
    "test_lost_records.py",
    "test_up_and_down.py",
)
"""Integration tests that run `iris doctor`."""
TOLD_IN_WORDS = {"damaged_data": "iris admin repair --data", "worker_ended": "worker-0 ended"}
"""Codes that a test finds by words of the problem."""
MADE_UP_ONLY = {
    "no_backup": "wants several servers with a system account and a journal of two days ago",
    "no_standby": "wants several servers with a system account",
    "noexec_data": "wants a file system mounted noexec",
    "server_unhealthy": "no way is known to have a server say it of itself",
    "server_version_skew": "wants two releases of the NATS server",
    "unscoped_sockets": "depends on the kernel of this machine",
    "worker_degraded": "wants a host whose check fails",
}
"""Codes that only made-up facts have shown, and why."""


def texts() -> Iterator[str]:
    """Every text in the tests of those places."""
    for name in PLACES:
        tree = ast.parse((ROOT / "tests" / "integration" / name).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_each_judgement_is_tested_on_a_real_cluster_or_listed():
    said = list(texts())
    real = {check.code for check in CHECKS if check.code in said}
    real |= {code for code, words in TOLD_IN_WORDS.items() if any(words in one for one in said)}
    assert {check.code for check in CHECKS} - real == MADE_UP_ONLY.keys()
