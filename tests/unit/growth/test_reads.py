"""What a read does in one piece depends on what it shows, not on how much is kept; and what it adds
up and compares depends on kinds of jobs and hosts.
"""

from __future__ import annotations

import pytest
from msgspec.structs import asdict, replace

from iris_core.messages.gateway_state import Caller, Query
from iris_core.spec.resources import Amount
from iris_core.states import Cause, JobState
from iris_core.views import queries as q
from iris_core.views.jobs import JOB_COLUMNS
from iris_state import views
from iris_state.records.changes import Assigned, Change, JobMoved, WorkerRegistered
from iris_state.records.ledger import Ledger
from iris_state.records.shares import WEEK_MS
from iris_state.views import pages
from iris_state.views.cluster import demand, hosts
from iris_state.views.cluster.demand import in_whole_gib, known_shapes
from iris_state.views.cluster.users import users
from iris_state.views.pages import Pieces, at_once
from iris_state.views.work import history, jobs, queue
from tests.support.work import calls_of, exponent, work_of
from tests.unit.state.test_snapshot import Story, done, job

ROOM = Amount(1_000_000, 1 << 40, 1 << 40)
FLAT = 0.1
SHOWN = 10
"""Items of a page."""
SMALL, LARGE = 30, 300


def host(number: int) -> WorkerRegistered:
    attributes: dict[str, str | int | float] = {"zone": f"z{number % 2}", "serial": number}
    attributes |= {"tpu-name": f"slice-{number // 2:04}", "tpu-worker-id": number % 2}
    return WorkerRegistered(f"w{number:04}", "i", attributes, ROOM)


def cluster(size: int) -> Ledger:
    """So many hosts in slices of two, of which half are used; as many jobs that run, as wait and as
    have ended, each of a user of its own; and one job of as many tasks, of which each runs.
    """
    story = Story()
    story.ledger.begin_shares(fair_share=True, half_life_ms=WEEK_MS)
    story.tell(*map(host, range(size)))
    for number in range(1, 3 * size + 1):
        admitted = job(number, f"/job-{number:05}", 1)
        user = f"user-{number:05}"
        spec = replace(admitted.spec, user=user, labels={"number": str(number)})
        story.tell(replace(admitted, user=user, spec=spec))
        if number % 3 == 0:
            story.tell(Assigned(number, 0, 0, f"w{number // 6:04}"))
        elif number % 3 == 1:
            ended = JobMoved(number, JobState.SUCCEEDED, Cause.EXITED)
            story.tell(*(_at(change, "w0000") for change in done(number, 0)), ended)
    wide = 3 * size + 1
    story.tell(job(wide, "/wide", size))
    story.tell(*(Assigned(wide, index, 0, f"w{index // 2:04}") for index in range(size)))
    return story.ledger


def _at(change: Change, worker: str) -> Change:
    return replace(change, worker=worker) if isinstance(change, Assigned) else change


def pieces_of(ledger: Ledger, query: q.ViewQuery) -> list[int]:
    """The work of each piece of a read."""
    asked = Query(q.view_name(type(query)), q.arguments_of(query), Caller("ann"))
    steps = views.read(ledger, asked)
    found: list[int] = []
    answers: list[bytes | None] = []
    while not any(answers):
        found.append(work_of(lambda: answers.append(_made(steps))))
    return found


def _made(steps: Pieces[bytes]) -> bytes | None:
    """Make one piece; returns the answer when there are no more."""
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    return None


FLAT_READS: tuple[q.ViewQuery, ...] = (
    q.JobsQuery(limit=SHOWN),
    q.JobsQuery(limit=SHOWN, state="succeeded"),
    q.JobsQuery(limit=SHOWN, name_prefix="/job-"),
    *(q.JobsQuery(limit=SHOWN, order=f"-{column}") for column in JOB_COLUMNS),
    q.NamedJobsQuery(names=("/wide",)),
    q.JobQuery(job="/job-00001"),
    q.TreeQuery(job="/job-00001"),
    q.TasksQuery(job="/wide", limit=SHOWN),
    q.TaskQuery(task="/wide/5"),
    q.AttemptsQuery(task="/wide/5", limit=SHOWN),
    q.WhyQuery(job="/wide"),
    q.WhyQuery(task="/wide/5"),
    q.HistoryQuery(job="/wide", limit=SHOWN),
    q.LatestHistoryQuery(job="/wide", count=SHOWN),
    q.SessionsQuery(limit=SHOWN),
    q.SessionsQuery(job="/wide", limit=SHOWN),
    q.SessionQuery(session="j1-0"),
    q.QueueQuery(limit=SHOWN),
    q.GatedJobsQuery(limit=SHOWN),
    q.QueueHoldsQuery(limit=SHOWN),
    q.WorkersQuery(limit=SHOWN),
    q.WorkerQuery(worker="w0001"),
    q.SlicesQuery(limit=SHOWN),
    q.QuotaQuery(user="user-00001"),
    q.QuotasQuery(limit=SHOWN),
    q.UsersQuery(limit=SHOWN),
    q.StoredUsageQuery(limit=SHOWN),
    q.OverviewQuery(),
    q.LastHourQuery(),
    q.DemandQuery(),
    q.DeadLettersQuery(limit=SHOWN),
    q.DeploymentsQuery(limit=SHOWN),
    q.AuditQuery(limit=SHOWN),
    q.JobUsageQuery(job="/wide"),
    q.UsageQuery(limit=SHOWN, by="user"),
    q.UsageQuery(limit=SHOWN, by="job"),
    q.UsageQuery(limit=SHOWN, by="day"),
    q.UsageQuery(limit=SHOWN, by="project"),
    q.ProjectsQuery(limit=SHOWN),
    q.ProjectQuery(project="/"),
    q.MembershipsQuery(projects=("/", "/research")),
    q.SharesQuery(limit=SHOWN),
)
OTHER_READS = {
    q.TaskStatesQuery: "says the state of every task, 0.25 us each",
    q.ClosedGateQuery: "is about a specification",
    q.PoolPlanQuery: "packs the kinds of waiting work on pools",
    **dict.fromkeys(
        (q.FleetQuery, q.PoolsQuery, q.PoolQuery, q.PoolHistoryQuery),
        "is about pools, and linear in their slices and in the kinds of waiting work",
    ),
    **dict.fromkeys(
        (q.FleetSlicesQuery, q.FleetSliceQuery), "looks up hosts, linear in those of slices"
    ),
    **dict.fromkeys(
        (
            q.DeploymentQuery,
            q.DeploymentRoutesQuery,
            q.DeploymentHistoryQuery,
            q.DeploymentRequestsQuery,
            q.DeploymentWhyQuery,
        ),
        "is about one deployment, and linear in its routes",
    ),
}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces as small beside the cluster of a test as they are beside a large one."""
    monkeypatch.setattr(pages, "SCANNED", 2 * SHOWN)
    monkeypatch.setattr(jobs, "ORDERED_AT_ONCE", SHOWN)
    for module in (demand, history, jobs, queue):
        monkeypatch.setattr(module, "LOOKED_AT_ONCE", SHOWN)
    monkeypatch.setattr(jobs, "AHEAD_JOBS", SHOWN)
    monkeypatch.setattr(history, "TASKS", SHOWN)
    monkeypatch.setattr(hosts, "USERS", SHOWN)
    monkeypatch.setattr(hosts, "TASKS", SHOWN)


@pytest.fixture(scope="module")
def clusters() -> tuple[Ledger, Ledger]:
    return cluster(SMALL), cluster(LARGE)


@pytest.mark.parametrize(
    "query", FLAT_READS, ids=lambda query: str(q.arguments_of(query) | {"": type(query).__name__})
)
@pytest.mark.usefixtures("small_pieces")
def test_no_piece_of_a_read_grows_with_the_cluster(
    query: q.ViewQuery, clusters: tuple[Ledger, Ledger]
) -> None:
    few, many = (max(pieces_of(ledger, query)) for ledger in clusters)
    assert exponent(few, many) < FLAT


def test_every_read_has_a_row() -> None:
    assert {*map(type, FLAT_READS), *OTHER_READS} == {*views.KINDS.values()}


def test_a_page_of_users_adds_up_no_jobs() -> None:
    def additions(jobs: int) -> int:
        story = Story()
        story.tell(host(0))
        for number in range(1, jobs + 1):
            story.tell(job(number, f"/job-{number}", 1), Assigned(number, 0, 0, "w0000"))
        [view] = users(story.ledger, q.UsersQuery()).items
        assert asdict(view)["running_cpu"] == 100 * jobs
        return work_of(lambda: users(story.ledger, q.UsersQuery()))

    assert additions(20) == additions(200)


def test_the_demand_compares_kinds_of_hosts() -> None:
    def compared(size: int) -> int:
        story = Story()
        story.tell(*map(host, range(size)))
        assert len(at_once(known_shapes(story.ledger))) == 1
        return calls_of(lambda: at_once(known_shapes(story.ledger)), in_whole_gib)

    assert compared(20) == compared(200) == 1
