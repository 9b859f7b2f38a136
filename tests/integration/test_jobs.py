"""Jobs as a user sees them on a whole cluster: real NATS, real services, real processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request

import psutil
import pytest

from tests.support.cluster import IRIS, Cluster, heard, until

pytestmark = pytest.mark.integration

WALK = ["pending", "assigned", "building", "running", "succeeded"]


def states(cluster: Cluster, name: str) -> list[str]:
    return [task.state for task in cluster.tasks(cluster.client.job(name))]


async def test_a_job_of_three_tasks_succeeds_and_each_step_is_told_once(cluster):
    ended = []

    def play():
        ended.append(
            cluster.iris(
                "run",
                "--name",
                "hello",
                "--replicas",
                3,
                "--",
                "sh",
                "-c",
                "echo hello $IRIS_TASK_INDEX",
            )
        )

    def mine(events):
        return [event for event in events if event["job"] == "/hello"]

    events = mine(
        await heard(cluster, "task.state.*", play, lambda heard: len(mine(heard)) >= 3 * len(WALK))
    )

    assert ended[0].code == 0, ended[0].err
    assert sorted(ended[0].out.splitlines()) == ["hello 0", "hello 1", "hello 2"]
    assert states(cluster, "/hello") == ["succeeded"] * 3
    assert sorted(cluster.iris("logs", "hello").out.splitlines()) == [
        "hello 0",
        "hello 1",
        "hello 2",
    ]
    for index in range(3):
        walk = [event for event in events if event["task"] == f"/hello/{index}"]
        assert [event["state"] for event in walk] == WALK
        assert [event["subject"] for event in walk] == [f"task.state.{state}" for state in WALK]
        assert {event["headers"]["Iris-Task"] for event in walk} == {f"/hello/{index}"}


def test_a_nonzero_exit_code_fails_the_job_and_its_last_lines_are_kept(cluster):
    ended = cluster.iris("run", "--name", "bad", "--", "sh", "-c", "echo because >&2; exit 3")
    task = cluster.client.task("/bad/0")

    assert ended.code == 3
    assert "because" in ended.err
    assert (task.state, task.attempts[0].exit_code, task.attempts[0].stderr_tail) == (
        "failed",
        3,
        "because",
    )
    assert cluster.client.job("/bad").state == "failed"


def test_a_command_that_is_not_there_fails_as_in_a_shell(cluster):
    assert cluster.iris("run", "--name", "typo", "--", "no-such-command").code == 3
    assert cluster.client.task("/typo/0").attempts[0].exit_code == 127


def test_a_failure_is_retried_as_often_as_was_allowed(cluster):
    ended = cluster.iris(
        "run",
        "--name",
        "again",
        "--max-retries-failure",
        2,
        "--",
        "sh",
        "-c",
        "exit $((2 - IRIS_ATTEMPT))",
    )
    task = cluster.client.task("/again/0")

    assert ended.code == 0, ended.err
    assert [(attempt.exit_code, attempt.state) for attempt in task.attempts] == [
        (2, "failed"),
        (1, "failed"),
        (0, "succeeded"),
    ]
    assert task.failure_count == 2


def test_cancel_ends_whole_process_groups_within_seconds(cluster, tmp_path):
    script = f"(trap '' TERM; echo $$ > {tmp_path}/child; exec sleep 1000) & echo $$ > {tmp_path}/parent; wait"
    job = cluster.submit("sh", "-c", script, name="long")
    pids = [
        until(
            lambda name=name: (tmp_path / name).exists() and (tmp_path / name).read_text().strip(),
            f"{name} runs",
        )
        for name in ("parent", "child")
    ]
    ended = cluster.iris("cancel", "long", "--reason", "enough")

    assert ended.code == 0, ended.err
    assert job.wait(60).state == "killed"
    assert states(cluster, "/long") == ["killed"]
    until(
        lambda: not any(psutil.pid_exists(int(pid)) for pid in pids), "all processes are gone", 60
    )


def test_a_task_submits_children_which_end_with_their_parent(cluster):
    script = "iris run -d --name child -- sleep 1000 && iris run --name quick -- echo from the child && sleep 1000"
    job = cluster.submit("sh", "-c", script, name="parent")
    until(lambda: "from the child" in cluster.iris("logs", "parent").out, "the child has run")
    until(lambda: cluster.client.job("/parent/child").state == "running", "the other child runs")
    tree = cluster.iris("tree", "parent", "-o", "name").out.split()
    job.cancel()

    assert tree[0] == "/parent"
    assert sorted(tree[1:]) == ["/parent/child", "/parent/quick"]
    assert job.wait(60).state == "killed"
    assert cluster.client.job("/parent/child").wait(60).state == "killed"
    assert cluster.client.job("/parent/quick").state == "succeeded"
    again = cluster.iris("run", "--parent", "parent", "--name", "late", "--", "true")
    assert (again.code, "late" in cluster.iris("ls", "-o", "name").out) == (11, False)


def test_a_directory_is_sent_along_and_is_where_the_task_starts(cluster, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "tool.sh").write_text(
        "#!/bin/sh\n#IRIS --name sent --port http -e WORD=hi\necho $WORD $(pwd) $IRIS_PORT_HTTP\n"
    )
    (tmp_path / "code" / "tool.sh").chmod(0o755)
    ended = cluster.iris(
        "run", "--workdir", tmp_path / "code", "--", str(tmp_path / "code" / "tool.sh")
    )

    assert ended.code == 0, ended.err
    assert cluster.client.job("/sent").view.spec.bundle
    word, directory, port = ended.out.split()
    assert (word, directory.startswith(str(cluster.data)), 0 < int(port) < 65536) == (
        "hi",
        True,
        True,
    )


def test_ctrl_c_detaches_and_the_job_goes_on(cluster, tmp_path):
    go = tmp_path / "go"
    script = f"echo here; until [ -e {go} ]; do sleep 0.05; done"
    command = [*IRIS, "run", "--name", "patient", "--", "sh", "-c", script]
    run = subprocess.Popen(
        command, env=cluster.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with run:
        assert run.stdout is not None
        assert run.stdout.readline() == "here\n"
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=60)
    go.touch()

    assert run.returncode == 130
    [job] = re.findall(r"come back: iris logs -f (j\d+) ", err)
    assert cluster.iris("wait", job).code == 0


def test_output_is_followed_while_it_is_written(cluster, tmp_path):
    gates = [tmp_path / "first", tmp_path / "second"]
    waits = [f"until [ -e {gate} ]; do sleep 0.05; done" for gate in gates]
    script = f"echo first; {waits[0]}; echo second; {waits[1]}; echo third >&2"
    job = cluster.submit("sh", "-c", script, name="talk")
    lines = cluster.client.logs("/talk/0")
    seen = []
    for gate in gates:
        seen.append(next(lines))
        gate.touch()
    seen += lines

    assert [(line.line, line.stream) for line in seen] == [
        ("first", "stdout"),
        ("second", "stdout"),
        ("third", "stderr"),
    ]
    assert job.wait(60).state == "succeeded"
    assert cluster.iris("logs", "talk/0", "--tail", "1", "--stream", "stdout").out == "second\n"
    assert cluster.iris("logs", "talk/0", "--grep", "^f").out == "first\n"


def test_the_same_idempotency_key_is_one_job_ever(cluster):
    names = {
        cluster.iris("run", "-d", "--idempotency-key", "k1", "--name", "once", "--", "true").out
        for _ in range(2)
    }
    cluster.client.job("/once").wait(60)
    third = cluster.iris("run", "-d", "--idempotency-key", "k1", "--name", "once", "--", "true")

    assert names == {"/once\n"}
    assert third.out == "/once\n"
    assert [job.name for job in cluster.client.jobs()].count("/once") == 1


def test_a_key_that_has_made_another_job_makes_none(cluster):
    first, again = (
        cluster.iris("run", "-d", "--idempotency-key", "k2", "--", "true") for _ in range(2)
    )
    other = cluster.iris("run", "-d", "--idempotency-key", "k2", "--", "false")

    assert first.out == again.out
    assert other.code == 11
    assert "differs in command" in other.err
    assert not other.out


def test_a_name_that_is_in_use_is_refused_and_what_to_do_is_an_option(cluster):
    first = cluster.submit("sleep", "1000", name="taken")
    refused = cluster.iris("run", "-d", "--name", "taken", "--", "true")
    kept = cluster.iris("run", "-d", "--name", "taken", "--if-exists", "keep", "--", "true")
    replaced = cluster.iris("run", "--name", "taken", "--if-exists", "replace", "--", "true")

    assert refused.code == 11
    assert kept.out == "/taken\n"
    assert replaced.code == 0, replaced.err
    assert cluster.client.job("/taken").id != first.id


def test_what_cannot_run_here_waits_and_says_why(cluster):
    job = cluster.submit("true", name="moon", constraints=["zone=moon"])
    until(
        lambda: job.refresh().pending_reason and job.view.pending_reason.code == "no_match",
        "the reason is known",
    )

    assert "zone" in cluster.iris("why", "moon").out
    assert "/moon" in cluster.iris("queue").out
    assert cluster.iris("plan", "--constraint", "zone=moon", "--", "true").code == 13
    assert cluster.iris("plan", "--", "true").code == 0
    job.cancel()


BAD = {
    "an unknown field": (b'{"name": "/x", "command": ["true"], "colour": "red"}', "/colour"),
    "a wrong type": (b'{"name": "/x", "command": ["true"], "replicas": "three"}', "/replicas"),
    "no replicas": (b'{"name": "/x", "command": ["true"], "replicas": 0}', "/replicas"),
    "too many replicas": (b'{"name": "/x", "command": ["true"], "replicas": 10001}', "/replicas"),
    "a name with ..": (b'{"name": "/../x", "command": ["true"]}', "/name"),
    "a name with *": (b'{"name": "/a*", "command": ["true"]}', "/name"),
    "a name with spaces": (b'{"name": "/a b", "command": ["true"]}', "/name"),
    "a name with a line break": (b'{"name": "/a\\nb", "command": ["true"]}', "/name"),
    "no command": (b'{"name": "/x", "command": []}', "/command"),
    "invalid JSON": (b'{"name": ', None),
    "ten megabytes": (b'{"name": "/x", "command": ["' + b"x" * 10_000_000 + b'"]}', None),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_with_its_place_and_nothing_is_stored(cluster, what):
    body, pointer = BAD[what]
    before = [job.id for job in cluster.client.jobs()]
    headers = {"Content-Type": "application/json", **cluster.headers}
    request = urllib.request.Request(
        f"{cluster.url}/v1/jobs", data=body, headers=headers, method="POST"
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=60)
    with contextlib.closing(caught.value) as refused:
        document = json.loads(refused.read())

    assert 400 <= refused.code < 500
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert document["detail"]
    if pointer is not None:
        assert pointer in [mistake["pointer"] for mistake in document["errors"]]
    assert [job.id for job in cluster.client.jobs()] == before


def test_a_gang_lands_on_one_slice_and_its_members_know_each_other(cluster):
    script = "echo $TPU_WORKER_ID $IRIS_WORKER_ID $JAX_NUM_PROCESSES"
    ended = cluster.iris("run", "--name", "gang", "--tpu", "v4-16", "--", "sh", "-c", script)
    members = sorted(line.split() for line in ended.out.splitlines())

    assert ended.code == 0, ended.err
    assert [(rank, size) for rank, _, size in members] == [("0", "2"), ("1", "2")]
    assert len({worker.rpartition("-w")[0] for _, worker, _ in members}) == 1


def test_a_listing_is_quick_and_in_every_form(cluster):
    cluster.submit("true", name="listed").wait(60)
    page = json.loads(cluster.iris("ls", "-o", "json").out)
    shown = json.loads(cluster.iris("show", "listed", "-o", "json").out)

    assert "/listed" in [item["name"] for item in page["items"]]
    assert (shown["state"], shown["task_counts"]) == ("succeeded", {"succeeded": 1})
    for words in (
        ("ls",),
        ("ls", "-o", "wide"),
        ("show", "listed"),
        ("show", "listed/0"),
        ("worker", "list"),
        ("top", "--once"),
    ):
        assert cluster.iris(*words).code == 0, words
    assert os.path.exists(cluster.data / "cluster.json")


def test_an_array_gives_each_task_its_value_and_runs_few_at_a_time(cluster, tmp_path):
    script = f"mkdir {tmp_path}/$IRIS_TASK; echo $IRIS_ARRAY_INDEX $(ls {tmp_path} | wc -l); rmdir {tmp_path}/$IRIS_TASK"
    script = script.replace("$IRIS_TASK", "$IRIS_TASK_INDEX")
    options = ("--name", "array", "--array", "0-15:4,20", "--max-parallel", 2, "--cpu", 0.1)
    ended = cluster.iris("run", *options, "--", "sh", "-c", script)
    assert ended.code == 0, ended.err
    lines = [tuple(map(int, line.split())) for line in ended.out.splitlines()]
    assert sorted(value for value, _ in lines) == [0, 4, 8, 12, 20]
    assert max(running for _, running in lines) <= 2


def test_each_line_of_a_file_is_the_value_of_a_task(cluster, tmp_path):
    (tmp_path / "lines.txt").write_text("first line\n\nthird\n")
    options = ("--name", "lines", "--each-line", tmp_path / "lines.txt", "--cpu", 0.1)
    ended = cluster.iris(
        "run", *options, "--", "sh", "-c", 'echo "$IRIS_TASK_INDEX=$IRIS_ARRAY_VALUE"'
    )
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == ["0=first line", "1=", "2=third"]


def test_a_preempted_task_saves_its_work_and_goes_on_with_it(cluster, tmp_path):
    """It gets its own signal, has its grace period to write a checkpoint, and finds it when it
    starts again.
    """
    script = f"""
        [ -e {tmp_path}/checkpoint ] && {{ echo resumed; exit 0; }}
        trap 'echo saved > {tmp_path}/checkpoint; exit 1' USR1
        touch {tmp_path}/began
        while :; do sleep 0.05; done
    """
    options = {"band": "batch", "stop_signal": "USR1", "grace": "60s", "cpu": cluster.host_cpu}
    training = cluster.client.run(["sh", "-c", script], name="training", **options)
    until((tmp_path / "began").exists, "it runs")
    cluster.preempt("urgent", tmp_path)
    assert training.wait(60).state == "succeeded"
    task = training.task(0)
    assert [attempt.state for attempt in task.attempts] == ["preempted", "succeeded"]
    assert (task.failure_count, task.preemption_count) == (0, 1)


@pytest.mark.parametrize(
    ("command", "options", "code"),
    [
        ("exit 7", (), 7),
        ("kill -9 $$", (), 137),
        ("exit $((3 + IRIS_TASK_INDEX))", ("--replicas", "3", "--keep-going"), 5),
        ("true", (), 0),
    ],
)
def test_a_run_ends_with_the_exit_code_of_its_command(cluster, command, options, code):
    words = ("run", "--cpu", "0.1", *options)
    assert cluster.iris(*words, "--exit-code", "--", "sh", "-c", command).code == code
    assert cluster.iris(*words, "--", "sh", "-c", command).code == (3 if code else 0)


def test_several_tasks_are_cancelled_by_their_indexes(cluster):
    words = ("run", "-d", "--cpu", "0.1", "--array", "0-4", "--keep-going", "--name", "ranged")
    cluster.iris(*words, "--", "sleep", "1000")
    done = cluster.iris("cancel", "ranged/0-1,3")
    assert (done.code, done.err) == (0, "".join(f"/ranged/{n} killed\n" for n in (0, 1, 3)))
    job = cluster.client.job("ranged")
    until(lambda: job.refresh().task_counts.get("killed") == 3, "three are killed")
    some = cluster.iris("cancel", "ranged/1-2,9")
    assert some.code == 10  # of the first failure
    assert "/ranged/2 killed" in some.err
    assert "/ranged has no task 9" in some.err
    assert cluster.iris("cancel", "ranged/5-2").code == 2
    assert cluster.iris("cancel", "nothing/0-2").code == 10
    assert job.cancel().state in ("running", "killed")
