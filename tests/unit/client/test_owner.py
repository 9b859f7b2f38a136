"""Whose a new job is, and which name an idempotency key gives it."""

import getpass
from collections.abc import Iterator

import pytest

from iris import Client
from tests.support.answers import Answers, Asked, Said, answering, job_view


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """It knows tokens as ``USER-ANYTHING``."""
    for name in ("IRIS_TOKEN", "IRIS_TOKEN_FILE", "IRIS_JOB", "IRIS_DATA"):
        monkeypatch.delenv(name, raising=False)

    def answer(asked: Asked) -> Said:
        if asked.path == "/v1/whoami":
            user = asked.headers["Authorization"].removeprefix("Bearer ").partition("-")[0]
            return Said(200, {"user": user, "role": "user"})
        return Said(201, job_view())

    with answering(answer) as answers:
        yield answers


def submitted(gateway: Answers, token: str, **options: str) -> tuple[str, str]:
    """Owner and name of a job as it is submitted with this token; empty: without one."""
    with Client(gateway.url, token=token) as client:
        client.run(["true"], **options)  # type: ignore[arg-type]
    sent = gateway.requests[-1].json
    return sent.get("user", ""), sent["name"]


def test_a_job_is_the_tokens_users_however_the_token_was_given(
    gateway: Answers, monkeypatch: pytest.MonkeyPatch
):
    assert submitted(gateway, "ann-1", name="a") == ("", "/a")
    assert submitted(gateway, "", name="a") == (getpass.getuser(), "/a")
    assert submitted(gateway, "ann-1", name="a", user="bob") == ("bob", "/a")
    monkeypatch.setenv("IRIS_JOB", "/parent")
    assert submitted(gateway, "", name="a") == ("", "/parent/a")


def test_a_deployment_is_the_tokens_users_too(gateway: Answers):
    gateway.answer = lambda _: Said(403, {})
    owners = []
    for token in ("ann-1", ""):
        with (
            Client(gateway.url, token=token, retry_for_s=0) as client,
            pytest.raises(Exception, match="403"),
        ):
            client.deploy(["serve"], "chat")
        owners.append(gateway.requests[-1].json.get("user", ""))
    assert owners == ["", getpass.getuser()]


def test_a_renewed_token_gives_an_idempotency_key_the_same_name(gateway: Answers):
    first, renewed, other = (
        submitted(gateway, token, idempotency_key="k") for token in ("ann-1", "ann-2", "bob-1")
    )
    assert first == renewed
    assert other != first
    assert submitted(gateway, "bob-1", idempotency_key="k", user="ann")[1] == first[1]


def test_the_caller_is_asked_for_only_when_a_name_is_generated(gateway: Answers):
    submitted(gateway, "ann-1")
    submitted(gateway, "ann-1", name="a", idempotency_key="k")
    submitted(gateway, "", idempotency_key="k")
    submitted(gateway, "iristask_x", idempotency_key="k")
    assert {asked.path for asked in gateway.requests} == {"/v1/jobs"}
