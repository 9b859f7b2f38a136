"""Preemption and quotas in the state service:

all or nothing, promises kept and let go. docs/design/semantics.md#order.
"""

import pytest
from msgspec.structs import asdict

from iris_core.messages.gateway_state import Caller
from iris_core.spec.jobs import JobSpec
from iris_state.policy import Policy
from iris_state.views.cluster.users import quota_view
from tests.support.world import World


def test_all_victims_are_preempted_or_none(script):
    script.play("""
        worker w0 cpu=2
        submit /x band=batch
        submit /y band=production
        schedule                        -> placed 2
        /x/0 running
        /y/0 running
        submit /p band=production
        /x/0 preempt /y/0 for /p/0      -> RUNNING
        /y/0                            -> RUNNING
        promised                        -> nothing
    """)


def test_only_strictly_lower_bands_are_preempted(script):
    script.play("""
        worker w0
        submit /x
        schedule
        /x/0 running
        submit /same
        /x/0 preempt for /same/0        -> RUNNING
        submit /lower band=batch
        /x/0 preempt for /lower/0       -> RUNNING
        submit /higher band=production
        /x/0 preempt for /higher/0      -> PENDING
    """)


def test_a_victim_is_lower_than_everybody_it_makes_way_for(script):
    script.play("""
        worker w0 cpu=2
        submit /x replicas=2 band=batch
        schedule
        /x/0 running
        /x/1 running
        submit /p band=production
        submit /q band=batch
        /x/0 preempt /x/1 for /p/0 /q/0     -> RUNNING
    """)


def test_what_has_ended_cannot_be_preempted(script):
    script.play("""
        worker w0
        submit /x band=batch retries=1
        schedule
        /x/0 running
        submit /p band=production
        /x/0 exit 1                 -> PENDING
        /x/0#0 preempt for /p/0     -> PENDING preemptions=0
        promised                    -> nothing
    """)


def test_a_victim_is_evicted_once(script):
    script.play("""
        worker w0
        submit /x band=batch
        schedule
        /x/0 running
        submit /p band=production
        /x/0 preempt for /p/0       -> PENDING preemptions=1
        /x/0#0 preempt for /p/0     -> PENDING preemptions=1
    """)


def test_a_gang_is_evicted_whole_or_not_at_all(script):
    script.play("""
        worker a0 rack=a
        worker a1 rack=a
        submit /g replicas=2 gang=rack band=batch
        schedule
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        /g/1 running
        submit /p band=production
        /g/0 preempt for /p/0           -> RUNNING
        /g/0 preempt /g/1 for /p/0      -> PENDING preemptions=1
        /g/1                            -> PENDING preemptions=1
        attempt /g/1#0                  -> state=preempted charged_to=preemption
        session /g                      -> PENDING
    """)


def test_a_gang_with_a_finished_member_is_evicted_by_what_is_left_of_it(script):
    script.play("""
        worker a0 rack=a
        worker a1 rack=a
        submit /g replicas=2 gang=rack band=batch
        schedule
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        /g/1 running
        /g/0 exit 0
        submit /p band=production
        /g/1 preempt for /p/0           -> PENDING preemptions=1
        /g/0                            -> PENDING preemptions=0
        job /g                          -> RUNNING
    """)


def test_the_preemptor_starts_when_the_victim_has_ended(script):
    script.play("""
        worker w0
        submit /x band=batch
        schedule
        /x/0 running
        submit /p band=production
        /x/0 preempt for /p/0
        promised                    -> w0:/p/0
        schedule                    -> placed 0
        /x/0#0 stopped
        schedule                    -> placed 1
        /p/0                        -> ASSIGNED worker=w0
        promised                    -> nothing
    """)


def test_a_promise_ends_with_the_one_it_was_made_to(script):
    script.play("""
        worker w0
        submit /x band=batch
        schedule
        /x/0 running
        submit /p band=production
        /x/0 preempt for /p/0
        promised                    -> w0:/p/0
        cancel /p
        promised                    -> nothing
        /x/0#0 stopped
        schedule                    -> placed 1
        /x/0                        -> ASSIGNED
    """)


def test_a_promise_ends_when_the_preemptor_is_placed_elsewhere(script):
    script.play("""
        worker w0
        submit /x band=batch
        schedule
        /x/0 running
        submit /p band=production
        /x/0 preempt for /p/0
        worker w1
        place /p/0 w1               -> placed
        promised                    -> nothing
    """)


def test_a_promise_ends_with_its_worker(script):
    script.play("""
        worker w0
        worker w1
        submit /x replicas=2 band=batch
        schedule
        /x/0 running
        /x/1 running
        submit /p replicas=2 band=production
        /x/0 preempt /x/1 for /p/0 /p/1
        promised                    -> w0:/p/0 w1:/p/1
        lose w0
        promised                    -> w1:/p/1
        admin drain w1
        promised                    -> nothing
    """)


def test_nothing_is_promised_to_who_does_not_wait(script):
    script.play("""
        worker w0 cpu=2
        submit /x band=batch
        submit /p band=production
        schedule                    -> placed 2
        /x/0 running
        /x/0 preempt for /p/0       -> RUNNING
        promised                    -> nothing
    """)


def test_nothing_is_promised_to_a_task_that_is_not_there(script):
    from iris_core.messages.message import AttemptRef
    from iris_core.messages.scheduler_state import Eviction, Nomination, Plan

    script.play("""
        worker w0
        submit /x band=batch
        schedule
        /x/0 running
        submit /p band=production
    """)
    for nomination in (
        Nomination(2, 1, "w0"),
        Nomination(2, -1, "w0"),
        Nomination(9, 0, "w0"),
        Nomination(2, 0, "w9"),
    ):
        eviction = Eviction((AttemptRef(1, 0, 0),), (nomination,))
        script.world.plan(Plan("s", 0, evictions=(eviction,)))
    script.play("""
        /x/0            -> RUNNING
        promised        -> nothing
    """)


# ── quotas ────────────────────────────────────────────────────────────────────────────────────────


def test_a_submission_over_the_pending_quota_is_refused(script):
    script.play("""
        quota ann max_pending_tasks=3       -> accepted
        submit /a replicas=2 user=ann       -> created
        submit /b replicas=2 user=ann       -> over_quota ~ann may have 3 pending tasks, has 2 and asks for 2 more
        submit /c replicas=1 user=ann       -> created
        submit /d replicas=9 user=bob       -> created
        cancel /a user=ann
        submit /b replicas=2 user=ann       -> created
    """)


def test_placed_tasks_are_not_pending(script):
    script.play("""
        worker w0 cpu=2
        quota ann max_pending_tasks=2
        submit /a replicas=2 user=ann
        schedule                            -> placed 2
        submit /b replicas=2 user=ann       -> created
    """)


def test_what_is_replaced_does_not_count_as_pending(script):
    script.play("""
        quota ann max_pending_tasks=2
        submit /a replicas=2 user=ann
        submit /a replicas=2 user=ann if_exists=replace     -> created
    """)


def test_no_quota_is_no_limit(script):
    script.play("""
        quota ann max_pending_tasks=0
        submit /a replicas=5000 user=ann    -> created
    """)


def test_a_view_of_limits_tells_whether_they_are_set_for_the_user(script):
    script.play("quota ann max_band=2")
    ledger = script.world.ledger
    found = {user: asdict(quota_view(ledger, user)) for user in ("ann", "bea")}
    assert {user: view["is_default"] for user, view in found.items()} == {"ann": False, "bea": True}


def test_a_band_better_than_ones_best_is_refused(script):
    script.play("""
        quota ann max_band=2
        submit /a band=production user=ann      -> forbidden ~ann may ask for band interactive at best, not production
        submit /a band=interactive user=ann     -> created
        submit /b band=batch user=ann           -> created
    """)


def test_only_an_admin_sets_quotas(script):
    from iris_core.messages.gateway_state import Caller

    answer = script.world.admin("set_quota", "ann", Caller("ann", "user"), max_pending_tasks=5)
    assert answer.status == "forbidden"
    answer = script.world.admin("set_quota", "ann", max_pending_tasks=-1)
    assert answer.status == "invalid"


@pytest.mark.parametrize(
    "limits", [{"max_pending_tasks": True}, {"max_pending_tasks": "5"}, {"max_band": 7}]
)
def test_a_quota_that_is_none_is_refused_and_ends_nobody(script, limits):
    """A command comes from whoever may publish one: what the gateway would have refused must not
    stop the line.
    """
    answer = script.world.admin("set_quota", "ann", **limits)
    assert answer.status == "invalid"
    script.world.replayed()


def test_a_quota_counts_what_is_held(script):
    script.play("""
        worker w0 cpu=4 memory=8
        submit /a replicas=2 user=ann cpu=1.5 memory=2
        schedule
    """)
    quota = script.world.query("quota", user="ann")
    assert (quota["running_cpu"], quota["running_memory"]) == (3000, 4 << 30)


def test_a_plain_user_without_a_quota_may_not_ask_for_production(script):
    script.play("""
        submit /a band=production user=ann    -> forbidden ~ann may ask for band interactive at best
        submit /a user=ann                    -> created
        update /a band=production user=ann    -> forbidden ~iris quota set
        submit /b band=production user=mia role=admin   -> created
        submit /b/c band=production user=mia  -> created
        submit /b/d band=production user=ann  -> forbidden
        quota ann max_band=1
        submit /d band=production user=ann    -> created
        quota ann max_band=3
        submit /e user=ann                    -> forbidden ~batch at best
    """)


def test_an_operator_sets_what_users_without_a_quota_may_ask_for():
    def asks(allowed: str, band: str) -> str:
        spec = JobSpec(name="/a", command=("true",), band=band)
        return World(Policy(max_band=allowed)).submit(spec, Caller("ann", "user")).status

    assert [asks("production", "production"), asks("batch", "batch")] == ["created", "created"]
    assert [asks("interactive", "production"), asks("batch", "interactive")] == ["forbidden"] * 2
