"""A job is changed while it waits or runs: band, timeout, limits, retries, labels; with every check
of a submission.

docs/adr/0084-a-job-is-changed-in-place.md.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from iris_core import codec
from tests.support.script import Script


def test_a_raised_band_moves_a_job_forward_with_its_submission_time(script: Script) -> None:
    script.play("""
        worker w0
        submit /a band=batch replicas=2
        submit /b band=batch
        submit /c
        queue                           -> /c/0 /a/0 /a/1 /b/0
        update /b band=production       -> accepted
        queue                           -> /b/0 /c/0 /a/0 /a/1
        update /a band=interactive      -> accepted
        queue                           -> /b/0 /a/0 /a/1 /c/0
        schedule                        -> placed 1
        /b/0                            -> ASSIGNED
    """)
    listed = script.world.query("jobs", band="production")["items"]
    assert [job["name"] for job in listed] == ["/b"]


def test_a_raised_band_passes_the_limits_of_a_submission(script: Script) -> None:
    script.play("""
        quota mia max_band=2
        submit /a for_user=mia band=batch
        submit /p for_user=mia band=production    -> forbidden
        update /a user=mia band=production        -> forbidden
        update /a user=mia band=interactive       -> accepted
        update /a user=ann band=batch             -> forbidden
        update /a user=mia version=1 band=batch   -> precondition_failed
        update /a user=mia version=2 band=batch   -> accepted
        job /a                                    -> PENDING
        cancel /a
        update /a band=batch                      -> conflict
    """)


def test_a_band_below_the_limit_of_today_does_not_stop_other_changes(script: Script) -> None:
    script.play("""
        submit /a for_user=mia band=production
        quota mia max_band=3
        update /a user=mia timeout_s=60           -> accepted
    """)


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("command", ["rm"], "iris rerun"),
        ("replicas", 3, "iris rerun"),
        ("resources", {"cpu_millis": 1}, "iris rerun"),
        ("timeout_s", -1, ""),
        ("max_parallel", 0, ""),
        ("max_retries_failure", 1_000_000, ""),
        ("labels", {"": "x"}, ""),
    ],
)
def test_what_may_not_be_changed_is_refused_field_by_field(
    script: Script, field: str, value: Any, hint: str
) -> None:
    script.play("submit /a")
    answer = script.world.amend("/a", patch=codec.to_json({field: value, "band": "batch"}))
    (mistake,) = json.loads(answer.body)["errors"]
    assert (answer.status, mistake["pointer"].split("/")[1]) == ("invalid", field)
    assert hint in mistake["hint"]
    assert script.world.query("job", job="/a")["band"] == "interactive"


def test_a_new_timeout_counts_from_the_start_of_what_runs(script: Script) -> None:
    script.play("""
        worker w0 cpu=3
        submit /short timeout=10
        submit /long timeout=100
        submit /none
        schedule
        /short/0 run
        /long/0 run
        /none/0 run
        wait 5
        update /short timeout_s=60    -> accepted
        update /long timeout_s=20     -> accepted
        update /none timeout_s=30     -> accepted
        wait 14
        job /short                    -> RUNNING
        job /long                     -> RUNNING
        wait 1.1
        job /long                     -> KILLED
        wait 10
        job /none                     -> KILLED
        job /short                    -> RUNNING
        update /short timeout_s=null  -> accepted
        wait 100
        job /short                    -> RUNNING
        update /short timeout_s=10    -> accepted
        job /short                    -> KILLED
    """)


def test_a_new_timeout_is_sent_to_the_host_until_it_confirms(script: Script) -> None:
    script.play("""
        worker w0
        worker w1
        submit /a timeout=10
        place /a/0 w0
        /a/0 run
        told w0                     -> run:/a/0#0
        told w1
        orders w0 deaf
        update /a timeout_s=600
        told w0                     -> timeout:/a=600
        heartbeat w0
        told w0                     -> timeout:/a=600
        orders w0 listens
        heartbeat w0
        told w0                     -> timeout:/a=600
        heartbeat w0
        told w0                     -> nothing
        told w1                     -> nothing
        takeover 1
        heartbeat w0
        told w0                     -> nothing
        restart w0
        heartbeat w0
        told w0                     -> timeout:/a=600
    """)


def test_what_starts_later_has_the_new_timeout_in_its_template(script: Script) -> None:
    script.play("""
        worker w0
        submit /a timeout=10 retries=1
        update /a timeout_s=600
        schedule
    """)
    (template,) = [
        template for order in script.world.hosts["w0"].orders for template in order.templates
    ]
    assert template.timeout_ms == 600_000


def test_a_lowered_max_parallel_lets_what_runs_go_on_and_starts_none(script: Script) -> None:
    script.play("""
        worker w0 cpu=9
        submit /a replicas=5 parallel=3
        schedule
        update /a max_parallel=1       -> accepted
        schedule
        events /a/3                    -> pending
        /a/0 run
        /a/0 exit 0
        /a/1 run
        /a/1 exit 0
        schedule
        events /a/3                    -> nothing
        /a/2 run
        /a/2 exit 0
        schedule
        events /a/3                    -> assigned
        events /a/4                    -> pending
        update /a max_parallel=null    -> accepted
        schedule                       -> placed 1
    """)


def test_raised_retries_count_what_was_charged_before(script: Script) -> None:
    script.play("""
        worker w0
        submit /a retries=1
        schedule
        /a/0 run
        /a/0 exit 1                      -> PENDING failures=1
        update /a max_retries_failure=2  -> accepted
        schedule
        /a/0 run
        /a/0 exit 1                      -> PENDING failures=2
        update /a max_retries_failure=0  -> accepted
        schedule
        /a/0 run
        /a/0 exit 1                      -> FAILED failures=3
    """)


def test_an_ended_task_stays_ended_when_retries_are_raised(script: Script) -> None:
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2 tolerate=2
        schedule
        /a/0 run
        /a/0 exit 1                      -> FAILED
        update /a max_retries_failure=5  -> accepted
        /a/0                             -> FAILED
        schedule                         -> placed 0
    """)


def test_labels_are_merged_and_found(script: Script) -> None:
    script.play("""
        submit /a
        update /a labels={"team":"vision","run":"7"}
        update /a labels={"team":null,"run":"8"}
    """)
    assert script.world.query("job", job="/a")["spec"]["labels"] == {"run": "8"}
    assert [job["name"] for job in script.world.query("jobs", label="run=8")["items"]] == ["/a"]
    assert script.world.query("jobs", label="team=vision")["items"] == []


def test_the_audit_the_history_and_why_say_who_changed_what(script: Script) -> None:
    script.play("""
        submit /a for_user=mia timeout=3600
        update /a user=mia timeout_s=7200 band=batch
        update /a user=mia timeout_s=7200
        hold /a user=mia reason=data
        release /a user=mia
    """)
    changed = "band batch, was interactive; timeout_s 7200, was 3600"
    entries = script.world.query("audit", limit=3)["items"]
    assert [(one["action"], one["by"]["name"], one["detail"]) for one in entries] == [
        ("release", "mia", ""),
        ("hold", "mia", "data"),
        ("change", "mia", changed),
    ]
    rows = script.world.query("history", job="/a", limit=10)["items"]
    assert [(row["reason"], row["by"]["name"]) for row in rows] == [
        (changed, "mia"),
        ("held: data", "mia"),
        ("released", "mia"),
    ]
    assert script.world.query("job", job="/a")["version"] == 4


def test_a_changed_job_is_replayed_by_its_key_and_submitted_anew(script: Script) -> None:
    script.play("""
        submit /a key=k for_user=mia
        update /a user=mia band=batch timeout_s=60
        submit /a key=k for_user=mia              -> replayed
    """)


def test_an_eviction_is_judged_by_the_bands_of_now(script: Script) -> None:
    script.play("""
        worker w0
        submit /a
        place /a/0 w0
        /a/0 run
        submit /b
        /a/0 preempt for /b/0      -> RUNNING
        update /a band=batch
        /a/0 preempt for /b/0      -> PENDING preemptions=1
    """)


def test_a_held_job_with_nominated_tasks_gives_their_places_back(script: Script) -> None:
    script.play("""
        worker w0
        submit /a band=batch
        schedule
        /a/0 run
        submit /b band=production
        /a/0 preempt for /b/0
        promised                   -> w0:/b/0
        update /b timeout_s=60
        promised                   -> w0:/b/0
        hold /b
        promised                   -> nothing
        /a/0#0 stopped
        schedule
        /a/0                       -> ASSIGNED
    """)


def test_hold_with_stop_requeues_what_runs_without_a_charge(script: Script) -> None:
    script.play("""
        worker w0 cpu=2
        submit /a for_user=mia replicas=3 requeues=0
        schedule                          -> placed 2
        /a/0 run
        /a/1 run
        hold /a user=mia reason=data --stop  -> accepted
        told w0                           -> run:/a/0#0 run:/a/1#0 stop:/a/0#0 stop:/a/1#0
        /a/0                              -> PENDING requeues=0 failures=0 preemptions=0
        attempt /a/0#0                    -> state=killed cause=held open=yes
        /a/0#0 exit 0                     -> PENDING
        /a/1#0 exit 255                   -> PENDING failures=0
        queue                             -> nothing
        why /a                            -> held
        release /a user=mia
        queue                             -> /a/0 /a/1 /a/2
    """)
    (entry, *_) = [
        one for one in script.world.query("audit", limit=10)["items"] if one["action"] == "hold"
    ]
    assert entry["detail"] == "data; what runs is stopped"


def test_a_gang_that_is_held_with_stop_stops_whole(script: Script) -> None:
    script.play("""
        worker a rack=r
        worker b rack=r
        submit /gang replicas=2 gang=rack
        schedule                   -> placed 2
        /gang/0 prepared
        /gang/1 prepared
        /gang/0 run
        /gang/1 run
        hold /gang --stop
        /gang/0                    -> PENDING requeues=0 failures=0 preemptions=0
        /gang/1                    -> PENDING
        /gang/0#0 stopped
        /gang/1#0 stopped
        queue                      -> nothing
        hold /gang --stop          -> accepted
        release /gang
        schedule                   -> placed 2
    """)
