"""What jobs have held and used: by user, project, day and job, as useful or lost by cause."""

import json
import random
import sys
from collections.abc import Iterable

import pytest

from iris_core import subjects
from iris_core.errors import Code
from iris_core.messages.gateway_state import Answer, Caller, Query
from iris_core.messages.state_worker import Ended, Stage, TaskUsage
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_core.states import Cause, KernelStatus
from iris_core.units import DAY_MS
from iris_core.views.queries import UsageQuery
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.indexes.usage_days import (
    OTHERS,
    ROWS_OF_A_USER,
    Outcomes,
    UsageDays,
    add_outcomes,
    count,
)
from iris_state.records.ledger import Ledger
from iris_state.snapshots import snapshot
from iris_state.views.cluster import usage as usage_view
from tests.support import first_fit
from tests.support.usage import usage_rows
from tests.support.world import Host, World

DAY_S = 86_400


def sums(script, caller: Caller | None = None, **query: object) -> dict[str, dict[str, float]]:
    """Seconds of processors by group and outcome."""
    if caller is not None:
        script.world.reader = caller
    by = query.get("by", "user")
    found = {}
    for row in script.world.query("usage", **query)["items"]:
        parts = {"useful": row["useful"], "running": row["running"], **row["lost"]}
        found[row[by]] = {
            name: used["cpu_seconds"] for name, used in parts.items() if used["attempts"]
        }
    return found


def test_what_succeeds_is_useful_and_the_rest_is_lost_by_its_cause(script):
    script.play("""
        worker w0 cpu=8
        worker w1 cpu=8
        submit /ok cpu=2 user=ann
        submit /bad cpu=1 user=ann
        submit /gone user=bob
        place /ok/0 w0
        place /bad/0 w0
        place /gone/0 w1
        /ok/0 running
        /bad/0 running
        /gone/0 running
        wait 10
        /ok/0 exit 0
        /bad/0 exit 3
        lose w1
        wait 5
    """)
    found = sums(script)
    assert found["ann"] == {"useful": pytest.approx(20, abs=1), "failed": pytest.approx(10, abs=1)}
    assert list(found["bob"]) == ["worker_lost"]
    (bob,) = script.world.query("usage", user="bob")["items"]
    assert bob["billed"]["cpu_seconds"] == 0 < bob["total"]["cpu_seconds"]


def test_what_runs_is_counted_until_now(script):
    script.play("""
        worker w0 cpu=4
        submit /a cpu=3 user=ann
        place /a/0 w0
        /a/0 running
        wait 10
    """)
    assert sums(script)["ann"] == {"running": pytest.approx(30, abs=3)}
    assert sums(script, by="job")["/a"] == sums(script)["ann"]


def test_a_day_has_the_time_that_passed_on_it(script):
    script.play(f"""
        policy heartbeat_interval_s=9000
        worker w0 cpu=1
        submit /a user=ann
        place /a/0 w0
        /a/0 running
        wait {2 * DAY_S}
    """)
    running = sums(script, by="day")
    assert sorted(running) == list(running)
    assert len(running) == 3
    script.play("/a/0 exit 0")
    days = [row["useful"] for row in script.world.query("usage", by="day")["items"]]
    assert [day["attempts"] for day in days] == [0, 0, 1]
    assert days[1]["cpu_seconds"] == DAY_S
    assert sum(day["cpu_seconds"] for day in days) == pytest.approx(2 * DAY_S, abs=1)
    since = script.world.query("usage", by="day", since_ms=script.world.now_ms)["items"]
    assert [row["useful"] for row in since] == days[-1:]


def test_what_members_of_a_gang_lose_has_the_cause_of_the_first(script):
    script.play("""
        worker w0 cpu=1 rack=r1
        worker w1 cpu=1 rack=r1
        submit /g replicas=2 gang=rack user=ann
        place /g w0 w1
        /g/0 running
        /g/1 running
        wait 10
        lose w1
        /g/0#0 stopped
    """)
    (row,) = script.world.query("usage")["items"]
    assert {cause: used["attempts"] for cause, used in row["lost"].items()} == {"worker_lost": 2}
    assert row["billed"]["cpu_seconds"] == 0


def test_processors_and_memory_used_stand_beside_what_was_asked_for(script):
    script.play("""
        worker w0 cpu=4 memory=8
        submit /a cpu=2 memory=4 user=ann
        place /a/0 w0
        /a/0 running
        wait 10
    """)
    (ref,) = script.world.hosts["w0"].believes
    ended = Ended(Cause.EXITED, 0, peak_rss_bytes=1 << 30, usage=TaskUsage(cpu_ms=5000))
    script.world.say("w0", Stage(ref, KernelStatus.TERMINATED, script.world.now_ms, ended))
    (row,) = script.world.query("usage", by="job")["items"]
    used = row["useful"]
    assert (used["cpu_used_seconds"], used["cpu_seconds"]) == (5, pytest.approx(20, abs=1))
    assert used["memory_peak_gib_seconds"] / used["memory_gib_seconds"] == pytest.approx(0.25)


def test_chips_are_counted_by_the_variant_of_their_host(script):
    script.play("""
        worker w0 cpu=4 chips=8 device-type=gpu device-variant=H100
        submit /a gpu=H100,A100 chips=4 user=ann
        place /a/0 w0
        /a/0 running
        wait 10
        /a/0 exit 0
    """)
    (row,) = script.world.query("usage")["items"]
    assert row["useful"]["chip_seconds"] == {"H100": pytest.approx(40, abs=1)}


def test_others_read_only_what_is_theirs(script):
    script.play("""
        worker w0 cpu=4
        submit /a user=ann
        submit /b user=bob
        schedule
        wait 5
    """)
    bob = Caller("bob", "user")
    assert [list(sums(script, bob)), list(sums(script, by="job"))] == [["bob"], ["/b"]]
    refused = script.world.ask(subjects.STATE_QUERY, Query("usage", {"user": "ann"}, bob), Answer)
    assert refused.status == Code.FORBIDDEN
    assert "ann and admins" in json.loads(refused.body)["detail"]


def test_sums_outlive_jobs_and_a_restart(script):
    script.play("""
        worker w0 cpu=4
        submit /a user=ann
        schedule
        /a/0 running
        wait 5
        /a/0 exit 0
    """)
    machine = script.world.machine
    data = snapshot.cut(machine.ledger, machine.sequence, machine.last_ms)
    restored = Machine(Policy(), "restored")
    restored.restore(snapshot.read(data))
    assert usage_rows(restored.ledger.usage) == usage_rows(machine.ledger.usage) != []


def add(days: UsageDays, day: int, user: str, project: str, attempts: int = 1) -> None:
    count(days.of(day, user, project, "useful"), 1000, Amount(1000), "", 7, 0, attempts)


def test_days_are_kept_for_a_while_and_a_user_has_so_many_sums_of_one():
    days = UsageDays()
    for number in range(ROWS_OF_A_USER + 50):
        add(days, 1, "ann", f"p{number}")
    found = {project: sums["useful"].attempts for _, _, project, sums in usage_rows(days)}
    assert (len(found), found[OTHERS]) == (ROWS_OF_A_USER + 1, 50)
    add(days, 300, "ann", "")
    assert {day for day, *_ in usage_rows(days)} == {1, 300}
    days = restored(days)
    add(days, 401, "ann", "")
    assert {day for day, *_ in usage_rows(days)} == {300, 401}


def restored(days: UsageDays) -> UsageDays:
    """As a snapshot holds them."""
    again = UsageDays()
    again.restore(days.stored(), days.stored_series())
    return again


def added(sums: Iterable[Outcomes]) -> Outcomes:
    total: Outcomes = {}
    for outcomes in sums:
        add_outcomes(total, outcomes)
    return total


@pytest.mark.parametrize("seed", range(5))
def test_every_group_has_the_sum_of_its_days_told_in_any_order(seed):
    chosen, days, newest = random.Random(seed), UsageDays(), 500
    wanted: dict[tuple[int, str, str], int] = {}
    for _ in range(300):
        newest += chosen.choice((0, 0, 0, 1, 1, 30))
        day = newest - chosen.choice((0, 0, 1, 2, 3, 17, 60, 200))
        user, project = chosen.choice(("ann", "bob", "cy")), chosen.choice(("", "x", "y"))
        add(days, day, user, project)
        wanted[day, user, project] = wanted.get((day, user, project), 0) + 1
        if chosen.random() < 0.05:
            days = restored(days)
    for user in ("ann", "bob", "cy", None):
        for project in ("", "x", "y", None):
            for first in (newest - 399, newest - 100, newest - 31, newest - 16, newest - 1, newest):
                kept = sum(
                    attempts
                    for (day, of, label), attempts in wanted.items()
                    if user in (of, None) and project in (label, None) and day >= first
                )
                sums = days.since((user, project), first)
                by_day = days.days((user, project), first)
                assert sums == added(by_day.values())
                assert sum(used.attempts for used in sums.values()) == kept


def test_a_sum_that_no_message_can_hold_is_clipped():
    days = UsageDays()
    for day in (1, 2, 3, 40):
        add(days, day, "ann", "", attempts=1 << 63)
    days = restored(days)
    assert days.since((None, None), 0)["useful"].attempts >= 1 << 63


def full(users: int, days: int) -> Ledger:
    """A ledger in which so many users have used something on every day, in two projects."""
    ledger = Ledger()
    for day in range(20_000, 20_000 + days):
        for user in range(users):
            for project in ("vision", "speech"):
                add(ledger.usage, day, f"u{user:04}", project)
    ledger.now_ms = (20_000 + days) * DAY_MS
    return ledger


def calls_of(ledger: Ledger, caller: Caller, **asked: object) -> int:
    """The calls, of functions and builtins, that one read of usage takes."""
    calls = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    query = UsageQuery(**asked)
    sys.setprofile(note)
    try:
        page = usage_view.usage(ledger, query, caller)
    finally:
        sys.setprofile(None)
    assert page.items
    return calls


READ = (
    (Caller("u0003", "user"), {}),
    (Caller("u0003", "user"), {"by": "label"}),
    (Caller("u0003", "user"), {"since_ms": 20_007 * DAY_MS}),
    (Caller("root", "admin"), {"limit": 5}),
    (Caller("root", "admin"), {"limit": 5, "since_ms": 20_007 * DAY_MS}),
    (Caller("root", "admin"), {"limit": 5, "label": "project=vision"}),
    (Caller("root", "admin"), {"by": "label"}),
    (Caller("root", "admin"), {"user": "u0003"}),
    (Caller("root", "admin"), {"by": "day", "limit": 5, "since_ms": 20_027 * DAY_MS}),
)


def test_a_read_of_usage_costs_what_it_returns_and_not_what_is_kept():
    few, many, long = full(users=8, days=32), full(users=80, days=32), full(users=8, days=320)
    for caller, asked in READ:
        wanted = calls_of(few, caller, **asked)
        assert calls_of(many, caller, **asked) <= 1.2 * wanted + 50, f"more users: {asked}"
        if asked.get("by") != "day":
            assert calls_of(long, caller, **asked) <= 1.2 * wanted + 50, f"more days: {asked}"


def test_pages_of_usage_have_every_user_once():
    ledger, found, cursor = full(users=12, days=3), [], ""
    while True:
        query = UsageQuery(limit=5, cursor=cursor)
        page = usage_view.usage(ledger, query, Caller("root", "admin"))
        found += [row.user for row in page.items]
        cursor = page.next_cursor or ""
        if not cursor:
            break
    assert found == [f"u{user:04}" for user in range(12)]


def test_what_runs_is_summed_without_looking_at_each_attempt(script):
    script.play("""
        policy max_building=100
        worker w0 cpu=64
        submit /a replicas=2 user=u0003
        schedule
    """)
    ledger, caller = script.world.machine.ledger, Caller("u0003", "user")
    few = calls_of(ledger, caller)
    script.play("""
        submit /b replicas=50 user=u0003
        schedule
    """)
    assert ledger.open_attempts == 52
    assert calls_of(ledger, caller) <= few + 20


def test_what_runs_follows_the_project_of_its_job(script):
    script.play("""
        worker w0 cpu=4
        submit /a user=ann
        schedule
        wait 10
        update /a labels={"project":"x"}
    """)
    rows = script.world.query("usage", by="label")["items"]
    assert [(row["label"], row["running"]["attempts"]) for row in rows] == [("x", 1)]


def test_a_project_names_the_users_whose_jobs_had_its_label():
    """A user who bills another team's project is seen in its row."""
    world = World()
    world.register(Host("w0", Amount(4000), {}))
    for user in ("bob", "ann"):
        spec = JobSpec(name="/a", command=("true",), labels={"project": "vision"})
        world.submit(spec, Caller(user))
    world.plan(first_fit.plan(world.snapshot()))
    world.now_ms += 10_000
    world.reader = Caller("root", "admin")
    assert [(row["label"], row["users"]) for row in world.query("usage", by="label")["items"]] == [
        ("vision", ["ann", "bob"])
    ]
    world.reader = Caller("ann")
    assert [row["users"] for row in world.query("usage", by="label")["items"]] == [["ann"]]
    assert world.query("usage", by="user")["items"][0]["users"] == []
