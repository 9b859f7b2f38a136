"""docker-compose.yml as it stands, brought up on a Docker daemon, and what it survives."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator

import pytest

from drawings.dashboards import panels
from iris import Client
from iris.cluster.settings import KEPT_SERVICES
from tests.house.repository import ROOT
from tests.support.cluster import until
from tests.support.docker import Docker
from tests.support.guide import blocks
from tests.support.prometheus import Prometheus
from tests.support.stack import Stack, stack_of

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

WAIT_S = 120
"""Nothing here is about speed: conditions are waited for, on a machine that may have much else to
do.
"""
OVER = "/data/over"
"""The file of a worker's container with which tasks end."""
RECOVERY = ROOT / "docs" / "disaster-recovery.md"
SERVICES = {*KEPT_SERVICES, "worker"}
WITH_TOKENS = ("gateway-1", "gateway-2", "proxy-1", "proxy-2")


@pytest.fixture
def stack(
    docker: Docker, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    with stack_of(docker, base_image, tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    """With the token that deploy/docker/README.md says how to print."""
    token = stack.compose("run", "--rm", "--entrypoint", "cat", "cli", "/etc/iris/token").strip()
    with Client(stack.url, token=token, retry_for_s=WAIT_S) as made:
        yield made


def the_command_line_runs_a_job_and_shows_its_output(stack: Stack):
    words = (
        "run",
        "--name",
        "hello",
        "--replicas",
        "2",
        "--cpu",
        "0.1",
        "--",
        "echo",
        "hello from a container",
    )
    assert stack.compose("run", "--rm", "cli", *words).count("hello from a container") == 2


def nobody_comes_in_without_a_token(stack: Stack):
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{stack.url}/v1/jobs", timeout=10)


def a_token_that_is_made_later_is_let_in(stack: Stack):
    """By the two commands of deploy/docker/README.md."""
    words = (
        "run",
        "--rm",
        "--entrypoint",
        "iris",
        "init",
        "admin",
        "token",
        "add",
        "ann",
        "--file",
        "/keys/tokens",
    )
    token = stack.compose(*words).strip()
    stack.compose("run", "--rm", "init")
    asked = urllib.request.Request(
        f"{stack.url}/v1/jobs", headers={"Authorization": f"Bearer {token}"}
    )

    def answered() -> bool:
        try:
            return bool(urllib.request.urlopen(asked, timeout=10).status == 200)
        except urllib.error.HTTPError:
            return False

    until(answered, "the gateway has read the new token", WAIT_S)


def each_service_has_its_own_secrets_and_may_change_nothing(stack: Stack):
    ours = [
        name for name in stack.services if stack.file["services"][name]["image"] == "iris:local"
    ]
    seeds = {}
    for name in sorted({*ours} - {"init"}):
        lines = stack.run_in(
            name, "sh", "-c", "id -u; ls /etc/iris; cat /etc/iris/nkey.seed"
        ).split()
        user, *files, seeds[name] = lines
        assert (user, files) == (
            "10001",
            ["nkey.seed", *(["tokens"] if name in WITH_TOKENS else [])],
        )
    pairs = Counter(name.partition("-")[0] for name in seeds if not name.startswith("worker-"))
    shared = sum(count - 1 for count in pairs.values())
    assert len(set(seeds.values())) == len(seeds) - shared, "replicas share a key, nobody else does"
    for name in stack.services:
        assert (
            stack.inspect(name, "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}}")
            == "true [ALL]"
        ), name


def no_service_compiles_what_it_imports(stack: Stack):
    program = (
        "import os, sys, iris_state.service.service, iris_gateway.service; print('compiled anew:', "
        "*(name for name, module in sys.modules.items() if (c := getattr(module, '__cached__', "
        "None)) and not os.path.exists(c)))"
    )
    assert stack.run_in("gateway-1", "python", "-c", program).strip() == "compiled anew:"


def a_deployment_is_served_at_the_same_port(stack: Stack, client: Client):
    place = ROOT / "examples" / "serve"
    deployment = client.deploy(
        ["python", "server.py"], "chat", workdir=place, cpu=0.1, start_timeout="60s"
    )
    deployment.wait_ready(WAIT_S)
    with urllib.request.urlopen(f"{stack.url}/d/chat/healthz", timeout=30) as answer:
        assert json.load(answer) == {"status": "ok"}
    deployment.delete()


def a_killed_server_and_a_killed_leader_lose_nothing(stack: Stack, client: Client) -> list[str]:
    """Returns their names."""
    before = client.run(["echo", "before"], name="before", cpu=0.1, replicas=4)
    before.wait(WAIT_S)
    over = client.run(
        ["sh", "-c", f"until [ -e {OVER} ]; do sleep 0.1; done"], name="over", cpu=0.1, replicas=4
    )
    until(lambda: all(task.state == "running" for task in over.tasks()), "all of them run", WAIT_S)
    killed = [
        stack.server_that_leads("IRIS_JOURNAL"),
        stack.until(stack.leader, "one state replica leads"),
    ]
    starts = [stack.starts(name) for name in killed]
    epoch = stack.metric(killed[1], "iris_epoch")
    for name in killed:
        stack.docker.kill(stack.container(name))
    after = client.run(["echo", "after"], name="after", cpu=0.1, replicas=4)
    stack.until(lambda: stack.metric(stack.leader(), "iris_epoch") > epoch, "one has taken over")
    for worker in ("worker-1", "worker-2"):
        stack.run_in(worker, "touch", OVER)
    for job in (before, over, after):
        job.wait(WAIT_S)
        job.raise_for_state()
    assert [len(task.attempts) for task in over.tasks()] == [1] * 4, "what ran has run on"
    for job, line in ((before, "before"), (after, "after")):
        assert [one.line for one in job.logs()] == [line] * 4
    stack.until(
        lambda: [stack.starts(name) for name in killed] == [n + 1 for n in starts],
        "both have started again",
    )
    stack.wait_ready()
    return killed


def prometheus_reaches_every_service_and_answers_every_panel(stack: Stack):
    prometheus = Prometheus(stack.prometheus)
    scraped = [name for name in stack.services if name.partition("-")[0] in SERVICES]
    until(
        lambda: list(prometheus.targets().values()) == ["up"] * len(scraped),
        "every target is scraped",
        WAIT_S,
    )
    for panel in panels():
        for query, _ in panel.queries:
            prometheus.query(query.replace("$__rate_interval", "2m"))


def a_lost_server_is_replaced(stack: Stack, client: Client):
    """By the commands of docs/disaster-recovery.md#replace-a-nats-server."""
    stack.until(stack.copies_agree, "no other server lacks a copy")
    [row] = [line for line in RECOVERY.read_text().splitlines() if line.startswith("| Compose |")]
    stack.script("\n".join(re.findall(r"`(.*?)`", row)))
    stack.wait_ready()
    stack.until(stack.copies_agree, "it has fetched all its copies")
    client.run(["true"], cpu=0.1).wait(WAIT_S)


def docker_finds_the_others_healthy(stack: Stack, stopped: list[str]):
    """Its first look is after 30 s, which have passed for them."""
    others = stack.services - {"init", *stopped}
    stack.until(
        lambda: all("(healthy)" in stack.health().get(name, "") for name in others),
        "they are healthy",
    )


def a_backup_is_restored_onto_empty_servers(stack: Stack, client: Client):
    """By the command of deploy/docker/README.md, and the block of
    docs/disaster-recovery.md#restore-with-compose.
    """
    kept = client.run(["sleep", "600"], name="kept", cpu=0.1)
    until(lambda: kept.refresh().state == "running", "it runs", WAIT_S)
    [backup] = re.findall(
        r"`(docker compose run [^`]* admin backup [^`]*)`",
        (ROOT / "deploy/docker/README.md").read_text(),
    )
    assert " jobs and " in stack.script(backup)
    client.run(["sleep", "600"], name="younger", cpu=0.1)
    [restore] = [block.script for block in blocks(RECOVERY) if "docker compose" in block.text]
    assert "restored: " in stack.script(restore)
    stack.wait_ready()
    client.run(["true"], cpu=0.1).wait(WAIT_S)
    assert [len(task.attempts) for task in kept.tasks()] == [1], "its task has run on"
    assert kept.refresh().state == "running"
    assert "/younger" not in {job.name for job in client.jobs()}
    kept.cancel()
    kept.wait(WAIT_S)


def test_a_compose_stack_runs_jobs_and_survives_kills(stack: Stack, client: Client):
    """One test, because the stack takes a minute to come up, and tests of one module may run in two
    processes.
    """
    the_command_line_runs_a_job_and_shows_its_output(stack)
    nobody_comes_in_without_a_token(stack)
    a_token_that_is_made_later_is_let_in(stack)
    each_service_has_its_own_secrets_and_may_change_nothing(stack)
    no_service_compiles_what_it_imports(stack)
    a_deployment_is_served_at_the_same_port(stack, client)
    killed = a_killed_server_and_a_killed_leader_lose_nothing(stack, client)
    prometheus_reaches_every_service_and_answers_every_panel(stack)
    a_lost_server_is_replaced(stack, client)
    docker_finds_the_others_healthy(stack, [*killed, "nats-2"])
    a_backup_is_restored_onto_empty_servers(stack, client)
