"""Faults that an operator meets, planted one after the other on a cluster that serves: each is told
by `iris doctor` or by an alert within a minute, and gone after what doctor says to do; nothing ends
that should not, and nothing that was acknowledged is lost.

The cluster is that of `tests.soak.night`. One fault: ``-k 'hangs'``. Prometheus looks each 5 s
where the shipped file says 15; most alerts wait for minutes before they fire, so that one counts as
told when its condition holds (pending).

All machines have one kernel, so a clock that is off is that of one process
(`tests.soak.night`), and disks are small ones. Not in it: a disk that turns read-only, for the
file system stays as it is while a task's namespace has it; an upgrade
(`tests/soak/test_night_upgrade.py`); a power cut of a whole machine
(`tests/integration/test_three_machines.py`), damaged records (`tests/integration/test_damage.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.soak.night import COMPUTER, Night, night
from tests.soak.night_faults import BACKUP, CURED_S, FAULTS, USUAL, plant_and_cure
from tests.support.cluster import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.needs("curl", "git", "ip", "network namespaces", "nginx", "prometheus", "a disk"),
]


class Nights:
    """The cluster that faults share, made anew after one that left it otherwise than it was."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self._made: Night | None = None
        self._count = 0

    def get(self) -> Night:
        if self._made is None or self._made.spoilt:
            self.close()
            self._count += 1
            self._made = self._stack.enter_context(night(self._directory / f"{self._count}"))
        return self._made

    def close(self) -> None:
        self._stack.close()
        self._made = None


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nights]:
    made = Nights(tmp_path_factory.mktemp("night"))
    yield made
    made.close()


def acknowledged(cluster: Night) -> list[str]:
    """The ids of jobs that were acknowledged since the last look."""
    return [answer["id"] for answer in cluster.answers() if "id" in answer]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_within_a_minute_and_gone_after_its_remedy(nights: Nights, name: str):
    fault = FAULTS[name]
    cluster = nights.get()
    cluster.spoilt = True
    if fault.planted:
        cluster.run(COMPUTER, BACKUP)
    known = USUAL if fault.planted else {*USUAL, fault.code}
    until(lambda: cluster.problems().keys() <= known, "nothing else is wrong before", CURED_S)
    plant_and_cure(cluster, name, USUAL)
    cluster.answered(4)
    cluster.compare(acknowledged(cluster))
    cluster.spoilt = False
