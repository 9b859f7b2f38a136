"""A task submits children where tokens are wanted, with the token that it was given, and does
nothing else with it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from iris import Client
from iris.client.http.address import read_token
from iris.client.problems import NotAllowed, Problem
from tests.support.cluster import Cluster, cluster_on, until

PARENT = """
import json, os, subprocess, sys, urllib.request
from iris import Client
from iris.client.problems import NotAllowed

def refused(ask):
    try:
        ask()
    except NotAllowed as problem:
        return str(problem)
    return "allowed"

with Client() as client:
    client.run(["true"], name="by-sdk", cpu="0.1").wait()
    command = [sys.executable, "-m", "iris.cli", "run", "--name", "by-cli", "--cpu", "0.1", "--", "true"]
    subprocess.run(command, check=True)
    bearer = {"Authorization": "Bearer " + os.environ["IRIS_TOKEN"], "Content-Type": "application/json"}
    body = json.dumps({"name": "/parent/by-http", "command": ["true"]}).encode()
    url = os.environ["IRIS_GATEWAY_URL"] + "/v1/jobs"
    with urllib.request.urlopen(urllib.request.Request(url, body, bearer)) as answer:
        submitted = json.load(answer)
    client.job("/parent/by-http").wait()
    print(json.dumps({
        "user": submitted["user"],
        "children": sorted(child.job.name for child in client.tree("/parent").children),
        "token": open(os.environ["IRIS_TOKEN_FILE"]).read(),
        "other": refused(lambda: client.job("/other")),
        "logs": refused(lambda: list(client.logs("/other"))),
        "cancel": refused(lambda: client.cancel("/other")),
        "root": refused(lambda: client.run(["true"], name="/elsewhere")),
        "workers": refused(lambda: list(client.workers())),
        "deployments": refused(lambda: list(client.deployments())),
    }))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("tokens") / "iris", "--workers", "1") as made:
        yield made


def test_nobody_is_let_in_without_the_token_that_the_clusters_owner_finds(cluster: Cluster):
    with Client(cluster.url, token="") as nobody, pytest.raises(Problem, match="bearer token"):
        nobody.job("/parent")
    done = cluster.iris("run", "--cpu", "0.1", "--", "echo", "hello")
    assert (done.code, done.out) == (0, "hello\n"), done.err
    with Client(cluster.url, token=read_token(cluster.file["token_file"])) as client:
        assert client.get("/v1/quotas/ann", dict)["user"] == "ann"
    link = Request(cluster.iris("open").out.strip(), headers={"Sec-Fetch-Site": "none"})
    with urlopen(link) as page:  # the cookie is not kept, so the redirect leads to the form
        assert page.url == f"{cluster.url}/login"
    with pytest.raises(HTTPError, match="401"):
        urlopen(link)


def test_a_task_submits_children_with_its_token_and_nothing_else(cluster: Cluster):
    with Client(cluster.url, token=read_token(cluster.file["token_file"])) as ann:
        ann.run(["true"], name="/other", user="ann", cpu="0.1").wait(timeout=60)
        parent = ann.run([sys.executable, "-c", PARENT], name="/parent", user="ann", cpu="0.1")
        parent.wait(timeout=120)
        output = [line.line for line in ann.logs("/parent", {"stream": "stdout"}, follow=False)]
        assert parent.state == "succeeded", "\n".join(output)
    said = json.loads(output[-1])
    assert said.pop("children") == ["/parent/by-cli", "/parent/by-http", "/parent/by-sdk"]
    token, user = said.pop("token"), said.pop("user")
    assert user == "ann"
    assert {name: "token of a task" in words for name, words in said.items()} == dict.fromkeys(
        said, True
    )
    with Client(cluster.url, token=token) as late, pytest.raises(NotAllowed, match="has ended"):
        late.job("/parent")
    logs = [*Path(cluster.data, "log").iterdir(), *Path(cluster.data, "nats").glob("*.log")]
    assert len(logs) > 5
    assert all(token not in log.read_text(errors="replace") for log in logs)


AGAIN = """
import os
from iris import Client

if os.environ["IRIS_ATTEMPT"] == "0":
    with Client() as client:
        client.requeue(os.environ["IRIS_TASK"], "checkpoint")
"""


def test_a_task_requeues_itself_and_its_exit_0_ends_nothing(cluster: Cluster):
    with Client(cluster.url, token=read_token(cluster.file["token_file"])) as ann:
        ann.run([sys.executable, "-c", AGAIN], name="/again", user="ann", cpu="0.1").wait(
            timeout=120
        )
        task = ann.task("/again/0")
    assert (task.state, task.requeue_count, len(task.attempts)) == ("succeeded", 1, 2)
    first, said = task.attempts[0], f"requeued by task {task.id} of ann: checkpoint"
    assert (first.cause, first.error) == ("requeued", said)


def test_a_running_job_is_requeued_on_the_command_line(cluster: Cluster):
    cluster.iris(
        "run",
        "-d",
        "--name",
        "long",
        "--cpu",
        "0.1",
        "--",
        "sh",
        "-c",
        "[ $IRIS_ATTEMPT = 1 ] || sleep 600",
    )
    with Client(cluster.url, token=read_token(cluster.file["token_file"])) as ann:
        until(lambda: ann.task("/long/0").state == "running", "the task runs")
        done = cluster.iris("requeue", "long")
        assert (done.code, done.err) == (0, "/long requeued\n")
        assert ann.job("long").wait(timeout=120).state == "succeeded"
    refused = cluster.iris("requeue", "long/0")
    assert (refused.code, "nothing of it runs" in refused.err) == (11, True), refused.err
