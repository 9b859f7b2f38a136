"""A task that crashes its workers is retried a limited number of times; loss of spot hosts does not
count.
"""

from __future__ import annotations

import random

from iris_state.policy import Policy
from tests.support.script import Script

FLEET = """
    worker w0
    worker w1
    worker w2
    worker w3
    submit /bad preemptions=100
"""


def lose_silently(script: Script, worker: str) -> None:
    """Its last heartbeat is behind it; everybody else goes on until it is given up."""
    script.world.hosts[worker].silent = True
    script.play("wait 35")
    assert script.world.query("worker", id=worker)["state"] == "lost"


def take_down(script: Script, *workers: str) -> None:
    """Each of these hosts starts the task and is never heard of again."""
    for worker in workers:
        script.play(f"place /bad/0 {worker}")
        script.play("/bad/0 running")
        lose_silently(script, worker)


def test_a_task_that_takes_three_workers_down_is_not_tried_again(script):
    script.play(FLEET)
    take_down(script, "w0", "w1")
    script.play("/bad/0 -> PENDING preemptions=2")
    take_down(script, "w2")
    script.play("""
        /bad/0              -> WORKER_FAILED preemptions=3 error=~3_workers_died
        attempt /bad/0#2    -> cause=worker_lost charged_to=preemption error=~w0,_w1,_w2
        job /bad            -> WORKER_FAILED
        worker? w3          -> healthy
    """)
    assert script.world.ledger.jobs[1].tasks[0].no_retry


def test_a_killed_worker_process_on_a_living_host_is_told_apart(script):
    script.play(FLEET)
    for worker in ("w0", "w1", "w2"):
        script.play(f"place /bad/0 {worker}")
        script.play("/bad/0 running")
        script.play(f"restart {worker}")
        script.play("/bad/0 crashed")
    script.play("""
        /bad/0              -> WORKER_FAILED preemptions=3 error=~3_workers_died
        attempt /bad/0#0    -> cause=worker_crashed charged_to=preemption error=~worker_process_ended_while_it_ran
        worker? w0          -> healthy
    """)


def test_a_worker_process_that_dies_before_it_reports_a_start_counts_too(script):
    script.play(FLEET)
    for worker in ("w0", "w1", "w2"):
        script.play(f"place /bad/0 {worker}")
        script.play("/bad/0 -> ASSIGNED")
        script.play(f"restart {worker} without /bad/0")
    script.play("""
        /bad/0              -> WORKER_FAILED preemptions=0 error=~3_workers_died
        attempt /bad/0#2    -> cause=missing charged_to=reschedule
        worker? w2          -> healthy
    """)


def test_a_worker_that_is_killed_before_it_is_heard_of_again_counts(script):
    script.play(FLEET)
    for worker in ("w0", "w1", "w2"):
        script.world.now_ms += 4000
        script.play(f"place /bad/0 {worker}")
        lose_silently(script, worker)
    script.play("""
        /bad/0              -> WORKER_FAILED preemptions=0 error=~3_workers_died
        worker? w3          -> healthy
    """)


def test_a_worker_that_was_silent_before_the_task_came_does_not_count(script):
    script.play(FLEET)
    for worker in ("w0", "w1", "w2"):
        script.world.hosts[worker].silent = True
        script.play("wait 6")
        script.play(f"place /bad/0 {worker}")
        lose_silently(script, worker)
    script.play("/bad/0 -> PENDING")


def test_the_same_worker_three_times_is_one(script):
    script.play(FLEET)
    for _ in range(4):
        script.play("""
            place /bad/0 w0
            /bad/0 running
            restart w0
            /bad/0 crashed
            wait 300
        """)
    script.play("/bad/0 -> PENDING preemptions=4")


def test_losses_long_after_the_start_do_not_count(script):
    script.play(FLEET)
    for worker in ("w0", "w1", "w2"):
        script.play(f"place /bad/0 {worker}")
        script.play("""
            /bad/0 running
            wait 121
        """)
        lose_silently(script, worker)
    script.play("/bad/0 -> PENDING preemptions=3")


def test_losses_that_the_workers_had_notice_of_do_not_count(script):
    script.play(FLEET)
    for number, worker in enumerate(("w0", "w1", "w2", "w3"), 1):
        script.play(f"place /bad/0 {worker}")
        script.play("/bad/0 running")
        script.world.leave(worker, "stopping", "this VM is being preempted")
        seen = script.world.query("worker", id=worker)
        assert (seen["state"], seen["detail"]) == ("draining", "this VM is being preempted")
        lose_silently(script, worker)
        script.play(f"/bad/0 -> PENDING preemptions={number}")


def test_losses_with_a_notice_do_not_count(script):
    script.play(FLEET)
    for worker in ("w0", "w1", "w2"):
        script.play(f"place /bad/0 {worker}")
        script.play(f"""
            /bad/0 running
            admin drain {worker}
        """)
        lose_silently(script, worker)
    script.play("/bad/0 -> PENDING preemptions=3")


def test_an_attempt_that_outlives_the_window_begins_the_count_anew(script):
    script.play(FLEET)
    take_down(script, "w0", "w1")
    script.play("""
        place /bad/0 w2
        /bad/0 running
        wait 121
        restart w2 without /bad/0
        /bad/0              -> PENDING preemptions=3
    """)
    take_down(script, "w2")
    script.play("/bad/0 -> PENDING preemptions=4")


def test_the_loss_of_whole_slices_does_not_count(script):
    for name in ("s0", "s1", "s2"):
        for n in range(2):
            script.play(f"worker {name}-{n} tpu-name={name}")
    script.play("submit /bad preemptions=100")
    for name in ("s0", "s1", "s2"):
        script.play(f"place /bad/0 {name}-0")
        script.play("/bad/0 running")
        script.world.hosts[f"{name}-1"].silent = True
        lose_silently(script, f"{name}-0")
    script.play("/bad/0 -> PENDING preemptions=3")


def test_a_spot_task_whose_worker_is_lost_every_hour_for_five_days_goes_on():
    """Each worker is lost at a random time of the hour, alone and without a notice."""
    rng = random.Random(11)
    script = Script(Policy(heartbeat_interval_s=60, worker_grace_s=60, order_expires_s=1e6))
    world = script.world
    script.play("""
        worker w0
        worker w1
        worker w2
        submit /steady preemptions=1000
    """)
    for hour in range(5 * 24):
        worker = f"w{hour % 3}"
        world.restart(worker, without=list(world.hosts[worker].believes))
        script.play(f"place /steady/0 {worker}")
        script.play("/steady/0 running")
        world.now_ms += rng.randrange(3_600_000)
        world.heartbeat(worker)
        world.hosts[worker].silent = True
        world.wait(190)
    script.play("/steady/0 -> PENDING preemptions=120")
    assert sum(attempt.suspect for attempt in world.ledger.jobs[1].tasks[0].attempts) == 6
