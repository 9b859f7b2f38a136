"""A running job whose tasks all wait again shows what interrupted it."""

import pytest

from tests.support.script import Script

PREEMPTED = """
    worker w0 cpu=2
    worker w1 cpu=2
    submit /train replicas=4 band=batch
    place /train/0 w0
    place /train/1 w0
    place /train/2 w1
    place /train/3 w1
    /train/0 running
    /train/1 running
    /train/2 running
    /train/3 running
    submit /boss band=production
    /train/3 preempt for /boss/0
    /train/3#0 stopped
"""


def test_a_preempted_job_says_for_whom(script: Script) -> None:
    script.play(PREEMPTED)
    job = script.world.query("job", job="/train")
    assert (job["state"], job["task_counts"]["running"]) == ("running", 3)
    found = job["interrupted"]
    assert (found["task"], found["cause"], found["message"], found["worker"]) == (
        "/train/3",
        "preempted",
        "preempted for /boss",
        "w1",
    )
    assert found["at"] is not None
    why = script.world.query("why", job="/train")
    assert (why["interrupted"], why["replicas"], why["task_counts"]) == (
        found,
        4,
        job["task_counts"],
    )
    assert script.world.query("jobs")["items"][1]["interrupted"] == found
    assert script.world.query("why", task="/train/0")["interrupted"] is None


def test_what_is_placed_again_or_was_never_placed_was_not_interrupted(script: Script) -> None:
    script.play(PREEMPTED)
    script.play("place /train/3 w1")
    assert script.world.query("job", job="/train")["interrupted"] is None
    assert script.world.query("job", job="/boss")["interrupted"] is None


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("lose w0", "its worker w0 was lost"),
        ("/a/0 exit 3", "failed on w0 with exit code 3"),
        ("/a/0 missing", "worker w0 no longer knew it"),
        ("/a/0 infra", "no disk"),
    ],
)
def test_every_way_back_to_the_queue_is_worded(script: Script, end: str, message: str) -> None:
    script.play(f"""
        worker w0
        submit /a retries=1
        place /a/0 w0
        /a/0 running
        {end}
    """)
    assert script.world.query("job", job="/a")["interrupted"]["message"] == message


def test_of_a_gang_the_member_that_ended_first_is_named(script: Script) -> None:
    script.play("""
        worker w0 rack=r
        worker w1 rack=r
        submit /g replicas=2 gang=rack
        place /g w0 w1
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        /g/1 running
        lose w1
        /g/0#0 stopped
    """)
    found = script.world.query("job", job="/g")["interrupted"]
    assert (found["task"], found["message"]) == ("/g/1", "its worker w1 was lost")


def test_why_of_a_task_tells_its_own_end_not_that_of_another(script: Script) -> None:
    script.play("""
        worker w0 cpu=8
        submit /a replicas=5 tolerate=1
        place /a/0 w0
        place /a/1 w0
        place /a/2 w0
        place /a/3 w0
        /a/0 running
        /a/1 running
        /a/2 running
        /a/3 running
        /a/0 exit 3
        /a/1 exit 0
        /a/2 exit 4
    """)
    job = script.world.query("why", job="/a")["error"]
    assert job.startswith("task 0 failed: exit code 3; 2 tasks that had not ended were killed")
    errors = [script.world.query("why", task=f"/a/{index}")["error"] for index in range(5)]
    assert errors == ["exit code 3", None, "exit code 4", job, job]


def test_why_of_a_cancelled_task_says_so(script: Script) -> None:
    script.play("""
        worker w0
        submit /a
        place /a/0 w0
        /a/0 running
        cancel /a
    """)
    assert script.world.query("why", task="/a/0")["error"] == "cancelled"
