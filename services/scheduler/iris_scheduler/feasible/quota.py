"""Running quotas: within a band, tasks that would take their user over a quota, or their project over
a limit, are placed after all others.

A quota never blocks a task; it only lowers its order. Source: docs/design/semantics.md#order,
docs/design/team.md#projects.
"""

from __future__ import annotations

from collections.abc import Mapping

from iris_core.messages.scheduler_state import JobRow, ProjectRow
from iris_core.placement import reasons
from iris_core.placement.guarantees import held_of
from iris_core.placement.reasons import Reason
from iris_core.quota import RUNNING_LIMITS, Quota
from iris_core.spec.projects import ROOT, upwards
from iris_scheduler.mirror.capacity import Need
from iris_scheduler.mirror.usage import NOTHING, Held, Usage, share_of, with_tasks


class ProjectAllowances:
    """What projects with a limit may still hold in one cycle before others go first; placements count
    at once. A task is limited by its project and by each above it.
    """

    def __init__(self, rows: Mapping[str, ProjectRow], usage: Usage, of_users: Usage) -> None:
        """``usage``: by project, without the root's; ``of_users``: of everything, by user."""
        self._limits = {
            path: limits for path, row in rows.items() if any(limits := held_of(row.limit))
        }
        self._running = usage.within({path for path in self._limits if path != ROOT})
        if ROOT in self._limits:
            self._running[ROOT] = of_users.total()
        self._ways: dict[str, tuple[str, ...]] = {}

    def within(self, project: str, need: Need, count: int) -> int:
        """How many of ``count`` such tasks keep every project on the way within its limits."""
        for path in self._way(project):
            count = _kept(self._limits[path], self._running[path], need, count)
        return count

    def spend(self, project: str, need: Need, count: int) -> None:
        """Count placed tasks."""
        for path in self._way(project):
            self._running[path] = with_tasks(self._running[path], need, count)

    def limit_reached(self, project: str, need: Need) -> Reason | None:
        """Why one more such task would exceed a limit; None when it would not."""
        for path in self._way(project):
            rows = zip(
                RUNNING_LIMITS,
                self._limits[path],
                self._running[path],
                share_of(need),
                strict=True,
            )
            for (limit, _), most, running, share in rows:
                if most and share and running + share > most:
                    return reasons.over_project_limit(path, limit, running, most, asked=share)
        return None

    def _way(self, project: str) -> tuple[str, ...]:
        """The limited projects of a path, from the innermost to the root."""
        way = self._ways.get(project)
        if way is None:
            paths = upwards(project or ROOT)
            way = self._ways[project] = tuple(path for path in paths if path in self._limits)
        return way


class Allowances:
    """What each user, and each project, may still hold in one cycle before others go first;
    placements count at once. The quota of the user ``""`` is that of users without one.
    """

    def __init__(
        self,
        quotas: Mapping[str, Quota],
        usage: Usage,
        projects: Mapping[str, ProjectRow],
        project_usage: Usage,
    ) -> None:
        limits = {
            user: tuple([getattr(quota, limit.name) for limit, _ in RUNNING_LIMITS])
            for user, quota in quotas.items()
        }
        self._limits = {user: most if any(most) else None for user, most in limits.items()}
        self._default = self._limits.get("")
        self._quotas = quotas
        self._usage = usage
        self._spent: dict[str, Held] = {}
        self._projects = ProjectAllowances(projects, project_usage, usage) if projects else None

    def within(self, row: JobRow, need: Need, count: int) -> int:
        """How many of ``count`` such tasks of a job keep its user and its project within every
        limit.
        """
        limits = self._of(row.user)
        if limits is not None:
            count = _kept(limits, self.running(row.user), need, count)
        if self._projects is not None:
            count = self._projects.within(row.project, need, count)
        return count

    def spend(self, row: JobRow, need: Need, count: int) -> None:
        """Count placed tasks of a job."""
        if self._of(row.user) is not None:
            self._spent[row.user] = with_tasks(self.running(row.user), need, count)
        if self._projects is not None:
            self._projects.spend(row.project, need, count)

    def _of(self, user: str) -> tuple[int, ...] | None:
        """The limits of a user, else those of users without a quota; None: unlimited."""
        return self._limits.get(user, self._default)

    def running(self, user: str) -> Held:
        """What the user's open attempts hold, including this cycle's placements."""
        return self._spent.get(user) or self._usage.of(user)

    def limit_reached(self, row: JobRow, need: Need) -> Reason | None:
        """Why one more such task of a job would exceed the first limit that it would: of its user,
        else of its project. None when it would not.
        """
        user = row.user
        mosts = self._of(user) or NOTHING
        for (limit, _), most, running, share in zip(
            RUNNING_LIMITS, mosts, self.running(user), share_of(need), strict=True
        ):
            if most and share and running + share > most:
                quota = self._quotas.get(user) or self._quotas[""]
                source = quota.source_words(limit.name)
                return reasons.over_quota(user, limit, running, most, source)
        return self._projects.limit_reached(row.project, need) if self._projects else None


def _kept(limits: Held, running: Held, need: Need, count: int) -> int:
    """How many of ``count`` such tasks keep within limits; 0 is unlimited."""
    for limit, held, share in zip(limits, running, share_of(need), strict=True):
        if limit and share:
            count = min(count, max(0, limit - held) // share)
    return count
