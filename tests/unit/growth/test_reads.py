"""What a read adds up and compares depends on kinds of jobs and hosts, not on how many there are."""

from __future__ import annotations

from msgspec.structs import asdict

from iris_core.spec.resources import Amount
from iris_core.views.queries import UsersQuery
from iris_state.records.changes import Assigned, WorkerRegistered
from iris_state.views.cluster.demand import in_whole_gib, known_shapes
from iris_state.views.cluster.users import users
from tests.support.work import calls_of
from tests.unit.state.test_snapshot import Story, job

ROOM = Amount(1_000_000, 1 << 40, 1 << 40)


def host(number: int) -> WorkerRegistered:
    attributes: dict[str, str | int | float] = {"zone": f"z{number % 2}", "serial": number}
    return WorkerRegistered(f"w{number}", "i", attributes, ROOM)


def test_a_page_of_users_adds_up_kinds_of_jobs() -> None:
    def additions(jobs: int) -> int:
        story = Story()
        story.tell(host(0))
        for number in range(1, jobs + 1):
            story.tell(job(number, f"/job-{number}", 1), Assigned(number, 0, 0, "w0"))
        [view] = users(story.ledger, UsersQuery()).items
        assert asdict(view)["running_cpu"] == 100 * jobs
        return calls_of(lambda: users(story.ledger, UsersQuery()), Amount.__mul__)

    assert additions(20) == additions(200) == 1


def test_the_demand_compares_kinds_of_hosts() -> None:
    def compared(hosts: int) -> int:
        story = Story()
        story.tell(*map(host, range(hosts)))
        assert len(known_shapes(story.ledger)) == 1
        return calls_of(lambda: known_shapes(story.ledger), in_whole_gib)

    assert compared(20) == compared(200) == 1
