"""Pages of the history of large jobs: bounded work for each, no row missing or duplicated."""

from collections import Counter, defaultdict

import pytest

from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Placement, Plan
from iris_core.messages.state_worker import Ended, Stage
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_core.states import Cause, KernelStatus
from iris_state.policy import Policy
from iris_state.views.pages import at_once
from iris_state.views.work import history
from tests.support.world import Host, World

ENDS = (KernelStatus.RUNNING, None), (KernelStatus.TERMINATED, Ended(Cause.EXITED, exit_code=1))


class Unchecked(World):
    """For very many steps: the stories elsewhere have looked at everything after each."""

    def check(self):
        pass


def large_job(tasks, attempts=1):
    """A job whose tasks have failed so often, all of them each time before the first begins
    again.
    """
    world = Unchecked(Policy(max_building=tasks))
    world.register(Host("w0", Amount(1000 * tasks), {}))
    spec = JobSpec(name="/a", command=("false",), replicas=tasks, max_retries_failure=attempts)
    world.submit(spec, Caller("ann"))
    for number in range(attempts):
        world.now_ms += 1000
        indexes = tuple(range(tasks))
        world.plan(
            Plan("s", world.machine.sequence, ("w0",), (Placement(1, indexes, (0,) * tasks),))
        )
        for status, ended in ENDS:
            world.now_ms += 1000
            refs = (AttemptRef(1, index, number) for index in indexes)
            world.say("w0", *(Stage(ref, status, world.now_ms, ended) for ref in refs))
    return world


@pytest.fixture
def built(monkeypatch):
    """How many rows of which kind have been made so far."""
    counts = Counter()

    def counted(name):
        made = getattr(history, name)

        def make(*args, **fields):
            counts[name] += 1
            return made(*args, **fields)

        monkeypatch.setattr(history, name, make)

    counted("HistoryEntry")
    counted("HistoryRow")
    return counts


def rows(world, **arguments):
    """Every row of the job, page by page."""
    found, cursor = [], None
    while True:
        page = world.query("history", **{"job": "/a", "cursor": cursor, **arguments})
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def of_each_session(found):
    sessions = defaultdict(list)
    for row in found:
        sessions[row["entity"]].append(row)
    return dict(sessions)


def test_the_rows_made_for_a_page_do_not_grow_with_the_job(built):
    made = []
    for tasks in (1000, 3000):
        world = large_job(tasks)
        built.clear()
        page = world.query("history", job="/a", limit=50)
        first = dict(built)
        assert (len(page["items"]), first["HistoryRow"]) == (50, 50)
        built.clear()
        world.query("history", job="/a", limit=50, cursor=page["next_cursor"])
        second = dict(built)
        built.clear()
        assert len(world.query("why", job="/a")["history"]) == 20
        made.append((first, second, dict(built)))
    assert made[0] == made[1]
    assert max(count for counts in made[0] for count in counts.values()) < 10 * history.ATTEMPTS


def test_the_rows_made_for_a_page_do_not_grow_with_the_attempts_of_a_task(built):
    made = []
    for attempts in (600, 1200):
        world = large_job(1, attempts)
        built.clear()
        world.query("history", job="/a", limit=50)
        made.append(dict(built))
    assert made[0] == made[1]


@pytest.mark.parametrize(("tasks", "attempts"), [(1, 20), (7, 3), (3, 7)])
def test_pages_of_any_size_tell_each_session_what_one_page_tells(tasks, attempts, monkeypatch):
    world = large_job(tasks, attempts)
    whole = rows(world, limit=500)
    assert [row["first_at"] for row in whole] == sorted(row["first_at"] for row in whole)
    monkeypatch.setattr(history, "TASKS", 2)
    monkeypatch.setattr(history, "ATTEMPTS", 6)
    for limit in (1, 4, 500):
        found = rows(world, limit=limit)
        assert of_each_session(found) == of_each_session(whole)
        assert len(found) == len(whole)
        for index in range(tasks):
            assert (
                rows(world, task=f"/a/{index}", limit=limit)
                == of_each_session(whole)[f"j1-{index}"]
            )


@pytest.mark.parametrize(("tasks", "attempts"), [(1, 20), (7, 3), (3, 7)])
def test_why_of_a_task_tells_the_newest_rows_of_that_task_only(tasks, attempts):
    """Who asks about one task must not read what became of another, nor miss its own rows among
    them.
    """
    world = large_job(tasks, attempts)
    for index in range(tasks):
        own = rows(world, task=f"/a/{index}", limit=500)
        assert world.query("why", task=f"/a/{index}")["history"] == own[-20:]


@pytest.mark.parametrize(("tasks", "attempts"), [(1, 20), (7, 3), (3, 7)])
def test_the_latest_rows_are_the_newest_of_all_of_them(tasks, attempts):
    world = large_job(tasks, attempts)
    whole = rows(world, limit=500)
    for count in (1, 10, 500):
        found = world.query("latest_history", job="/a", count=count)
        assert [row["first_at"] for row in found["items"]] == [
            row["first_at"] for row in whole[-count:]
        ]
        assert all(row in whole for row in found["items"])
        assert (found["total"], found["is_least"]) == (len(whole), False)


def test_the_latest_rows_are_found_without_making_all(built):
    world = large_job(1000, 2)
    built.clear()
    found = world.query("latest_history", job="/a", count=50)
    assert (len(found["items"]), found["total"], found["is_least"]) == (50, 2000, True)
    assert built["HistoryRow"] == 50
    assert built["HistoryEntry"] < 1000


def test_the_latest_rows_of_a_gang_and_of_a_cancelled_job_are_all(script):
    script.play("""
        worker w0 rack=a
        worker w1 rack=a
        submit /a replicas=2 gang=rack
        schedule                -> placed 2
        submit /b cpu=9
        cancel /b
    """)
    for job in ("/a", "/b"):
        page, found = (script.world.query(view, job=job) for view in ("history", "latest_history"))
        assert page["items"]
        assert (found["items"], found["total"]) == (page["items"], len(page["items"]))


def test_of_a_task_the_rows_of_its_gang_are_told_too(script):
    script.play("""
        worker w0 rack=a
        worker w1 rack=a
        submit /a replicas=2 gang=rack
        schedule                -> placed 2
    """)
    whole = rows(script.world)
    assert {row["entity"] for row in whole} == {"j1"}
    assert rows(script.world, task="/a/1") == whole


def test_the_rows_made_for_a_late_task_of_a_large_job_are_few(built):
    world = large_job(1000)
    built.clear()
    assert {row["entity"] for row in rows(world, task="/a/999")} == {"j1-999"}
    assert built["HistoryRow"] < 20
    assert built["HistoryEntry"] < 5 * history.ATTEMPTS


def test_a_cursor_that_no_page_gave_is_refused(script):
    script.play("submit /a")
    for cursor in ("x", "1-2", "1-2-3-4", "1--2", "-1-2-3"):
        assert script.world.query("history", job="/a", cursor=cursor) is None
    assert script.world.query("history", job="/a", cursor="99999-0-0") == {
        "items": [],
        "next_cursor": None,
    }


def test_the_rows_of_a_task_are_one_chain_in_one_millisecond():
    """It fails, is placed again and starts, all in one millisecond."""
    world = Unchecked(Policy())
    world.register(Host("w0", Amount(1000), {}))
    spec = JobSpec(name="/a", command=("false",), max_retries_failure=2)
    world.submit(spec, Caller("ann"))
    for number in range(3):
        plan = Plan("s", world.machine.sequence, ("w0",), (Placement(1, (0,), (0,)),))
        world.plan(plan)
        for status, ended in ENDS:
            world.say("w0", Stage(AttemptRef(1, 0, number), status, world.now_ms, ended))
    job = world.machine.ledger.jobs[1]
    assert {entry.first_ms for entry in history.entries(job, (0, 0))} == {world.now_ms}
    for rows in (history.entries(job, (0, 0)), at_once(history.latest(job, 50)).items):
        steps = [(row.from_status, row.to_status) for row in rows]
        assert len(steps) > 15
        assert [after for after, _ in steps[1:]] == [before for _, before in steps[:-1]]
