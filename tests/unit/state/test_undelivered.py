"""Undeliverable orders: attempts whose order expires end, and unreachable hosts become DEGRADED.

Sources: docs/design/semantics.md#tasks-and-attempts; ADR 20.
"""

from iris_state.policy import Policy
from tests.support.script import Script

TWO = """
    worker w0 cpu=4
    worker w1 cpu=4
    submit /a preemptions=0
"""

RACK = """
    worker a0 rack=a
    worker a1 rack=a
    worker b0 rack=b
    worker b1 rack=b
    submit /g replicas=2 gang=rack preemptions=0
"""


# ── what provably never started ───────────────────────────────────────────────────────────────────


def test_an_order_that_nobody_heard_ends_at_once_and_is_placed_elsewhere(script):
    script.play(TWO)
    script.play("""
        orders w0 absent
        place /a/0 w0
        /a/0                -> PENDING preemptions=0
        attempt /a/0#0      -> cause=undelivered charged_to=reschedule open=no
        capacity w0         -> cpu=4
        queue               -> /a/0
        place /a/0 w1       -> placed
        /a/0 running        -> RUNNING attempts=2
        history /a          -> ~PrepareSessions scheduled>pending GIVE_UP (worker w0 does not listen)
    """)


def test_what_a_stopping_worker_refuses_has_ended_at_once(script):
    script.play(TWO)
    script.play("""
        orders w0 held
        place /a/0 w0
        stop w0             -> draining
    """)
    from iris_state.records.inputs import DeliveryResult, Fate

    world = script.world
    [order] = world.hosts["w0"].held
    world.step(DeliveryResult("w0", order, "worker w0 is stopping", Fate.NEVER))
    script.play("""
        /a/0                -> PENDING preemptions=0
        place /a/0 w1       -> placed
    """)


def test_an_order_that_expired_unread_has_ended_with_the_next_heartbeat(script):
    """The host heartbeats and is deaf: nothing of this attempt can ever start there, and its task
    waits no longer.
    """
    script.play(TWO)
    script.play("""
        orders w0 held
        place /a/0 w0
        wait 10
        /a/0                -> ASSIGNED
        wait 3
        /a/0                -> PENDING preemptions=0
        attempt /a/0#0      -> cause=undelivered open=no
        queue               -> /a/0
        place /a/0 w1       -> placed
    """)


def test_an_order_that_was_read_in_time_has_not_expired(script):
    script.play(TWO)
    script.play("""
        orders w0 held
        place /a/0 w0
        orders w0 arrive
        wait 30
        /a/0                -> ASSIGNED attempts=1
    """)


def test_a_silent_host_proves_nothing(script):
    script.play(TWO)
    script.play("""
        orders w0 deaf
        place /a/0 w0
        silence 29
        attempt /a/0#0      -> open=yes
        silence 2
        worker? w0          -> lost
        attempt /a/0#0      -> open=no
    """)


def test_the_second_order_that_finds_nobody_proves_nothing_of_the_first(script):
    """The first may have been taken, its answer lost, and the worker killed behind it."""
    script.play(TWO)
    script.play("""
        orders w0 deaf
        place /a/0 w0
        orders w0 absent
        silence 2
        attempt /a/0#0      -> open=yes
    """)


def test_no_order_outlives_the_first_for_the_same_attempt(script):
    script.play(TWO)
    script.play("""
        orders w0 held
        place /a/0 w0
        wait 9
        orders w0 fail
        silence 0.9
        silence 3
    """)
    orders = [order for order in script.world.hosts["w0"].orders if order.run]
    assert len(orders) > 1
    assert {order.expires_ms for order in orders} == {1_000_000 + 10_000}


def test_an_order_tells_its_time_by_the_clock_of_its_host():
    """Whatever it says, and whatever the clocks of others say."""
    from iris_core import codec, subjects
    from iris_core.messages.state_worker import HeartbeatMessage
    from iris_state.records.inputs import Heartbeat

    script = Script()
    script.play(TWO)
    world = script.world
    world.step(
        Heartbeat(
            subjects.heartbeat("w0"),
            codec.pack(HeartbeatMessage("w0", "1", 1, at_ms=5, monotonic_ms=77_000)),
        )
    )
    world.now_ms += 1_500
    script.play("place /a/0 w0")
    assert world.hosts["w0"].orders[-1].expires_ms == 77_000 + 1_500 + 10_000


def test_a_gang_with_a_host_that_does_not_listen_is_placed_elsewhere(script):
    script.play(RACK)
    script.play("""
        orders a0 held
        orders a1 absent
        place /g a0 a1
        /g/0                -> PENDING preemptions=0
        /g/1                -> PENDING preemptions=0
        attempt /g/1#0      -> cause=undelivered open=no
        session /g          -> PENDING
        place /g b0 b1      -> placed
    """)


def test_an_unreachable_host_of_a_moved_gang_holds_nothing_for_long(script):
    script.play(RACK)
    script.play("""
        orders a1 deaf
        place /g a0 a1
        wait 13
        session /g          -> PENDING
        capacity a1         -> cpu=1
        attempt /g/1#0      -> cause=undelivered open=no
    """)


def test_an_attempt_cancelled_unread_holds_nothing_once_its_order_expires(script):
    script.play(TWO)
    script.play("""
        orders w0 deaf
        place /a/0 w0
        cancel /a
        capacity w0         -> cpu=3
        wait 13
        capacity w0         -> cpu=4
    """)


def test_a_leader_begins_nothing_on_a_host_whose_clock_it_does_not_know(script):
    """Else its order would never expire; it asks with an empty one, whose answer has the clock."""
    script.play(TWO)
    script.play("""
        orders w0 held
        place /a/0 w0
        told w0
    """)
    world = script.world
    world.hosts["w0"].held, world.mirror = [], None
    fresh = world.replayed()
    fresh.policy = world.policy
    world.machine = fresh
    world._lead()
    script.play("told w0 -> nothing")
    world.answer_held("w0")
    script.play("told w0 -> run:/a/0#0")
    assert world.hosts["w0"].orders[-1].expires_ms


# ── hosts that orders do not reach ────────────────────────────────────────────────────────────────


def test_a_host_that_orders_do_not_reach_is_degraded_until_one_does(script):
    script.play(TWO)
    script.play("""
        orders w0 deaf
        place /a/0 w0
        worker? w0          -> healthy
        wait 10
        worker? w0          -> degraded detail=~orders_in_a_row_did_not_reach_it
        wait 10
        worker? w0          -> degraded
        orders w0 listens
        wait 5
        worker? w0          -> healthy detail=-
    """)


def test_three_orders_in_a_row_and_not_three_in_all():
    script = Script(Policy(order_expires_s=100))
    script.play("""
        worker w0 cpu=8
        submit /a replicas=8
        orders w0 absent
        place /a/0 w0
        place /a/1 w0
        orders w0 listens
        place /a/2 w0
        orders w0 absent
        place /a/3 w0
        place /a/4 w0
        worker? w0          -> healthy
        place /a/5 w0
        worker? w0          -> degraded
        submit /b
        place /b/0 w0       -> worker_unavailable
    """)


def test_a_host_that_says_itself_what_ails_it_is_not_healed_by_an_order(script):
    script.play("""
        worker w0
        orders w0 deaf
        submit /a
        place /a/0 w0
        heartbeat w0 unhealthy   -> degraded
        orders w0 listens
        heartbeat w0 unhealthy
        worker? w0          -> degraded
        heartbeat w0             -> healthy
    """)


def test_a_new_leader_does_not_take_a_host_with_a_fault_for_healed():
    """It accepts the first order at once, and says with its next heartbeat what ails it."""
    script = Script()
    script.play("""
        worker w0
        heartbeat w0 unhealthy   -> degraded
    """)
    world = script.world
    world.machine, world.mirror = world.replayed(), None
    world._lead()
    script.play("""
        worker? w0               -> degraded detail=~no_disk
        heartbeat w0             -> healthy
    """)


def test_a_new_leader_does_not_take_an_unreachable_host_for_healed(script):
    script.play("""
        worker w0
        orders w0 deaf
        submit /a
        place /a/0 w0
        wait 15
        worker? w0          -> degraded
    """)
    script.world._lead()
    script.world.mirror = None
    script.play("""
        heartbeat w0             -> degraded
        orders w0 listens
        heartbeat w0             -> healthy
    """)


# ── workers that stop in order ────────────────────────────────────────────────────────────────────


def test_a_worker_that_stops_takes_nothing_new_and_then_is_gone(script):
    script.play("""
        worker w0 cpu=2
        submit /a
        schedule
        /a/0 running
        stop w0             -> draining
        submit /b
        schedule            -> placed 0
        /a/0                -> RUNNING
        /a/0 stopped
        stop w0 gone        -> lost
        worker? w0          -> lost detail=~it_was_stopped
        restart w0          -> healthy
        worker? w0          -> healthy detail=-
    """)


def test_what_a_gone_worker_was_to_begin_is_free(script):
    script.play(TWO)
    script.play("""
        orders w0 held
        place /a/0 w0
        stop w0 gone
        /a/0                -> PENDING preemptions=0
        attempt /a/0#0      -> open=no
    """)


def test_a_drained_worker_that_was_stopped_stays_drained(script):
    script.play("""
        worker w0
        admin drain w0
        stop w0             -> draining
        stop w0 gone        -> lost
        restart w0          -> draining
    """)


def test_a_stopped_worker_that_was_not_drained_is_healthy_when_back(script):
    script.play("""
        worker w0
        stop w0             -> draining
        restart w0          -> healthy
    """)


# ── ends that nobody confirms ─────────────────────────────────────────────────────────────────────


def test_a_session_of_one_holds_its_place_while_terminating(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        orders w0 deaf
        cancel /a
        session /a/0        -> TERMINATING
        wait 120
        session /a/0        -> TERMINATING
        wait 0.001
        session /a/0        -> TERMINATED
        capacity w0         -> cpu=0
        history /a          -> ~TerminateSessions terminating>terminated EXPIRED (TERMINATING for more than 120 s)
        wait 200
        history /a          -> ~TerminateSessions terminating>terminated EXPIRED (TERMINATING for more than 120 s)
        /a/0#0 stopped
        session /a/0        -> TERMINATED
        capacity w0         -> cpu=1
    """)


def test_the_clock_of_terminating_begins_when_the_kernel_was_told_to_stop(script):
    """A task that waits for its last attempt to stop is pending; cancelled then, it is
    terminating.
    """
    script.play("""
        worker w0
        submit /low band=batch
        schedule
        /low/0 running
        submit /high band=production
        orders w0 deaf
        /low/0 preempt for /high/0
        session /low/0      -> PENDING
        wait 100
        cancel /low
        session /low/0      -> TERMINATING
        wait 20
        session /low/0      -> TERMINATING
        wait 0.001
        session /low/0      -> TERMINATED
    """)


def test_a_snapshot_keeps_the_clock_of_terminating_and_that_it_has_run_out(script):
    from iris_core.states import SessionStatus
    from iris_state.machine.machine import Machine
    from iris_state.snapshots import snapshot

    def restored() -> Machine:
        machine, other = script.world.machine, Machine(script.world.policy, "other")
        other.restore(
            snapshot.read(snapshot.cut(machine.ledger, machine.sequence, machine.last_ms))
        )
        return other

    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        orders w0 deaf
        cancel /a
    """)
    line = SessionStatus.TERMINATING
    assert (
        list(restored().ledger.timeouts[line].items())
        == list(script.world.ledger.timeouts[line].items())
        != []
    )
    script.play("wait 121")
    assert not restored().ledger.timeouts[line]
    assert (
        restored().ledger.session_status(restored().ledger.jobs[1], 0) is SessionStatus.TERMINATED
    )


# ── hosts that are gone for good ──────────────────────────────────────────────────────────────────


def test_only_a_lost_worker_is_forgotten(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        admin forget w0             -> conflict w0 is healthy; only a lost worker is forgotten: mark it lost first
        admin forget w9             -> not_found
        admin forget w0 user=ann    -> forbidden
        lose w0
        admin forget w0             -> accepted w0
        admin forget w0             -> not_found
        attempt /a/0#0              -> worker=w0 cause=worker_lost
        worker w0                   -> healthy
        schedule                    -> placed 1
    """)


def test_a_worker_that_is_lost_for_long_is_forgotten_unless_it_was_drained():
    script = Script(Policy(forget_workers_after_s=100))
    script.play("""
        worker w0
        worker w1
        worker w2
        worker w3
        admin drain w1
        lose w0
        lose w1
        lose w2
        silence 100
        restart w2
        worker? w0              -> lost
        silence 1
    """)
    known = [row["id"] for row in script.world.query("workers")["items"]]
    assert known == ["w1", "w2", "w3"]
    script.play("""
        admin undrain w1
        silence 101
    """)
    assert "w1" not in [row["id"] for row in script.world.query("workers")["items"]]


def test_a_new_leader_places_nothing_on_a_host_it_has_not_heard_of():
    """A cluster that starts again with fewer hosts does not wait for those that are not there any
    more.
    """
    script = Script()
    script.play("""
        worker w0
        worker w1
        submit /a
    """)
    world = script.world
    world.machine, world.mirror = world.replayed(), None
    world.hosts["w0"].manner = "absent"
    world.hosts["w1"].manner = "held"
    world._lead()
    script.play("""
        worker? w0              -> degraded detail=~did_not_reach_it
        place /a/0 w0           -> worker_unavailable
        place /a/0 w1           -> worker_not_heard
        orders w1 arrive
        place /a/0 w1           -> placed
    """)


def test_no_lost_draining_or_degraded_host_counts_as_free(script):
    script.play("""
        worker w0 tpu-name=s0 tpu-worker-id=0 chips=4
        worker w1 tpu-name=s0 tpu-worker-id=1 chips=4
        worker w2 tpu-name=s0 tpu-worker-id=2 chips=4
        worker w3 tpu-name=s0 tpu-worker-id=3 chips=4
    """)

    def free() -> tuple[int, bool, int]:
        [found] = script.world.query("slices")["items"]
        return (
            found["free_workers"],
            found["whole_free"],
            script.world.query("overview")["capacity"]["chips"],
        )

    assert free() == (4, True, 16)
    script.play("lose w0")
    assert free() == (3, False, 12)
    script.play("admin drain w1")
    assert free() == (2, False, 8)
    script.play("heartbeat w2 unhealthy")
    assert free() == (1, False, 4)
    script.play("lose w3")
    assert free() == (0, False, 0)
