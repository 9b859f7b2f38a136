"""The tables of the code equal those of the documents cell by cell; guards; every edge can
occur.
"""

import itertools
import re
from collections import Counter
from functools import partial

import pytest

from iris_core import states
from iris_core.guard import TableBroken, guard
from iris_core.lifecycle import FAILS, SUCCEEDS, Rule, To, decide, derive, judge
from iris_core.states import (
    Budget,
    DeploymentLifecycle,
    JobState,
    KernelStatus,
    MatchType,
    Outcome,
    RouteStatus,
    SchedulingResult,
    SessionStatus,
    SliceStatus,
    TaskState,
)
from iris_core.tables import deployment, job, route, session, task
from iris_core.tables import slice as slice_table

S, K, T = SessionStatus, KernelStatus, TaskState
MAINTAIN = "(maintain)"

# Copied from the documents, character for character.

ST_HANDLERS = """
| Handler | Current | SUCCESS | NEED_RETRY | EXPIRED | GIVE_UP |
|---------|---------|---------|------------|---------|---------|
| **ScheduleNewSessions** | PENDING | SCHEDULED | (maintain) | CANCELLED | CANCELLED |
| **PrepareSessions** | SCHEDULED, PREPARING | PREPARING | (maintain) | PENDING | PENDING |
| **StartSessions** | PREPARED | CREATING | (maintain) | PENDING | PENDING |
| **TerminateSessions** | TERMINATING | TERMINATED | (maintain) | TERMINATED | TERMINATED |
"""

ST_PROMOTIONS = """
| Handler | Current | check_kernel_statuses | match | SUCCESS |
|---------|---------|----------------------|-------|---------|
| **PromoteToPrepared** | SCHEDULED, PREPARING | PENDING, SCHEDULED, PREPARING, PULLING | NOT_ANY | PREPARED |
| **PromoteToRunning** | CREATING | PENDING, SCHEDULED, PREPARING, PULLING, PREPARED, CREATING | NOT_ANY | RUNNING |
| **PromoteToTerminated** | TERMINATING | non-terminal (PENDING~RUNNING) | NOT_ANY | TERMINATED |
| **DetectTermination** | RUNNING | terminal (TERMINATED, CANCELLED, ERROR) | ANY | TERMINATING |
"""

ST_TRANSITIONS = """
# ScheduleNewSessions
    success=TransitionStatus(session=SCHEDULED, kernel=SCHEDULED),
    expired=TransitionStatus(session=CANCELLED, kernel=CANCELLED),
    give_up=TransitionStatus(session=CANCELLED, kernel=CANCELLED),
# PrepareSessions
    success=TransitionStatus(session=PREPARING, kernel=PREPARING),
    expired=TransitionStatus(session=PENDING, kernel=PENDING),   # Re-scheduling
    give_up=TransitionStatus(session=PENDING, kernel=PENDING),   # Re-scheduling
# StartSessions
    success=TransitionStatus(session=CREATING, kernel=CREATING),
    expired=TransitionStatus(session=PENDING, kernel=PENDING),   # Re-scheduling
    give_up=TransitionStatus(session=PENDING, kernel=PENDING),   # Re-scheduling
# TerminateSessions
    success=TransitionStatus(session=TERMINATED, kernel=TERMINATED),
    expired=TransitionStatus(session=TERMINATED, kernel=TERMINATED),
    give_up=TransitionStatus(session=TERMINATED, kernel=TERMINATED),
"""

ST_DEPLOYMENTS = """
| Handler | Current | SUCCESS | FAILURE |
|---------|---------|---------|---------|
| **CheckPendingDeployment** | PENDING, CREATED | SCALING | (maintain) |
| **ScalingDeployment** | SCALING | READY | (maintain) |
| **CheckReplicaDeployment** | READY | SCALING | (maintain) |
| **ReconcileDeployment** | READY | (maintain) | SCALING |
| **DestroyingDeployment** | DESTROYING | DESTROYED | DESTROYED |
"""

ST_ROUTES = """
| Handler | Current | SUCCESS | FAILURE | STALE |
|---------|---------|---------|---------|-------|
| **ProvisioningRoute** | PROVISIONING | DEGRADED | FAILED_TO_START | - |
| **HealthCheckRoute** | HEALTHY, UNHEALTHY, DEGRADED | HEALTHY | UNHEALTHY | DEGRADED |
| **RunningRoute** | DEGRADED, HEALTHY, UNHEALTHY, FAILED_TO_START | (maintain) | TERMINATING | - |
| **RouteEviction** | UNHEALTHY | TERMINATING | (maintain) | - |
| **TerminatingRoute** | TERMINATING | TERMINATED | (maintain) | - |
| **ServiceDiscoverySync** | HEALTHY | (maintain) | (maintain) | - |
"""

TS_STATES = """
| `UNSPECIFIED` | 0 | -- | -- | `unspecified` (grey) |
| `PENDING` | 1 | No | -- | `pending` (amber) |
| `ASSIGNED` | 9 | No | -- | `assigned` (orange) |
| `BUILDING` | 2 | No | -- | `building` (purple) |
| `RUNNING` | 3 | No | -- | `running` (blue) |
| `SUCCEEDED` | 4 | Yes | No | `succeeded` (green) |
| `FAILED` | 5 | Yes | Yes | `failed` (red) |
| `KILLED` | 6 | Yes | No | `killed` (grey) |
| `WORKER_FAILED` | 7 | Yes | Yes | `worker_failed` (purple) |
| `UNSCHEDULABLE` | 8 | Yes | No | `unschedulable` (red) |
| `PREEMPTED` | 10 | Yes | Yes | `preempted` (orange) |
"""

TS_DISPLAY = """
| `pending` | `.status-pending` | Amber (#9a6700) |
| `assigned` | `.status-assigned` | Orange (#bc4c00) |
| `building` | `.status-building` | Purple (#8250df) |
| `running` | `.status-running` | Blue (#0969da) |
| `succeeded` | `.status-succeeded` | Green (#1a7f37) |
| `failed` | `.status-failed` | Red (#cf222e) |
| `killed` | `.status-killed` | Grey (#57606a) |
| `worker_failed` | `.status-worker_failed` | Purple (#8250df) |
| `unschedulable` | `.status-unschedulable` | Red (#cf222e) |
| `preempted` | `.status-preempted` | Orange (#bc4c00) |
"""

TS_FINISHED = """
SUCCEEDED       Always finished
KILLED          Always finished
UNSCHEDULABLE   Always finished
FAILED          Finished when failure_count > max_retries_failure
WORKER_FAILED   Finished when preemption_count > max_retries_preemption
PREEMPTED       Finished when preemption_count > max_retries_preemption
"""

TS_BUDGETS = """
| Failure | `failure_count` | `max_retries_failure` | 0 (no retries) | FAILED |
| Preemption | `preemption_count` | `max_retries_preemption` | 100 | WORKER_FAILED, PREEMPTED |
"""


def cells(text):
    """The rows of a Markdown table without its head, each a list of cells without marks."""
    rows = [
        line
        for line in text.strip().splitlines()
        if line.startswith("|") and not set(line) <= set("|-")
    ]
    made = [[cell.strip().strip("*`") for cell in row.strip("|").split("|")] for row in rows]
    return [row for row in made if row[0] != "Handler"]


def members(text):
    return [word.strip() for word in text.split(",")]


def shown(rule, result):
    to = rule.target(result)
    return MAINTAIN if to is None or to.status is None else to.status.name


RESULTS = (
    SchedulingResult.SUCCESS,
    SchedulingResult.NEED_RETRY,
    SchedulingResult.EXPIRED,
    SchedulingResult.GIVE_UP,
)


# ── Status Transitions ────────────────────────────────────────────────────────────────────────────


def test_the_handlers_are_those_of_the_document():
    assert [row[0] for row in cells(ST_HANDLERS)] == [rule.name for rule in session.HANDLERS]


@pytest.mark.parametrize("row", cells(ST_HANDLERS), ids=lambda row: row[0])
def test_a_handlers_row_is_the_documents(row):
    (rule,) = [rule for rule in session.HANDLERS if rule.name == row[0]]
    sources = {status.name for status in rule.sources}
    if (
        rule is session.START
    ):  # Status Transitions draws CREATING's clock and gives it no owner; StartSessions has it here
        assert sources == {*members(row[1]), "CREATING"}
    else:
        assert sources == set(members(row[1]))
    made = [shown(rule, result) for result in RESULTS]
    if (
        rule is session.TERMINATE
    ):  # that every end is known is a promotion's to say, and no order to stop can fail
        assert {made[0], made[3]} == {MAINTAIN}
        assert session.PROMOTE_TO_TERMINATED.target.name == row[2]
        made[0], made[3] = row[2], row[5]
    assert made == row[2:]


def test_sessions_go_as_the_document_says_and_no_row_says_it_of_kernels():
    found, rule = {}, ""
    for line in ST_TRANSITIONS.strip().splitlines():
        if line.startswith("# "):
            rule = line[2:]
        else:
            result, whole = re.search(
                r"(\w+)=TransitionStatus\(session=(\w+), kernel=\w+\)", line
            ).groups()
            found[rule, result] = (whole, None)
    made = {
        (rule.name, result.name.lower()): (to.status.name, to.part)
        for rule in session.HANDLERS
        for result in RESULTS
        if (to := rule.target(result)) is not None
    }
    assert made == {cell: to for cell, to in found.items() if cell not in NOT_CLAIMED}


NOT_CLAIMED = {("TerminateSessions", "success"), ("TerminateSessions", "give_up")}


def test_each_cell_with_another_owner_is_listed_with_its_reason():
    rows = {rule.name: rule for rule in (*session.HANDLERS, *session.PROMOTIONS)}
    different = {
        (name, f"{result.name}: {cell}")
        for name, _, *targets in cells(ST_HANDLERS)
        for result, cell in zip(RESULTS, targets, strict=True)
        if shown(rows[name], result) != cell
    }
    for name, sources, *_ in cells(ST_PROMOTIONS)[:2]:
        missing = set(members(sources)) - {status.name for status in rows[name].sources}
        different |= {(name, f"from {status}") for status in missing}
    assert different == {(cell.row, cell.cell) for cell in session.MOVED}


def test_the_promotions_are_those_of_the_document_and_two_more():
    added = {"DetectCancellation", "RegressToPending"}
    assert {row.name for row in session.PROMOTIONS} == {
        row[0] for row in cells(ST_PROMOTIONS)
    } | added


@pytest.mark.parametrize("row", cells(ST_PROMOTIONS)[:2], ids=lambda row: row[0])
def test_a_promotions_row_is_the_documents(row):
    (rule,) = [rule for rule in session.PROMOTIONS if rule.name == row[0]]
    ((condition,),) = rule.any_of
    wanted = set(members(row[1]))
    if (
        rule is session.PROMOTE_TO_PREPARED
    ):  # by then every order has been taken, and so the session is PREPARING
        wanted.remove("SCHEDULED")
    assert {status.name for status in rule.sources} == wanted
    assert {status.name for status in condition.statuses} == set(members(row[2]))
    assert condition.match is MatchType[row[3]]
    assert rule.target.name == row[4]


def test_a_session_ends_only_when_no_process_of_it_lives():
    """Status Transitions's list ends at RUNNING; a kernel that is TERMINATING still has a
    process.
    """
    ((condition,),) = session.PROMOTE_TO_TERMINATED.any_of
    assert condition.match is MatchType.NOT_ANY
    assert condition.statuses == frozenset(KernelStatus) - {K.TERMINATED, K.CANCELLED, K.ERROR}
    assert session.PROMOTE_TO_TERMINATED.sources == {S.TERMINATING}
    assert session.PROMOTE_TO_TERMINATED.target is S.TERMINATED


def test_the_end_of_a_kernel_is_noticed_first_in_every_status():
    """Status Transitions notices it while RUNNING only, and on any end;

    here a member that has done its work ends nobody.
    """
    assert session.DETECT_TERMINATION.sources == states.SESSION_LIVE | {S.PENDING}
    assert session.DETECT_TERMINATION.target is S.TERMINATING
    bad, leader, done = session.DETECT_TERMINATION.any_of
    assert (bad[0].fact, leader[0].fact) == ("ended_badly", "leader_done")
    assert (done[0].match, done[0].statuses) == (
        MatchType.ALL,
        frozenset({K.TERMINATED, K.CANCELLED, K.ERROR}),
    )
    order = [row.name for row in session.PROMOTIONS]
    assert (
        order.index("DetectTermination")
        < order.index("PromoteToPrepared")
        < order.index("PromoteToRunning")
    )


def test_a_session_without_kernels_is_never_promoted():
    for status in SessionStatus:
        assert derive(session.PROMOTIONS, {}, {"ended_badly": 0, "leader_done": 0}, status) is None


@pytest.mark.parametrize("row", cells(ST_DEPLOYMENTS), ids=lambda row: row[0])
def test_a_deployment_row_is_the_documents(row):
    (rule,) = [rule for rule in deployment.HANDLERS if rule.name == row[0]]
    assert {status.name for status in rule.sources} == set(members(row[1]))
    assert [shown(rule, SchedulingResult.SUCCESS), shown(rule, SchedulingResult.GIVE_UP)] == row[2:]


@pytest.mark.parametrize("row", cells(ST_ROUTES), ids=lambda row: row[0])
def test_a_route_row_is_the_documents(row):
    (rule,) = [rule for rule in route.HANDLERS if rule.name == row[0]]
    assert {status.name for status in rule.sources} == set(members(row[1]))
    made = [shown(rule, result) for result in (SchedulingResult.SUCCESS, SchedulingResult.GIVE_UP)]
    assert made == row[2:4]
    assert shown(rule, SchedulingResult.EXPIRED) == (MAINTAIN if row[4] == "-" else row[4])


def test_the_deployment_and_route_handlers_are_those_of_the_document():
    assert [rule.name for rule in deployment.HANDLERS] == [row[0] for row in cells(ST_DEPLOYMENTS)]
    assert [rule.name for rule in route.HANDLERS] == [row[0] for row in cells(ST_ROUTES)]


def test_an_update_during_an_update_wins_and_a_failed_one_goes_back():
    """Status Transitions gives DEPLOYING no owner: these rows are those of
    docs/design/serving.md#update.
    """
    made = [
        (rule.name, {s.name for s in rule.sources}, *map(partial(shown, rule), CLAIMED))
        for rule in ADDED
    ]
    assert made == [
        ("RollingDeployment", {"DEPLOYING"}, "READY", "DEPLOYING"),
        ("UpdateDeployment", {"SCALING", "READY", "DEPLOYING"}, "DEPLOYING", MAINTAIN),
        ("DestroyDeployment", {s.name for s in deployment.LIVE}, "DESTROYING", MAINTAIN),
    ]


ADDED = [rule for rule in deployment.TABLE if rule not in deployment.HANDLERS]
CLAIMED = (SchedulingResult.SUCCESS, SchedulingResult.GIVE_UP)


# ── Task States ───────────────────────────────────────────────────────────────────────────────────


def test_task_states_and_their_wire_values_are_the_documents():
    assert {row[0]: int(row[1]) for row in cells(TS_STATES)} == {
        state.name: state.value for state in TaskState
    }


def test_terminal_and_retriable_states_are_the_documents():
    rows = cells(TS_STATES)
    assert {row[0] for row in rows if row[2] == "Yes"} == {state.name for state in states.TERMINAL}
    assert {row[0] for row in rows if row[3] == "Yes"} == {state.name for state in states.FAILURES}


def test_names_classes_and_colours_are_the_documents():
    made = {}
    for name, css, colour in cells(TS_DISPLAY):
        made[name] = (css, re.search(r"#\w{6}", colour).group())
    wanted = [state for state in TaskState if state is not T.UNSPECIFIED]
    assert made == {
        states.display_name(state): (f".{states.css_class(state)}", states.DISPLAY_COLOURS[state])
        for state in wanted
    }


@pytest.mark.parametrize("line", TS_FINISHED.strip().splitlines(), ids=lambda line: line.split()[0])
def test_is_finished_is_the_documents(line):
    name, rule = line.split(maxsplit=1)
    state = T[name]
    if rule == "Always finished":
        assert task.is_finished(state, 0, 5)
    else:
        for spent, limit in itertools.product(range(4), range(3)):
            assert task.is_finished(state, spent, limit) is (spent > limit)
            assert task.is_finished(state, spent, limit, no_retry=True)


def test_a_task_that_has_not_ended_is_not_finished():
    for state in states.NON_TERMINAL:
        assert not task.is_finished(state, 99, 0)


def test_each_state_is_charged_to_the_documents_budget():
    for row in cells(TS_BUDGETS):
        for name in members(row[4]):
            assert task.BUDGET_OF_STATE[T[name]] is Budget(row[0].lower())


def test_default_limits_are_the_documents():
    from iris_core.spec.jobs import JobSpec

    spec = JobSpec(name="/a", command=("true",))
    made = (spec.max_retries_failure, spec.max_retries_preemption)
    assert made == tuple(int(row[3].split()[0]) for row in cells(TS_BUDGETS))


# ── the judgement ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("tries", "result"), [(4, SchedulingResult.NEED_RETRY), (5, SchedulingResult.GIVE_UP)]
)
def test_limit_five_gives_up_at_the_sixth_failure(tries, result):
    assert judge(Outcome.FAILURE, tries=tries, limit=5) is result


def test_limit_zero_gives_up_at_once():
    assert judge(Outcome.FAILURE, tries=0, limit=0) is SchedulingResult.GIVE_UP


def test_failure_and_expiry_together_give_up():
    assert (
        judge(Outcome.FAILURE, tries=5, limit=5, in_status_ms=11, timeout_ms=10)
        is SchedulingResult.GIVE_UP
    )


@pytest.mark.parametrize("outcome", [Outcome.FAILURE, Outcome.SKIPPED])
def test_a_timeout_expires_strictly_after_it(outcome):
    at = judge(outcome, limit=5, in_status_ms=10, timeout_ms=10)
    assert at is (
        SchedulingResult.NEED_RETRY if outcome is Outcome.FAILURE else SchedulingResult.SKIPPED
    )
    assert judge(outcome, limit=5, in_status_ms=11, timeout_ms=10) is SchedulingResult.EXPIRED


def test_success_comes_before_everything():
    made = judge(Outcome.SUCCESS, tries=99, limit=0, in_status_ms=99, timeout_ms=0)
    assert made is SchedulingResult.SUCCESS


def test_without_a_timeout_nothing_expires():
    assert judge(Outcome.SKIPPED, in_status_ms=10**12, timeout_ms=None) is SchedulingResult.SKIPPED


def test_what_a_row_does_not_expect_to_hear_says_nothing_of_it():
    result, to = decide(session.TERMINATE, S.TERMINATING, Outcome.FAILURE)
    assert (result, to) == (SchedulingResult.SKIPPED, None)
    late = decide(session.TERMINATE, S.TERMINATING, Outcome.FAILURE, in_status_ms=2, timeout_ms=1)
    assert late == (SchedulingResult.EXPIRED, To(S.TERMINATED))


def test_a_free_failure_that_has_come_too_often_has_its_own_target():
    made = [decide(task.LOSE, source, Outcome.FAILURE) for source in (T.ASSIGNED, T.RUNNING)]
    assert [to.status for _, to in made] == [T.UNSCHEDULABLE, T.WORKER_FAILED]


def test_every_result_is_reached_by_some_judgement():
    made = {
        judge(outcome, tries=tries, limit=limit, in_status_ms=at, timeout_ms=retry_for_s)
        for outcome in Outcome
        for tries in range(3)
        for limit in range(3)
        for at in range(3)
        for retry_for_s in (None, 1)
    }
    assert made == set(SchedulingResult)


# ── guards ────────────────────────────────────────────────────────────────────────────────────────

TABLES = {
    "task": (TaskState, states.TERMINAL | {T.UNSPECIFIED}, task.TABLE, task.WAYS_OUT),
    "session": (
        SessionStatus,
        states.SESSION_TERMINAL,
        (*session.HANDLERS, *session.PROMOTIONS),
        session.WAYS_OUT,
    ),
    "deployment": (DeploymentLifecycle, deployment.TERMINAL, deployment.TABLE, deployment.WAYS_OUT),
    "route": (RouteStatus, route.TERMINAL, route.TABLE, route.WAYS_OUT),
    "slice": (SliceStatus, slice_table.TERMINAL, slice_table.TABLE, slice_table.WAYS_OUT),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_status_that_is_no_end_has_an_owner_and_a_way_out(name):
    statuses, terminal, rows, ways_out = TABLES[name]
    for status in set(statuses) - terminal:
        assert any(status in row.sources for row in rows), f"{status} has no owner"
        assert status in ways_out[status].sources


@pytest.mark.parametrize("name", TABLES)
def test_ends_absorb(name):
    _, terminal, rows, _ = TABLES[name]
    assert not [(row.name, status) for row in rows for status in row.sources & terminal]


@pytest.mark.parametrize("name", TABLES)
def test_every_status_that_is_no_end_can_be_reached_and_every_end_too(name):
    statuses, _, rows, _ = TABLES[name]
    reached = {next(status for status in statuses if status is not T.UNSPECIFIED)}
    if name == "deployment":
        reached.add(
            DeploymentLifecycle.CREATED
        )  # Status Transitions: deprecated, kept for what was stored with it
    while True:
        more = {
            to
            for row in rows
            if row.sources & reached
            for to in (
                [row.target] if not isinstance(row, Rule) else [t.status for t in row.targets]
            )
            if to is not None
        }
        if more <= reached:
            break
        reached |= more
    assert reached == set(statuses) - {T.UNSPECIFIED}


def test_a_table_that_leaves_something_stuck_is_not_imported():
    rows = [Rule(name="go", sources=frozenset({S.PENDING}), success=To(S.SCHEDULED))]
    with pytest.raises(TableBroken, match="SCHEDULED has no owner"):
        guard("t", (S.PENDING, S.SCHEDULED), frozenset(), rows, {S.PENDING: rows[0]})


def test_a_table_without_a_way_out_is_not_imported():
    stay = Rule(name="stay", sources=frozenset({S.PENDING}), success=To(S.PENDING))
    with pytest.raises(TableBroken, match="nothing leads out of PENDING"):
        guard("t", (S.PENDING,), frozenset(), [stay], {S.PENDING: stay})


def test_the_way_out_is_asked_for_however_the_statuses_are_given():
    stay = Rule(name="stay", sources=frozenset({S.PENDING}), success=To(S.RUNNING))
    with pytest.raises(TableBroken, match="nothing leads out of PENDING"):
        guard("t", iter([S.PENDING]), frozenset(), [stay], {})


def test_a_table_that_leaves_an_end_is_not_imported():
    back = Rule(name="back", sources=frozenset({S.PENDING, S.TERMINATED}), success=To(S.RUNNING))
    with pytest.raises(TableBroken, match="back leads out of TERMINATED, which is an end"):
        guard("t", (S.PENDING,), frozenset({S.TERMINATED, S.RUNNING}), [back], {S.PENDING: back})


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (
            Rule(name="r", sources=frozenset({S.PENDING}), expired=To(S.RUNNING)),
            "without a patience",
        ),
        (Rule(name="r", sources=frozenset({S.PENDING})), "leads nowhere"),
        (
            Rule(
                name="r",
                sources=frozenset({S.PENDING}),
                give_up=To(S.RUNNING),
                budget=Budget.FAILURE,
                free_from=frozenset({S.PENDING}),
            ),
            "costs nothing",
        ),
        (
            Rule(
                name="r",
                sources=frozenset({S.PENDING}),
                success=To(S.RUNNING),
                free_from=frozenset({S.CREATING}),
            ),
            "does not start from",
        ),
        (
            Rule(name="r", sources=frozenset({S.PENDING}), outcomes=FAILS, success=To(S.RUNNING)),
            "target for success, which nobody claims",
        ),
        (
            Rule(
                name="r", sources=frozenset({S.PENDING}), outcomes=SUCCEEDS, give_up=To(S.RUNNING)
            ),
            "for failure, which nobody claims",
        ),
        (
            Rule(
                name="r",
                sources=frozenset({S.PENDING}),
                outcomes=SUCCEEDS,
                need_retry=To(S.RUNNING),
            ),
            "for failure, which nobody claims",
        ),
        (
            Rule(
                name="r",
                sources=frozenset({S.PENDING, S.RUNNING}),
                budget=Budget.FAILURE,
                need_retry=To(S.RUNNING),
                free_from=frozenset({S.PENDING}),
            ),
            "only one of them",
        ),
        (
            Rule(name="r", sources=frozenset({S.PENDING}), free_give_up=To(S.RUNNING)),
            "only one of them",
        ),
    ],
)
def test_a_cell_nothing_can_reach_is_not_imported(rule, why):
    with pytest.raises(TableBroken, match=why):
        guard("t", (S.PENDING,), frozenset({S.RUNNING}), [rule], {S.PENDING: rule})


# ── every row is the first that matches, for something ────────────────────────────────────────────


def combinations(statuses, size):
    for parts in itertools.combinations_with_replacement(sorted(statuses, key=str), size):
        yield Counter(parts)


def test_every_job_rule_decides_some_job():
    found = {
        derive(
            job.TABLE, counts, {"max_task_failures": limit, "started": started, "ends_together": 1}
        ).name
        for size in (1, 2, 3)
        for counts in combinations(set(TaskState) - {T.UNSPECIFIED}, size)
        for limit in range(3)
        for started in (0, 1)
    }
    assert found == {row.name for row in job.TABLE}


def test_every_promotion_decides_some_session():
    found = set()
    for status in SessionStatus:
        for counts in combinations(KernelStatus, 2):
            for bad in (0, 1):
                row = derive(
                    session.PROMOTIONS, counts, {"ended_badly": bad, "leader_done": 0}, status
                )
                if row is not None:
                    found.add((row.name, status))
    assert found >= {(row.name, status) for row in session.PROMOTIONS for status in row.sources}


def test_every_job_is_derived_to_something():
    for size in (1, 2, 3):
        for counts in combinations(set(TaskState) - {T.UNSPECIFIED}, size):
            assert (
                derive(
                    job.TABLE, counts, {"max_task_failures": 0, "started": 0, "ends_together": 0}
                )
                is not None
            )


def test_derived_job_states_are_those_of_the_enumeration():
    assert {row.target for row in job.TABLE} == set(JobState) - {JobState.UNSPECIFIED}


# ── how a part is shown ───────────────────────────────────────────────────────────────────────────


def test_every_kernel_status_is_shown_as_a_session_status():
    assert set(session.SINGLE) == set(KernelStatus)


def test_every_stage_that_a_worker_reports_of_a_live_attempt_has_its_row():
    assert set(task.STAGES) == set(KernelStatus) - states.KERNEL_TERMINAL - {
        K.PENDING,
        K.SCHEDULED,
        K.TERMINATING,
    }


def test_match_types_count_as_their_names_say():
    from iris_core.lifecycle import Condition

    some = frozenset({K.RUNNING})
    for inside, outside in itertools.product(range(3), range(3)):
        counts = Counter({K.RUNNING: inside, K.PENDING: outside})
        total = inside + outside
        assert Condition(some, MatchType.ALL).holds(counts, {}) is (total > 0 and outside == 0)
        assert Condition(some, MatchType.ANY).holds(counts, {}) is (inside > 0)
        assert Condition(some, MatchType.NOT_ANY).holds(counts, {}) is (total > 0 and inside == 0)
