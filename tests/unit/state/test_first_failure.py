"""The first failure ends the rest of a job, and the job's error says so.
docs/design/semantics.md#jobs.
"""


def test_the_error_of_a_job_says_what_ended_the_rest(script):
    script.play("""
        worker w0 cpu=4
        submit /a replicas=4
        schedule
        /a/0 exit 0
        /a/2 exit 1
        job /a              -> FAILED tasks=failed:1,killed:2,succeeded:1
    """)
    words = "2 tasks that had not ended were killed, because at most 0 may fail (max_task_failures)"
    assert script.world.query("job", job="/a")["error"] == f"task 2 failed: exit code 1; {words}"
    assert script.world.query("why", task="/a/1")["error"] == f"task 2 failed: exit code 1; {words}"


def test_a_job_of_which_nothing_is_left_says_only_what_failed(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2 tolerate=1
        schedule
        /a/0 exit 1
        /a/1 exit 1         -> FAILED
    """)
    assert script.world.query("job", job="/a")["error"] == "task 0 failed: exit code 1"
