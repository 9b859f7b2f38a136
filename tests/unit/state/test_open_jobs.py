"""An open job takes further calls until it is closed, and has not ended before that.

docs/design/semantics.md#jobs; docs/design/calls.md#open-maps.
"""

import msgspec

from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_state.effects.orders import template
from iris_state.records import targets
from tests.support.script import Script, spec


def test_an_open_job_has_not_ended_until_it_is_closed(script: Script) -> None:
    script.play("""
        worker w0 cpu=4
        submit /m map=yes open=600
        schedule                -> placed 1
        /m/0 exit 0             -> SUCCEEDED
        job /m                  -> RUNNING
        grow /m at=1 calls=2    -> accepted
        job /m                  -> RUNNING tasks=pending:2,succeeded:1
        events /m/0             -> pending assigned succeeded
        events /m/1             -> pending
        events /m/2             -> pending
        queue                   -> /m/1 /m/2
        schedule                -> placed 2
        /m/1 exit 0
        /m/2 exit 0
        job /m                  -> RUNNING
        close /m                -> accepted
        job /m                  -> SUCCEEDED tasks=succeeded:3
        grow /m at=3 calls=1    -> conflict
    """)


def test_a_closed_job_ends_with_the_calls_that_it_has(script: Script) -> None:
    script.play("""
        worker w0 cpu=4
        submit /m map=yes open=600 tolerate=9
        grow /m at=1 calls=1    -> accepted
        close /m                -> accepted
        close /m                -> accepted
        grow /m at=2 calls=1    -> conflict /m takes no further calls: it was closed
        schedule                -> placed 2
        /m/0 exit 1             -> FAILED
        job /m                  -> RUNNING
        /m/1 exit 0
        job /m                  -> FAILED
    """)


def test_growth_that_is_repeated_adds_nothing(script: Script) -> None:
    script.play("""
        submit /m map=yes open=600
        grow /m at=1 calls=2 request=g1 -> accepted
        grow /m at=1 calls=2 request=g1 -> accepted
        grow /m at=1 calls=2            -> accepted
        job /m                          -> PENDING tasks=pending:3
        grow /m at=2 calls=2            -> conflict /m has 3 calls, and this request adds calls after 2
        grow /m at=4 calls=1            -> conflict
        grow /m at=1 calls=2 segment=x  -> conflict
        grow /m at=3 calls=1            -> accepted
        job /m                          -> PENDING tasks=pending:4
    """)


def test_without_a_request_of_its_client_it_is_closed_and_says_so(script: Script) -> None:
    script.play("""
        worker w0 cpu=4
        submit /m map=yes open=600
        schedule
        /m/0 exit 0
        wait 400
        grow /m at=1 calls=0    -> accepted
        wait 400
        job /m                  -> RUNNING
    """)
    job, why = script.world.query("job", job="/m"), script.world.query("why", job="/m")
    assert (job["open"], job["note"]) == (True, why["job_note"])
    assert (
        why["job_note"]
        == "open; waits for further calls, at most 600 s after the last request of its client"
    )
    script.play("""
        wait 250
        job /m                  -> SUCCEEDED
    """)
    job = script.world.query("job", job="/m")
    assert (job["open"], job["note"]) == (False, "closed: no request of its client for 600 s")


def test_a_new_leader_gives_the_client_its_time_again(script: Script) -> None:
    script.play("""
        worker w0
        submit /m map=yes open=600
        takeover 700
        heartbeat w0
        job /m                  -> PENDING
        wait 500
        job /m                  -> PENDING
        schedule
        /m/0 exit 0
        wait 200
        job /m                  -> SUCCEEDED
    """)


def test_cancelling_an_open_job_closes_it_and_its_open_children(script: Script) -> None:
    script.play("""
        worker w0 cpu=2
        submit /m map=yes open=600
        submit /m/c map=yes open=600
        schedule
        /m/0 exit 0
        cancel /m               -> accepted
        job /m                  -> SUCCEEDED
        job /m/c                -> KILLED
        submit /n map=yes open=600
        cancel /n               -> accepted
        job /n                  -> KILLED
    """)


def test_a_cancelled_call_ends_no_open_job(script: Script) -> None:
    script.play("""
        submit /m map=yes open=600 tolerate=9
        cancel /m/0             -> accepted
        job /m                  -> PENDING
        grow /m at=1 calls=1    -> accepted
        close /m
        cancel /m/1
        job /m                  -> KILLED
    """)


def test_growth_counts_against_the_limits_of_the_user_and_of_a_job(script: Script) -> None:
    script.play("""
        quota mia max_pending_tasks=3
        submit /m map=yes open=600 for_user=mia
        grow /m at=1 calls=2 user=mia -> accepted
        grow /m at=3 calls=1 user=mia -> over_quota mia may have 3 pending tasks, has 3 and asks for 1 more
        quota mia max_pending_tasks=0
        grow /m at=3 calls=9998 user=mia -> invalid a job has at most 10,000 tasks, and /m would have 10,001
        grow /m at=3 calls=9997 user=mia -> accepted
        close /m user=ann       -> forbidden
        grow /m at=10000 calls=0 user=ann -> forbidden
        grow /gone at=0 calls=1 -> not_found
    """)


def test_gates_and_the_limit_of_parallel_tasks_hold_for_added_calls(script: Script) -> None:
    script.play("""
        worker w0 cpu=9
        submit /m map=yes open=600 hold=yes parallel=2
        grow /m at=1 calls=3    -> accepted
        queue                   -> nothing
        release /m              -> accepted
        queue                   -> /m/0 /m/1 /m/2 /m/3
        place /m w0 w0
        place /m/2 w0           -> array_limit
        hold /m                 -> accepted
        grow /m at=4 calls=1    -> accepted
        queue                   -> nothing
        release /m
        queue                   -> /m/2 /m/3 /m/4
    """)


def test_the_scheduling_timeout_of_an_added_call_begins_when_it_is_added(script: Script) -> None:
    script.play("""
        worker w0
        submit /m map=yes open=600 scheduling_timeout=50
        schedule                -> placed 1
        wait 60
        grow /m at=1 calls=1    -> accepted
        wait 40
        /m/1                    -> PENDING
        wait 20
        /m/1                    -> UNSCHEDULABLE
        job /m                  -> UNSCHEDULABLE
    """)


def test_a_job_that_grows_is_followed_as_a_whole_only(script: Script) -> None:
    script.play("""
        submit /m map=yes open=600
        submit /n after=/m each=yes     -> invalid
        submit /o after=/m:any          -> created
        submit /p map=yes open=600 after=/m each=yes -> invalid
        submit /r map=yes open=0        -> invalid
        submit /s map=yes open=600 array=0-0 -> invalid
        close /m
        cancel /m
        why /o
    """)


def test_a_kept_job_a_retried_submission_and_a_rerun_know_the_grown_job(script: Script) -> None:
    script.play("""
        worker w0 cpu=4
        submit /m map=yes open=600 key=k -> created j1
        grow /m at=1 calls=1
        submit /m map=yes open=600 key=k -> replayed j1
        close /m
        schedule
        /m/0 exit 0
        /m/1 exit 0
        job /m                  -> SUCCEEDED
        rerun /m                -> created j2
        job /m                  -> PENDING tasks=pending:2
        schedule
        /m/0 exit 0
        /m/1 exit 0
        job /m                  -> SUCCEEDED
    """)


def test_an_order_names_the_arguments_of_its_calls_only(script: Script) -> None:
    script.play("""
        worker w0 cpu=9
        submit /m map=yes open=600
        grow /m at=1 calls=2
        grow /m at=3 calls=1
        place /m/2 w0
    """)
    order = script.world.hosts["w0"].orders[-1]
    (made,) = order.templates
    whole = template(script.world.ledger.jobs[1]).calls
    assert made.calls is not None
    assert whole is not None
    assert made.replicas == 4
    assert made.calls.place(2) == whole.place(2)
    assert len(whole.segments) == 3
    assert len(made.calls.segments) == 1


def test_growth_is_of_the_owner_and_of_tasks_above(script: Script) -> None:
    script.play("""
        worker w0
        submit /m map=yes open=600 for_user=mia
        submit /m/c map=yes open=600 for_user=mia
        place /m/0 w0
        /m/0 run
    """)
    token = Caller("mia", "task", AttemptRef(1, 0, 0), "w0")
    world = script.world
    assert world.grow("/m/c", token, offset=1, count=1).status == "accepted"
    assert world.grow("/m", token, offset=1, count=1).status == "accepted"
    assert world.grow("/x", token, offset=1, count=1).status == "forbidden"


def test_an_idempotent_submission_differs_by_more_than_growth(script: Script) -> None:
    script.play("""
        submit /m map=yes open=600 key=k -> created j1
        grow /m at=1 calls=1
        submit /m map=yes open=600 key=k retries=3 -> idempotency_mismatch
    """)
    made = spec("/m", {"map": "yes", "open": "600"})
    assert made.calls is not None
    other = msgspec.structs.replace(
        made, calls=msgspec.structs.replace(made.calls, function="9" * 64)
    )
    assert script.world.submit(other, idempotency_key="k").status == "idempotency_mismatch"
    assert targets.known_job(script.world.ledger, "/m").spec.replicas == 2
