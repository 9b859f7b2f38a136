"""Listings: each filter agrees with a full scan; pages have bounded work and size."""

from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Placement, Plan
from iris_core.messages.state_worker import Ended, Stage
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_core.states import Cause, JobState, KernelStatus
from iris_core.views.jobs import JOB_ORDERS
from iris_state.check.records import check
from iris_state.views import pages
from iris_state.views.work import jobs
from tests.support.world import Host, World

MIB = 1 << 20
USERS = ("ann", "bob", "eve")
BANDS = ("production", "interactive", "batch")
LABELS = ({}, {"team": "vision"}, {"team": "speech"}, {"team": "vision", "tier": "1"})

submissions = st.lists(
    st.tuples(
        st.sampled_from(["/a", "/ab", "/a/x", "/ab/x", "/a/y", "/c", "/c/x", "/a/x/z"]),
        st.sampled_from(USERS),
        st.sampled_from(BANDS),
        st.sampled_from(LABELS),
        st.booleans(),
    ),
    max_size=25,
)
filters = st.fixed_dictionaries(
    {},
    optional={
        "user": st.sampled_from([*USERS, "nobody"]),
        "band": st.sampled_from(BANDS),
        "state": st.sampled_from(["pending", "killed", "running", "no such state"]),
        "label": st.sampled_from(["team=vision", "team=speech", "tier=1", "tier=2"]),
        "parent": st.sampled_from(["/a", "/c"]),
        "name_prefix": st.sampled_from(["/", "/a", "/a/", "/ab", "/d"]),
    },
)


@contextmanager
def pages_that_look_at(records):
    """So few records a page that empty pages and long prefixes come up in small ledgers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "SCANNED", records)
        patch.setattr(jobs, "SCANNED", records)
        yield


class Unchecked(World):
    """For hundreds of steps that are all alike: one look at everything at the end says enough."""

    def check(self):
        pass


def submit(world, name, user, band, labels, cancelled):
    world.submit(JobSpec(name=name, command=("true",), band=band, labels=labels), Caller(user))
    if cancelled:
        world.cancel(name)


def pages_of(world, what, **arguments):
    """Every page of a listing, to its end."""
    cursor = None
    while True:
        page = world.query(what, cursor=cursor, **arguments)
        yield page
        cursor = page["next_cursor"]
        if cursor is None:
            return


def items(world, what, **arguments):
    return [item for page in pages_of(world, what, **arguments) for item in page["items"]]


def slow_look(world, wanted):
    """The ids of all jobs that have what is asked for, newest first, looked up one by one."""
    every = [
        world.query("job", job=f"j{number}")
        for number in range(world.ledger.next_number - 1, 0, -1)
    ]
    parents = {
        name: world.query("job", job=name)["id"]
        for name in ("/a", "/c")
        if world.query("job", job=name)
    }
    fits = {
        "user": lambda job, value: job["user"] == value,
        "band": lambda job, value: job["band"] == value,
        "state": lambda job, value: job["state"] == value,
        "label": lambda job, value: value in [f"{k}={v}" for k, v in job["spec"]["labels"].items()],
        "parent": lambda job, value: (
            f"j{world.ledger.find_job(job['id']).parent}" == parents.get(value)
        ),
        "name_prefix": lambda job, value: job["name"].startswith(value),
    }
    return [
        job["id"] for job in every if all(fits[name](job, value) for name, value in wanted.items())
    ]


@settings(max_examples=60, deadline=None)
@given(submissions, filters, st.integers(1, 4), st.integers(1, 6))
def test_every_filter_lists_what_a_slow_look_at_everything_finds(submitted, wanted, limit, scanned):
    world = World()
    for each in submitted:
        submit(world, *each)
    expected = slow_look(world, wanted)
    if world.query("job", job=wanted.get("parent", "/a")) is None and "parent" in wanted:
        assert world.query("jobs", **wanted) is None
        return
    with pages_that_look_at(scanned):
        found = list(pages_of(world, "jobs", limit=limit, **wanted))
    assert [job["id"] for page in found for job in page["items"]] == expected
    assert all(len(page["items"]) <= limit for page in found)


@settings(max_examples=40, deadline=None)
@given(submissions, submissions, st.sampled_from(USERS), st.integers(1, 4))
def test_a_listing_neither_misses_nor_doubles_what_was_there_throughout(
    before, meanwhile, user, scanned
):
    world = World()
    for each in before:
        submit(world, *each)
    expected = slow_look(world, {"user": user})
    found, cursor, more = [], None, iter(meanwhile)
    with pages_that_look_at(scanned):
        while True:
            page = world.query("jobs", limit=2, cursor=cursor, user=user)
            found += [job["id"] for job in page["items"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
            if (another := next(more, None)) is not None:
                submit(world, *another)
    assert [job for job in found if job in expected] == expected
    assert len(found) == len(set(found))


COLUMNS = {
    "submitted": lambda job: 0,
    "name": lambda job: job["name"],
    "user": lambda job: job["user"],
    "band": lambda job: BANDS.index(job["band"]),
    "state": lambda job: JobState[job["state"].upper()],
    "tasks": lambda job: job["replicas"],
    "duration": lambda job: -1,
}


@settings(max_examples=60, deadline=None)
@given(submissions, filters, st.sampled_from(JOB_ORDERS), st.integers(1, 4))
def test_every_order_lists_each_job_that_matches_once(submitted, wanted, order, limit):
    world = World()
    for each in submitted:
        submit(world, *each)
    if world.query("jobs", **wanted) is None:
        return
    key, oldest_first = COLUMNS[order.removeprefix("-")], slow_look(world, wanted)[::-1]
    expected = sorted((world.query("job", job=job) for job in oldest_first), key=key)
    found = items(world, "jobs", order=order, limit=limit, **wanted)
    assert [job["id"] for job in found] == [
        job["id"] for job in (expected[::-1] if order[0] == "-" else expected)
    ]


def test_jobs_that_go_on_running_are_listed_once_by_their_duration(script):
    script.play("worker w0 cpu=4")
    for name in ("/a", "/b", "/c"):
        script.play(f"submit {name}\nschedule\n{name}/0 run\nwait 10")
    script.play("submit /waits cpu=9\n/b/0 exit 0")
    first = script.world.query("jobs", order="duration", limit=2)
    script.play("wait 60")
    rest = script.world.query("jobs", order="duration", limit=2, cursor=first["next_cursor"])
    assert [job["name"] for job in (*first["items"], *rest["items"])] == [
        "/waits",
        "/c",
        "/b",
        "/a",
    ]


def test_an_unknown_order_and_the_cursor_of_another_one_are_refused(script):
    script.play("submit /a\nsubmit /b")
    named = script.world.query("jobs", order="name", limit=1)["next_cursor"]
    assert script.world.query("jobs", order="colour") is None
    assert script.world.query("jobs", order="tasks", cursor=named) is None
    assert script.world.query("jobs", cursor=named) is None


def test_the_cursor_of_jobs_with_the_longest_names_fits_into_a_request():
    world = World()
    deep = "".join(f"/{letter * 63}" for letter in "abcdefghijklmnop")
    for user in ("\U0001f600" * 128, "zoë"):
        world.submit(JobSpec(name=f"{deep[:900]}{len(user)}", command=("true",)), Caller(user))
    for order in ("name", "user"):
        assert 0 < len(world.query("jobs", order=order, limit=1)["next_cursor"]) <= 1024
        assert len(items(world, "jobs", order=order, limit=1)) == 2


def test_a_page_that_finds_nothing_says_where_the_next_one_begins(script):
    script.play("submit /a user=ann band=batch")
    for number in range(5):
        script.play(f"""
            submit /b{number} user=bob band=batch
            submit /c{number} user=ann
        """)
    with pages_that_look_at(3):
        empty = script.world.query("jobs", user="ann", band="batch")
        assert (empty["items"], empty["next_cursor"] is not None) == ([], True)
        assert [job["name"] for job in items(script.world, "jobs", user="ann", band="batch")] == [
            "/a"
        ]


def test_sessions_of_jobs_that_are_over_are_passed_over_a_job_at_a_time(script):
    script.play("""
        worker w0 cpu=9
        submit /done replicas=4
        cancel /done
        submit /live replicas=2
        schedule
    """)
    with pages_that_look_at(2):
        live = items(script.world, "sessions", status="scheduled")
        every = items(script.world, "sessions", limit=1)
    assert [session["id"] for session in live] == ["j2-0", "j2-1"]
    assert [session["id"] for session in every] == ["j2-0", "j2-1", "j1-0", "j1-1", "j1-2", "j1-3"]


def test_a_page_of_large_jobs_ends_early_and_shows_the_beginning_of_each():
    world = World()
    env = {f"VARIABLE_{number}": "x" * 1000 for number in range(240)}
    for number in range(60):
        world.submit(JobSpec(name=f"/big-{number}", command=("true",), env=env), Caller("ann"))
    (page,) = pages_of(world, "jobs")
    assert len(page["items"]) == 60
    assert len(str(page)) < MIB
    assert all(job["spec_abridged"] and job["spec"]["env"] for job in page["items"])
    whole = world.query("job", job="/big-0")
    assert (whole["spec"]["env"], whole["spec_abridged"]) == (env, False)


def test_pages_end_before_they_exceed_their_bytes(monkeypatch):
    world = World()
    for number in range(12):
        world.submit(JobSpec(name=f"/long-{number}", command=("true",)), Caller("ann"))
    monkeypatch.setattr(pages, "PAGE_BYTES", 2000)
    found = list(pages_of(world, "jobs"))
    assert [job["name"] for page in found for job in page["items"]] == [
        f"/long-{n}" for n in reversed(range(12))
    ]
    assert len(found) > 5


@pytest.fixture
def much_tried():
    """A task that has failed 700 times and printed 4 KiB of control characters each time."""
    world = Unchecked()
    world.register(Host("w0", Amount(1000), {}))
    world.submit(JobSpec(name="/a", command=("false",), max_retries_failure=1000), Caller("ann"))
    ended = Ended(Cause.EXITED, exit_code=1, stderr_tail="\x1b" * 4096)
    for number in range(700):
        world.plan(Plan("s", world.machine.sequence, ("w0",), (Placement(1, (0,), (0,)),)))
        world.say(
            "w0", Stage(AttemptRef(1, 0, number), KernelStatus.TERMINATED, world.now_ms, ended)
        )
    check(world.ledger)
    return world


def test_a_task_with_many_attempts_shows_the_newest_and_their_number(much_tried):
    task = much_tried.query("task", task="/a/0")
    assert task["attempt_count"] == 700
    assert [attempt["number"] for attempt in task["attempts"]] == list(range(700))[
        -len(task["attempts"]) :
    ]
    assert 1 < len(task["attempts"]) < 700


def test_attempts_are_listed_in_pages_of_bounded_bytes(much_tried):
    found = list(pages_of(much_tried, "attempts", task="/a/0", limit=500))
    assert [attempt["number"] for page in found for attempt in page["items"]] == list(range(700))
    assert len(found) > 2


def test_a_tree_of_many_jobs_shows_the_first_and_their_number():
    world = Unchecked()
    world.submit(JobSpec(name="/a", command=("true",)), Caller("ann"))
    for number in range(600):
        world.submit(JobSpec(name=f"/a/c{number}", command=("true",)), Caller("ann"))
    check(world.ledger)
    tree = world.query("tree", job="/a")
    assert (len(tree["children"]), tree["job"]["children"]) == (jobs.TREE_JOBS, 600)
    assert len(items(world, "jobs", parent="/a", limit=500)) == 600


def test_overviews_count_without_looking_at_jobs(script):
    script.play("""
        worker w0
        submit /a replicas=3
        submit /b band=batch
        schedule
        cancel /b
    """)
    overview = script.world.query("overview")
    assert overview["tasks"] == {"pending": 2, "assigned": 1, "killed": 1}
    assert (overview["jobs"], overview["users"]) == ({"running": 1, "killed": 1}, ["root"])


def test_users_and_quotas_are_listed_in_pages(script):
    script.play("""
        worker w0
        submit /a user=zoë cpu=1
        submit /b user=ann
        schedule
    """)
    script.world.admin("set_quota", "zoë", max_running_cpu=8000)
    held = [
        (quota["user"], quota["running_cpu"]) for quota in items(script.world, "users", limit=1)
    ]
    assert held == [("ann", 0), ("zoë", 1000)]
    assert [quota["user"] for quota in items(script.world, "quotas", limit=1)] == ["zoë"]


def test_tasks_that_were_tried_again_or_wait_for_it_are_listed(script):
    """Those whose first attempt is not their last: the results of earlier ones count for nothing."""
    script.play("""
        worker w0 cpu=4
        submit /a replicas=4 retries=1 tolerate=4
        schedule
        /a/0 exit 0
        /a/1 exit 1
        /a/2 exit 1
        schedule
        /a/2 exit 1
        /a/3 exit 1
    """)
    found = script.world.query("tasks", job="/a", retried="true")["items"]
    assert [(task["index"], task["state"], len(task["attempts"])) for task in found] == [
        (1, "assigned", 2),
        (2, "failed", 2),
        (3, "pending", 1),
    ]
