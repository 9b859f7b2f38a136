"""The near side of a band: work within the guarantee of its project, which goes before work that
borrows.

Each task is judged with what is placed, what is promised, and what the cycle has placed before it.
Source: docs/design/team.md#guarantee-and-share.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from iris_core.placement.guarantees import Guarantees, held_of, multiplied
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.mirror.usage import share_of


class Side(IntEnum):
    """The parts of a band in the order in which they are placed.

    Attributes:
        NEAR: within the guarantee of the project, and every limit; nothing while no project has a
            guarantee. BORROWING: within every limit. OVER_QUOTA: everything.
    """

    NEAR = 0
    BORROWING = 1
    OVER_QUOTA = 2


WITHOUT_GUARANTEES = (Side.BORROWING, Side.OVER_QUOTA)


class NearSide:
    """What projects may still start within their guarantees, in one cycle; placements count at once.

    Attributes:
        guarantees: with what is held of them.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self.guarantees = found = Guarantees(
            {path: held_of(row.guarantee) for path, row in mirror.projects.items()}
        )
        self._promised = set(mirror.nominations) if found else set[tuple[int, int]]()
        if not found:
            return
        for path, held in mirror.project_usage.within(found.amounts.keys()).items():
            found.held[path] = found.staying[path] = held
        for name in mirror.hosts.ending:
            for hold, need in mirror.hosts.host(name).counted():
                if hold.stopping:
                    found.stop(mirror.jobs[hold.ref.job].project, share_of(need))
        for job, index in self._promised:
            self.promise(job, [index])

    def within(self, job: int, count: int) -> int:
        """How many of ``count`` tasks of a job keep its project within every guarantee."""
        mirror = self._mirror
        return self.guarantees.near(
            mirror.jobs[job].project, share_of(mirror.kinds[job].need), count
        )

    def spend(self, job: int, indexes: Sequence[int]) -> None:
        """Count placed tasks of a job; promised ones are counted already."""
        fresh = sum((job, index) not in self._promised for index in indexes)
        self._add(job, fresh, staying=True)

    def promise(self, job: int, indexes: Sequence[int]) -> None:
        """Tasks of a job will have a place once work there has stopped."""
        self._add(job, len(indexes), staying=False)

    def _add(self, job: int, count: int, *, staying: bool) -> None:
        mirror = self._mirror
        amount = multiplied(share_of(mirror.kinds[job].need), count)
        self.guarantees.add(mirror.jobs[job].project, amount, staying=staying)
