"""Every judgement of `iris doctor` is tested against a cluster in that state: one made-up fact
agrees with any judgement.
"""

import ast
from collections.abc import Iterator

from iris.doctor.checks import CHECKS
from tests.house.repository import ROOT

PLACES = (
    "test_damage.py",
    "test_doctor.py",
    "test_doctor_servers.py",
    "test_doctor_states.py",
    "test_lost_records.py",
    "test_up_and_down.py",
)
"""Integration tests that run `iris doctor`."""
TOLD_IN_WORDS = {"damaged_data": "iris admin repair --data", "worker_ended": "worker-0 ended"}
"""Codes that a test finds by words of the problem."""


def texts() -> Iterator[str]:
    """Every text in the tests of those places."""
    for name in PLACES:
        tree = ast.parse((ROOT / "tests" / "integration" / name).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_each_judgement_is_tested_on_a_real_cluster():
    said = list(texts())
    real = {check.code for check in CHECKS if check.code in said}
    real |= {code for code, words in TOLD_IN_WORDS.items() if any(words in one for one in said)}
    assert {check.code for check in CHECKS} - real == set()
