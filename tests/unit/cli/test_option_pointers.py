"""Refused fields are named by the options that gave them."""

import click
import pytest

from iris.cli.parsing.option_pointers import option_of
from iris.cli.root import root
from tests.support.answers import answering, problem


def command(*names):
    found = root
    for name in names:
        found = found.get_command(click.Context(found), name)
    return found


@pytest.mark.parametrize(
    ("pointer", "option"),
    [
        ("/replicas", "--replicas"),
        ("/resources/cpu_millis", "--cpu"),
        ("/resources/memory_bytes", "--memory"),
        ("/resources/device/variant", "--gpu"),
        ("/timeout_s", "--timeout"),
        ("/scheduling_timeout_s", "--scheduling-timeout"),
        ("/env/A=B", "--env"),
        ("/labels/x", "--label"),
        ("/ports/0", "--port"),
        ("/constraints/0/value", "--constraint"),
        ("/coscheduling/group_by", "--group-by"),
        ("/coscheduling/group_by/1/key", "--group-by"),
        ("/environment/python", "--python"),
        ("/max_task_failures", "--max-task-failures"),
        ("/command/0", "COMMAND"),
        ("", ""),
    ],
)
def test_fields_of_a_job_are_named_by_the_options_of_run(pointer, option):
    assert option_of(pointer, command("run")) == option


@pytest.mark.parametrize(
    ("pointer", "option"),
    [
        ("/scaling/window_s", "--scale-window"),
        ("/scaling/cooldown_s", "--cooldown"),
        ("/scaling/minimum", "--min"),
        ("/update/progress_deadline_s", "--progress-deadline"),
        ("/update/max_surge", "--max-surge"),
        ("/template/probe/interval_s", "--probe-interval"),
        ("/template/probe/start_timeout_s", "--start-timeout"),
        ("/template/resources/cpu_millis", "--cpu"),
        ("/settle_s", "--settle"),
        ("/name", "NAME"),
    ],
)
def test_fields_of_a_deployment_are_named_by_the_options_of_create(pointer, option):
    assert option_of(pointer, command("deploy", "create")) == option


def test_a_refusal_names_the_option_that_was_given(iris):
    mistake = {
        "pointer": "/scaling/window_s",
        "message": "5 s is shorter than the cooldown, which is 15 s",
    }
    with answering(lambda _: problem(422, "invalid", "one mistake", errors=[mistake])) as server:
        words = (
            "--url",
            server.url,
            "deploy",
            "create",
            "chat",
            "--scale-window",
            "5s",
            "--",
            "serve",
        )
        _, _, err = iris(*words)
    assert (
        err.splitlines()[0]
        == "error: --scale-window: 5 s is shorter than the cooldown, which is 15 s"
    )


@pytest.mark.parametrize("field", ["variant", "count"])
@pytest.mark.parametrize("given", [("--tpu", "v5litepod-17"), ("--gpu", "H100x2000")])
def test_a_refused_device_names_the_option_that_was_given(iris, field, given):
    mistake = {"pointer": f"/resources/device/{field}", "message": "there is none"}
    with answering(lambda _: problem(422, "invalid", "one mistake", errors=[mistake])) as server:
        _, _, err = iris("--url", server.url, "run", *given, "--", "true")
    assert err.splitlines()[0] == f"error: {given[0]}: there is none"
