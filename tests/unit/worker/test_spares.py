"""What processes without an attempt leave when they end."""

from __future__ import annotations

from typing import Any

from iris_worker.launcher.cgroups.cgroup import Cgroups
from iris_worker.launcher.cgroups.group import Group
from iris_worker.launcher.processes.spares import Spares


class EmptyGroups(Cgroups):
    """Groups whose processes have ended and have left files in memory."""

    def __init__(self) -> None:
        pass

    def kill(self, group: Group) -> bool:
        return False

    def end(self, group: Group) -> Any:
        group.left_bytes = 40 << 20


def test_what_a_process_has_left_that_waited_for_a_call_counts_in_its_slot():
    told = []
    loop: Any = None
    spares = Spares(
        loop,
        EmptyGroups(),
        lambda request: [],
        lambda slot, group: told.append((slot, group.left_bytes)),
    )
    spares.add(71, 3, Group(5))
    spares.reaped(71)
    assert told == [(3, 40 << 20)]
