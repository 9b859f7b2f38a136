"""Views, pages and refusals in answers to queries."""

import pytest
from msgspec import to_builtins

from iris_core.states import TaskState
from iris_state.records.entities import Minute
from iris_state.records.indexes.minutes import count
from iris_state.records.ledger import Ledger
from iris_state.snapshots import snapshot
from iris_state.views.cluster.hosts import worker_view
from iris_state.views.work import jobs


def items(script, what, **arguments):
    """All pages of a listing, two rows at a time."""
    found, cursor = [], None
    while True:
        page = script.world.query(what, limit=2, cursor=cursor, **arguments)
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def test_jobs_are_listed_newest_first_and_filtered(script):
    script.play("""
        worker w0
        submit /a user=ann
        submit /b user=bob band=batch
        submit /c user=ann
        schedule
    """)
    assert [job["name"] for job in items(script, "jobs")] == ["/c", "/b", "/a"]
    assert [job["name"] for job in items(script, "jobs", user="ann")] == ["/c", "/a"]
    assert [job["name"] for job in items(script, "jobs", state="running")] == ["/a"]
    assert [job["name"] for job in items(script, "jobs", band="batch")] == ["/b"]
    assert [job["name"] for job in items(script, "jobs", name_prefix="/b")] == ["/b"]


def test_routes_of_deployments_can_be_left_out_of_a_listing(script):
    script.play("""
        submit /a
        submit /chat/r1-1
    """)
    assert [job["name"] for job in items(script, "jobs")] == ["/chat/r1-1", "/a"]
    assert [job["name"] for job in items(script, "jobs", without_routes="true")] == ["/a"]


def test_tasks_are_listed_by_index_and_filtered(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=5
        schedule
    """)
    assert [task["index"] for task in items(script, "tasks", job="/a")] == [0, 1, 2, 3, 4]
    assert [task["index"] for task in items(script, "tasks", job="j1", state="pending")] == [
        2,
        3,
        4,
    ]


def test_the_queue_is_paged_by_its_key(script):
    script.play("""
        submit /a replicas=2
        submit /b
        submit /b/c
        submit /d band=production
    """)
    rows = items(script, "queue")
    assert [(row["job"], row["position"], row["tasks"]) for row in rows] == [
        ("/d", 0, 1),
        ("/b/c", 1, 1),
        ("/a", 2, 2),
        ("/b", 4, 1),
    ]
    assert (rows[1]["depth"], rows[1]["sequence"], rows[0]["band"]) == (2, 3, "production")


def test_a_page_of_the_queue_goes_on_behind_a_job_that_has_left(script):
    script.play("""
        submit /a
        submit /b
        submit /c
    """)
    first = script.world.query("queue", limit=2)
    script.play("cancel /b")
    rest = script.world.query("queue", limit=2, cursor=first["next_cursor"])
    assert [row["job"] for row in rest["items"]] == ["/c"]


def test_workers_and_slices(script):
    script.play("""
        worker s1 tpu-name=s tpu-worker-id=1 chips=4 cpu=2
        worker s0 tpu-name=s tpu-worker-id=0 chips=4 cpu=2
        worker c0 cpu=4
        submit /a cpu=1
        place /a/0 s1
    """)
    assert [worker["id"] for worker in items(script, "workers")] == ["c0", "s0", "s1"]
    (found,) = script.world.query("slices")["items"]
    assert [worker["id"] for worker in found["workers"]] == ["s0", "s1"]
    assert (found["free_workers"], found["whole_free"]) == (1, False)
    worker = script.world.query("worker", id="s1")
    assert (worker["committed"]["cpu_millis"], worker["tasks"], worker["building"]) == (
        1000,
        ["/a/0"],
        1,
    )
    assert worker["registered_at"] <= worker["last_heartbeat_at"]


def test_a_new_leader_says_since_when_a_host_is_lost(script):
    """It counted from the snapshot that it had loaded, so that a dead host seemed to have been
    heard of lately.
    """
    script.play("""
        worker w0 cpu=4
        lose w0
    """)
    shown = script.world.query("worker", id="w0")["last_heartbeat_at"]
    script.play("wait 600")
    loaded = Ledger()
    snapshot.restore(
        loaded, snapshot.read(snapshot.cut(script.world.ledger, 1, script.world.now_ms))
    )
    for ledger in (script.world.ledger, loaded, script.world.replayed().ledger):
        assert to_builtins(worker_view(ledger, ledger.workers["w0"]))["last_heartbeat_at"] == shown


def test_a_host_whose_heartbeat_is_late_is_said_to_be_silent(script):
    """It may have died, although it is not given up yet."""
    script.play("""
        worker w0 cpu=4
        worker w1 cpu=4
        admin drain w1
        wait 60
    """)
    interval_s = script.world.policy.heartbeat_interval_s

    def details():
        return [worker["detail"] for worker in items(script, "workers")]

    script.play(f"silence {3 * interval_s}")
    assert details() == ["", "drained by root"]
    script.play(f"silence {interval_s}")
    assert details() == ["no heartbeat for 20 s", "no heartbeat for 20 s; drained by root"]
    script.play("silence 20")
    assert [detail.startswith("not heard of for") for detail in details()] == [True, False]


def test_the_slices_of_a_job_are_those_it_holds(script):
    script.play("""
        worker a0 tpu-name=a
        worker b0 tpu-name=b
        worker c0 tpu-name=c
        submit /two replicas=2 gang=tpu-name slices=2 tpu=v5litepod-8 chips=8
        submit /pair replicas=2
        place /pair b0 c0
    """)
    assert [one["name"] for one in script.world.query("slices", job="/pair")["items"]] == ["b", "c"]
    assert script.world.query("slices", job="/two")["items"] == []


def test_a_tree_shows_every_descendant(script):
    script.play("""
        submit /a
        submit /a/b
        submit /a/b/c
        submit /a/d
    """)
    tree = script.world.query("tree", job="/a")
    assert [child["job"]["name"] for child in tree["children"]] == ["/a/b", "/a/d"]
    assert tree["children"][0]["children"][0]["job"]["name"] == "/a/b/c"


def test_why_says_what_stands_before(script):
    script.play("""
        submit /a replicas=3
        submit /b
        explain /b behind
    """)
    why = script.world.query("why", job="/b")
    assert (why["ahead"], why["pending_tasks"], why["pending_reason"]["code"]) == (3, 1, "behind")
    assert script.world.query("why", task="/a/2")["ahead"] == 2


def test_why_says_whose_tasks_stand_before(script):
    script.play("""
        submit /a replicas=300 user=bob
        submit /b user=bob
        submit /c replicas=2 user=ann
        submit /d user=cy
        submit /e user=dan
        submit /mine replicas=3 user=eve
    """)
    others = "301 of bob, 2 of ann, 1 of cy, 1 of 1 other user, submitted before"
    assert script.world.query("why", job="/mine")["ahead_note"] == f"behind 305 tasks: {others}"
    assert (
        script.world.query("why", job="/b")["ahead_note"]
        == "behind 300 tasks: 300 of bob, submitted before"
    )
    mine = script.world.query("why", task="/mine/2")["ahead_note"]
    assert mine == f"behind 307 tasks: {others}; 2 of this job"
    assert script.world.query("why", job="/a")["ahead_note"] is None


def test_why_says_for_what_reason_tasks_stand_before(script):
    script.play("""
        submit /early replicas=2 user=bob band=batch
        submit /mine user=eve band=batch
        submit /urgent replicas=3 user=ann band=interactive
        submit /late user=cy band=batch
    """)
    first = "3 of ann, in a higher band; 2 of bob, submitted before"
    assert script.world.query("why", job="/mine")["ahead_note"] == f"behind 5 tasks: {first}"


def test_of_a_long_queue_why_says_what_it_has_looked_at(script, monkeypatch):
    monkeypatch.setattr(jobs, "AHEAD_JOBS", 2)
    script.play("""
        submit /a replicas=300 user=bob
        submit /b user=bob
        submit /c user=ann
        submit /mine user=eve
    """)
    words = "behind 302 tasks: the first 301 and its own are 301 of bob, submitted before"
    assert script.world.query("why", job="/mine")["ahead_note"] == words


def test_why_tells_since_when_a_job_and_a_task_run(script):
    script.play("""
        worker w0 cpu=1
        submit /a replicas=2
        schedule
        /a/0 run
    """)
    found = {
        name: script.world.query("why", **{kind: name})["started_at"]
        for kind, name in (("job", "/a"), ("task", "/a/0"), ("task", "/a/1"))
    }
    assert found["/a"] == found["/a/0"] == script.world.query("job", job="/a")["started_at"]
    assert found["/a"] is not None
    assert found["/a/1"] is None


def test_an_overview_counts(script):
    script.play("""
        worker w0 cpu=2
        worker w1 cpu=2
        submit /a replicas=3
        place /a/0 w0
        lose w1
    """)
    overview = script.world.query("overview")
    assert overview["tasks"] == {"assigned": 1, "pending": 2}
    assert overview["workers"] == {"healthy": 1, "lost": 1}
    assert (overview["capacity"]["cpu_millis"], overview["committed"]["cpu_millis"]) == (2000, 1000)
    assert overview["pending"] == 2
    assert overview["slices"] == {}


@pytest.mark.parametrize(
    ("what", "arguments"),
    [
        ("job", {"job": "/none"}),
        ("job", {"job": "j9"}),
        ("tasks", {"job": "/none"}),
        ("task", {"task": "/a/9"}),
        ("task", {"task": "nonsense"}),
        ("worker", {"id": "none"}),
        ("session", {"id": "j1-9"}),
        ("sessions", {"job": "/none"}),
        ("nothing", {}),
        ("jobs", {"limit": 0}),
        ("jobs", {"limit": 501}),
        ("jobs", {"limit": "many"}),
        ("jobs", {"cursor": "x"}),
        ("queue", {"cursor": "x"}),
        ("queue", {"cursor": "9.1.1.1.1.1"}),
        ("sessions", {"cursor": "x"}),
    ],
)
def test_what_is_not_there_is_refused(script, what, arguments):
    script.play("submit /a")
    assert script.world.query(what, **arguments) is None


def test_a_task_shows_all_its_attempts(script):
    script.play("""
        worker w0
        submit /a retries=1
        schedule
        /a/0 running
        /a/0 exit 4
        schedule
    """)
    first, second = script.world.query("attempts", task="j1/0")["items"]
    assert (first["state"], first["cause"], first["initiator"], first["exit_code"]) == (
        "failed",
        "failed",
        "worker",
        4,
    )
    assert (first["failure_count"], first["charged_to"], first["open"]) == (
        [0, 1],
        "failure",
        False,
    )
    assert (second["state"], second["stage"], second["open"]) == ("assigned", "scheduled", True)


@pytest.mark.parametrize(
    "number", ["\u00b2", "\u0662", "9" * 5000], ids=["superscript", "arabic", "endless"]
)
def test_a_number_that_is_none_is_not_found_and_ends_nobody(script, number):
    """Whoever may ask could end each leader in turn by asking for job j and a digit that counts
    nothing.
    """
    script.play("submit /a")
    world = script.world
    assert world.query("session", id=f"j{number}") is None
    assert world.query("session", id=f"j1-{number}") is None
    assert world.query("task", task=f"j1/{number}") is None
    assert world.query("jobs", cursor=number) is None
    assert world.query("sessions", cursor=f"{number}-0") is None
    assert world.cancel(f"j{number}").status == "not_found"


def test_the_last_hour_counts_what_was_placed_and_ended_in_each_minute(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2
        wait 90
        schedule
        /a/0 run
        /a/0 exit 0  -> SUCCEEDED
        wait 60
        /a/1 run
        /a/1 exit 1  -> FAILED
    """)
    rows = script.world.query("last_hour")["minutes"]
    assert [(row["placed"], row["succeeded"], row["others"]) for row in rows] == [
        (2, 1, 0),
        (0, 0, 1),
    ]
    assert (rows[0]["waited_ms"], rows[0]["longest_ms"]) == (180_000, 90_000)
    assert rows[1]["number"] == rows[0]["number"] + 1


def held_millis(script, **worker):
    """Cores held, in thousandths, from each minute on in which that changed, and now; minutes from
    the first one on.
    """
    rows = script.world.query("last_hour", **worker)["held"]
    assert len({(row["capacity"]["cpu_millis"]) for row in rows}) == 1
    return [(row["number"] - rows[0]["number"], row["committed"]["cpu_millis"]) for row in rows]


def test_the_last_hour_has_what_hosts_held_from_each_change_on(script):
    script.play("""
        worker w0 cpu=4
        worker w1 cpu=4
        wait 120
        submit /a cpu=3
        place /a/0 w0
        /a/0 run
        wait 600
        submit /b cpu=1
        place /b/0 w1
        /b/0 run
        wait 60
        /a/0 exit 0
        wait 60
        submit /c cpu=9
    """)
    assert [held for _, held in held_millis(script)] == [3000, 4000, 1000, 1000]
    assert [held for _, held in held_millis(script, worker="w0")] == [3000, 0, 0]
    assert [held for _, held in held_millis(script, worker="w1")] == [1000, 1000]
    assert script.world.query("last_hour", worker="w9") is None
    (began, _), (more, _), *_ = held_millis(script)
    assert more - began == 10


def test_a_host_that_registers_again_keeps_an_hour_of_what_it_held(script):
    script.play(
        "worker w0 cpu=4\nwait 60\nsubmit /a cpu=3\nplace /a/0 w0\n/a/0 run\nwait 60\n/a/0 exit 0\nwait 60"
    )
    script.play("submit /b cpu=9\nrestart w0")
    assert [held for _, held in held_millis(script, worker="w0")] == [3000, 0, 0]
    script.play("wait 4000\nsubmit /c cpu=9")
    assert [held for _, held in held_millis(script, worker="w0")] == [0, 0]


def test_the_last_sixty_minutes_are_kept_in_order_by_any_clock():
    minutes: list[Minute] = []
    for minute in range(100):
        count(minutes, TaskState.SUCCEEDED, None, minute * 60_000)
    count(minutes, TaskState.KILLED, None, 50 * 60_000)
    count(minutes, TaskState.RUNNING, 5, 200 * 60_000)
    assert [one.number for one in minutes] == list(range(40, 100))
    assert (minutes[-1].succeeded, minutes[-1].others) == (1, 1)


def test_a_task_that_is_built_says_what_its_worker_does(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 pulling detail=fetching   -> BUILDING
    """)
    query = script.world.query
    assert query("task", task="/a/0")["note"] == query("why", job="/a")["note"] == "fetching"
    assert query("task", task="/a/0")["attempts"][0]["stage"] == "pulling"
    script.play("""
        /a/0 pulling detail=installing -> BUILDING
        /a/0 pulling
        /a/0 preparing detail=late
    """)
    assert query("task", task="/a/0")["note"] == "installing"
    script.play("/a/0 running -> RUNNING")
    assert query("task", task="/a/0")["note"] is None


def test_what_is_odd_about_a_process_is_said_after_its_end(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running detail=uncloned   -> RUNNING
        /a/0 exit 0                    -> SUCCEEDED
        submit /b
        schedule
        /b/0 pulling detail=fetching   -> BUILDING
        cancel /b
    """)
    query = script.world.query
    assert query("task", task="/a/0")["note"] == query("why", job="/a")["note"] == "uncloned"
    assert query("task", task="/b/0")["note"] is None


def test_what_a_running_task_does_is_shown_until_its_end_only(script):
    """Its output was being stored for minutes, and neither `iris why` nor `iris show` said so."""
    script.play("""
        worker w0
        submit /a
        place /a/0 w0
        /a/0 run detail=uncloned        -> RUNNING note=uncloned
        /a/0 run detail=storing_2GiB    -> RUNNING note=storing_2GiB
        heartbeat w0
        /a/0 run detail=uncloned        -> RUNNING note=storing_2GiB
    """)
    assert script.world.query("why", job="/a")["note"] == "storing_2GiB"
    script.play("/a/0 exit 0 -> SUCCEEDED note=uncloned")
