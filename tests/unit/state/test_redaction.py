"""Secrets in a job's environment are shown to nobody and passed to its tasks.
docs/design/reliability.md#security.
"""

import json

import pytest

from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_state.views.redaction import is_secret
from tests.support import first_fit
from tests.support.world import Host, World

ENV = {"HF_TOKEN": "hf_very_secret", "EPOCHS": "3"}
TRAIN = JobSpec(name="/train", command=("true",), env=ENV)


@pytest.fixture
def world() -> World:
    world = World()
    world.submit(TRAIN)
    return world


@pytest.mark.parametrize(
    ("view", "arguments"), [("job", {"job": "/train"}), ("jobs", {}), ("tree", {"job": "/train"})]
)
def test_no_view_of_a_job_shows_a_secret(world, view, arguments):
    shown = json.dumps(world.query(view, **arguments))
    assert "HF_TOKEN" in shown
    assert "very_secret" not in shown


def test_what_is_not_secret_is_shown(world):
    assert world.query("job", job="/train")["spec"]["env"] == {"HF_TOKEN": "***", "EPOCHS": "3"}


def test_a_specification_that_was_read_is_not_run_with_its_masks(world):
    read = world.query("job", job="/train")["spec"]["env"]
    answer = world.submit(JobSpec(name="/again", command=("true",), env=read))
    [mistake] = json.loads(answer.body)["errors"]
    assert (answer.status, mistake["pointer"], mistake["code"]) == (
        "invalid",
        "/env/HF_TOKEN",
        "masked",
    )


def test_the_answer_to_a_submission_shows_no_secret(world):
    assert b"very_secret" not in world.submit(TRAIN, if_exists="keep").body


def test_a_task_is_given_the_secret_itself(world):
    world.register(Host("w0", Amount(1000, 0, 0, 0), {}))
    world.plan(first_fit.plan(world.snapshot()))
    (order,) = world.hosts["w0"].orders
    assert order.templates[0].env == ENV


def test_a_rerun_keeps_the_secret(world):
    world.cancel("/train")
    world.rerun("/train")
    world.register(Host("w0", Amount(1000, 0, 0, 0), {}))
    world.plan(first_fit.plan(world.snapshot()))
    (order,) = world.hosts["w0"].orders
    assert order.templates[0].env == ENV


@pytest.mark.parametrize(
    "key",
    [
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "dbPassword",
        "API_KEY",
        "apikey",
        "GITHUBTOKEN",
        "SSH_AUTH",
    ],
)
def test_a_key_looks_secret(key):
    assert is_secret(key)


@pytest.mark.parametrize(
    "key", ["PATH", "PWD", "MAX_TOKENS", "TOKENIZERS_PARALLELISM", "AUTHOR", "MONKEY", "KEYBOARD"]
)
def test_a_key_does_not_look_secret(key):
    assert not is_secret(key)
