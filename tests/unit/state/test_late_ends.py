"""What a host has carried out is not done again because its order timed out: its host is heard
first.

docs/design/reliability.md#promises, P2.
"""

from __future__ import annotations

import pytest

PLACED = """
    worker w0
    worker w1
    submit /a preemptions=0 retries=1
    place /a/0 w0
"""


def test_a_new_leader_hears_a_host_before_it_gives_an_order_up(script):
    script.play(PLACED)
    script.play("""
        takeover 61             -> leads
        /a/0                    -> ASSIGNED attempts=1
        /a/0 exit 0             -> SUCCEEDED attempts=1
        told w0                 -> run:/a/0#0
    """)


def test_a_task_that_runs_is_not_stopped_because_nobody_led_for_a_while(script):
    script.play(PLACED)
    script.play("takeover 61")
    script.play("""
        w0 says /a/0 running
        wait 30
        /a/0                    -> RUNNING attempts=1
    """)


def test_an_order_that_its_host_refuses_is_given_up_once_reported(script):
    script.play(PLACED)
    script.play("""
        /a/0 preparing
        takeover 901
        /a/0                    -> BUILDING
        wait 3
        /a/0                    -> WORKER_FAILED preemptions=1
    """)


@pytest.mark.parametrize("silent", [True, False])
def test_a_host_that_stays_silent_is_lost_before_its_order_is_given_up(script, silent):
    script.play(PLACED)
    script.world.hosts["w0"].silent = silent
    script.play("takeover 61")
    script.play("wait 40")
    attempt = script.world.query("task", task="/a/0")["attempts"][0]
    assert attempt["cause"] == ("worker_lost" if silent else "prepare_timeout")


BUILT_TOO_LONG = """
    worker w0
    submit /a preemptions=1 retries=1
    schedule
    /a/0 preparing
    wait 901
    /a/0                    -> PENDING preemptions=1
"""


def test_work_that_was_done_before_the_stop_arrived_is_done(script):
    script.play(BUILT_TOO_LONG)
    script.play("""
        /a/0#0 exit 0           -> SUCCEEDED preemptions=0 attempts=1
        attempt /a/0#0          -> state=succeeded cause=exited charged_to=- exit_code=0 open=no
        job /a                  -> SUCCEEDED
        events /a/0             -> pending assigned building pending succeeded
        queue                   -> nothing
    """)


def test_work_that_failed_before_the_stop_arrived_has_failed(script):
    script.play(BUILT_TOO_LONG)
    script.play("""
        /a/0#0 exit 3           -> PENDING failures=1 preemptions=0
        attempt /a/0#0          -> state=failed cause=failed charged_to=failure open=no
        queue                   -> /a/0
        wait 6
        schedule
        /a/0 exit 3             -> FAILED failures=2
    """)


def test_an_attempt_that_was_stopped_in_time_is_started_again(script):
    script.play(BUILT_TOO_LONG)
    script.play("""
        /a/0#0 stopped          -> PENDING preemptions=1
        queue                   -> /a/0
    """)


def test_what_a_preempted_task_had_done_before_is_done(script):
    script.play("""
        worker w0 cpu=1
        submit /low band=batch
        schedule
        /low/0 running
        submit /high band=production
        /low/0 preempt for /high/0  -> PENDING preemptions=1
        /low/0#0 exit 0         -> SUCCEEDED preemptions=0
    """)
