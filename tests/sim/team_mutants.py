"""Mutants of the code of projects, each of which the simulation must detect.

See also: `mutants`, which keeps them with the others.
"""

from __future__ import annotations

import msgspec

from iris_core.messages.gateway_state import Caller
from iris_core.spec.resources import Amount
from iris_state.commands import execute, projects
from iris_state.records import shares
from iris_state.records.apply import usage
from iris_state.records.changes import ProjectRemoved
from iris_state.records.indexes.running_usage import RunningUsage
from iris_state.records.ledger import Ledger
from iris_state.records.shares import Shares
from iris_state.snapshots import snapshot
from tests.sim.mutants import Put, plant


@plant()
def a_project_does_not_count_what_is_used_below_it(put: Put) -> None:
    """The sums of a subtree lack those of the projects in it."""
    put(usage, "names_of_project", lambda path: (path,))


@plant()
def waiting_tasks_are_not_counted_in_projects(put: Put) -> None:
    """A limit of waiting tasks bounds nothing."""
    put(Ledger, "_count_in_projects", lambda self, job, by: None)


@plant()
def what_runs_in_a_project_is_never_over(put: Put) -> None:
    """The end of an attempt is not subtracted from what its project holds."""
    leave = RunningUsage.leave

    def kept(self: RunningUsage, job: object, *given: object) -> None:
        if self._groups.__name__ == "groups_of":
            leave(self, job, *given)  # type: ignore[arg-type]

    put(RunningUsage, "leave", kept)


@plant()
def an_unknown_project_is_accepted(put: Put) -> None:
    """A job is in a project that nobody has set."""
    project_of = execute.project_of

    def unknown(ledger: Ledger, asked: str, user: str, caller: Caller, parent: object) -> str:
        return "/lost" if asked else project_of(ledger, asked, user, caller, parent)  # type: ignore[arg-type]

    put(execute, "project_of", unknown)


@plant()
def a_project_is_removed_with_its_jobs(put: Put) -> None:
    """What runs there is in a project that is gone."""
    put(projects, "_remove", lambda ledger, path, asked, caller: iter((ProjectRemoved(path),)))


@plant()
def a_snapshot_forgets_projects(put: Put) -> None:
    """After a restart there are none."""
    rest = snapshot._rest
    put(snapshot, "_rest", lambda *given: msgspec.structs.replace(rest(*given), projects=[]))


@plant()
def a_user_keeps_an_earlier_default(put: Put) -> None:
    """Somebody has two default projects."""
    put(projects, "_taken_from", lambda ledger, user, path: iter(()))


@plant()
def an_end_is_not_counted_for_shares(put: Put) -> None:
    """What has ended goes on to be used."""
    hold = Shares.hold

    def kept(self: Shares, project: str, user: str, amount: Amount, sign: int) -> None:
        if sign > 0:
            hold(self, project, user, amount, sign)

    put(Shares, "hold", kept)


@plant()
def what_was_used_counts_for_ever(put: Put) -> None:
    """Use is not halved with time."""
    put(shares, "_decayed", lambda ms, half_life_ms: (1.0, ms / 1000))


@plant()
def a_snapshot_forgets_shares(put: Put) -> None:
    """After a restart nobody has used anything."""
    rest = snapshot._rest
    put(snapshot, "_rest", lambda *given: msgspec.structs.replace(rest(*given), shares=None))


@plant()
def steps_of_waiting_jobs_stay(put: Put) -> None:
    """The queue is in the order of when tasks came to wait."""
    put(Ledger, "renew_shares", lambda self, now_ms: self.shares.renew(now_ms, self._capacity))
