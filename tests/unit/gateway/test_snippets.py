"""A job as ``iris run`` and as Python: read back, each makes the same specification."""

import ast
import shlex
from typing import Any

import pytest

from iris.cli.commands.run.run import read_options, run
from iris.client.options.jobs import job_spec
from iris_core.spec.exit_rules import ExitRule
from iris_core.spec.jobs import (
    Constraint,
    Coscheduling,
    Environment,
    JobSpec,
    Level,
    NoticePolicy,
    StopPolicy,
)
from iris_core.spec.resources import Device, ResourceRequest
from iris_core.states import ConstraintOp
from iris_gateway.dashboard.snippets import cli_of, options_of, sdk_of

C = Constraint
SPECS = [
    JobSpec(name="/warm", command=("python", "train.py"), preload=("torch", "numpy"), user="ada"),
    JobSpec(name="/a", command=("true",), user="ada"),
    JobSpec(
        name="/team/train",
        command=("python", "train.py", "--name", "it's a 'test'", "$HOME"),
        env={"LR": "0.1", "TEXT": "two words"},
        replicas=300,
        resources=ResourceRequest(500, 4 << 30, 1_000_001, Device("gpu", "H100", 8), 1500),
        constraints=(
            C("zone", value="eu-1"),
            C("rack", ConstraintOp.NE, value="7"),
            C("cores", ConstraintOp.GE, value=64),
            C("speed", ConstraintOp.LT, value=1.5),
            C("zone", ConstraintOp.IN, values=("eu-1", "eu-2", 3)),
            C("ssd", ConstraintOp.EXISTS),
            C("taint:spot", ConstraintOp.NOT_EXISTS),
            C("pool", value="", mode="preferred"),
        ),
        band="batch",
        max_retries_failure=3,
        max_retries_preemption=0,
        max_task_failures=10,
        scheduling_timeout_s=90.5,
        timeout_s=7200.0,
        ports=("http", "grpc"),
        labels={"team": "vision"},
        user="ada",
        environment=Environment(setup="pip install -e .", python="3.12"),
    ),
    JobSpec(
        name="/array",
        command=("true",),
        replicas=5,
        array="0-15:4,20",
        max_parallel=2,
        user="ada",
        on_exit=(ExitRule((75, "64-70"), "requeue"), ExitRule(("SIGBUS",), "fail")),
        max_requeues=3,
        backoff_s=10.0,
        stop=StopPolicy(signal="SIGINT", grace_s=60.0),
        notice=NoticePolicy(signal="SIGUSR2", before_s=90.0),
        timeout_s=600.0,
        on_timeout="requeue",
        protect_s=300.0,
        max_backoff_s=60.0,
    ),
    JobSpec(
        name="/llama",
        command=("sh", "-c", "echo a; echo b"),
        replicas=4,
        resources=ResourceRequest(1000, 0, 0, Device("tpu", "v5litepod-16", 4)),
        coscheduling=Coscheduling("tpu-name", "leader"),
        user="ada",
    ),
    JobSpec(
        name="/slices",
        command=("x",),
        replicas=8,
        resources=ResourceRequest(1000, 0, 0, Device("tpu", "v5litepod-16", 4)),
        coscheduling=Coscheduling("tpu-name", slices=2, within="zone"),
        user="ada",
    ),
    JobSpec(
        name="/small-slices",
        command=("x",),
        replicas=3,
        resources=ResourceRequest(1000, 0, 0, Device("tpu", "v5litepod-8", 8)),
        coscheduling=Coscheduling("tpu-name", slices=3),
        user="ada",
    ),
    JobSpec(
        name="/racks",
        command=("x",),
        replicas=4,
        coscheduling=Coscheduling("rack", slices=2),
        user="ada",
    ),
    JobSpec(
        name="/levels",
        command=("x",),
        replicas=4,
        coscheduling=Coscheduling((Level("rack"), Level("block", "preferred")), slices=2),
        user="ada",
    ),
    JobSpec(
        name="/near",
        command=("x",),
        replicas=4,
        coscheduling=Coscheduling((Level("rack", "preferred"),)),
        user="ada",
    ),
    JobSpec(
        name="/rack",
        command=("x",),
        replicas=2,
        resources=ResourceRequest(1000, 0, 0, Device("gpu", "auto", 2)),
        coscheduling=Coscheduling("rack"),
        user="ada",
    ),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_the_command_line_makes_the_same_job(spec: JobSpec):
    words = shlex.split(cli_of(spec).replace("\\\n", " "))
    assert words[:2] == ["iris", "run"]
    given = run.make_context("run", words[2:]).params
    assert job_spec(given["command"], read_options(given), {}) == spec


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_the_program_makes_the_same_job(spec: JobSpec):
    (call,) = (
        node
        for node in ast.walk(ast.parse(sdk_of(spec)))
        if isinstance(node, ast.Call) and node.args
    )
    options: Any = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    assert job_spec(ast.literal_eval(call.args[0]), options, {}) == spec


def test_a_secret_is_taken_from_the_environment_of_whoever_runs_it():
    spec = JobSpec(name="/a", command=("true",), env={"HF_TOKEN": "***", "LR": "1"}, user="ada")
    assert "-e HF_TOKEN -e LR=1 " in cli_of(spec)
    assert "env={'HF_TOKEN': os.environ['HF_TOKEN'], 'LR': '1'}" in sdk_of(spec)
    assert sdk_of(spec).startswith("import os\n")


def test_code_that_was_sent_along_is_sent_along_again():
    spec = JobSpec(name="/a", command=("./train.sh",), bundle="0" * 64, user="ada")
    assert cli_of(spec).startswith("iris run --workdir . --name /a")
    assert 'workdir="."' in sdk_of(spec)
    assert "bundle" not in options_of(spec)
