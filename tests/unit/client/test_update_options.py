"""What `Client.update` and `iris update` send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from iris import Client, InvalidOption
from iris.cli import main
from tests.support.answers import Answers, Said, answering, job_view


@pytest.fixture
def gateway() -> Iterator[Answers]:
    with answering(lambda _: Said(200, job_view())) as answers:
        yield answers


def by_sdk(gateway: Answers, **options: Any) -> Any:
    with Client(gateway.url) as client:
        client.update("/train", **options)
    return gateway.requests[-1].json


def by_command(gateway: Answers, *words: str) -> Any:
    assert main(["update", "/train", "--url", gateway.url, *words]) == 0
    return gateway.requests[-1].json


@pytest.mark.parametrize(
    ("options", "words", "patch"),
    [
        ({"band": "batch"}, ("--band", "batch"), {"band": "batch"}),
        ({"timeout": "2h"}, ("--timeout", "2h"), {"timeout_s": 7200}),
        ({"timeout": None}, ("--timeout", "none"), {"timeout_s": None}),
        ({"max_parallel": 3}, ("--max-parallel", "3"), {"max_parallel": 3}),
        ({"max_parallel": None}, ("--max-parallel", "all"), {"max_parallel": None}),
        ({"max_requeues": 0}, ("--max-requeues", "0"), {"max_requeues": 0}),
        (
            {"labels": {"team": "a=b", "old": None}},
            ("--label", "team=a=b", "--drop-label", "old"),
            {"labels": {"team": "a=b", "old": None}},
        ),
    ],
)
def test_the_sdk_and_the_command_send_the_same_patch(
    gateway: Answers, options: dict[str, Any], words: tuple[str, ...], patch: dict[str, Any]
) -> None:
    assert by_sdk(gateway, **options) == patch
    assert by_command(gateway, *words) == patch
    assert (gateway.requests[-1].method, gateway.requests[-1].path) == (
        "PATCH",
        "/v1/jobs/%2Ftrain",
    )


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_parallel": "few"}, InvalidOption),
        ({"timeout": "soon"}, InvalidOption),
        ({"command": ["true"]}, TypeError),
    ],
)
def test_a_change_that_cannot_be_meant_is_refused_here(
    gateway: Answers, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        by_sdk(gateway, **options)
    assert gateway.requests == []


def test_an_update_without_a_change_says_what_could_be_one(
    gateway: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["update", "/train", "--url", gateway.url]) == 2
    assert "--timeout" in capsys.readouterr().err
