"""Mails of Slurm become rules of jobs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from iris import Client
from iris.client.problems import Unreachable
from iris_slurm.mail import mail_words, notify_rules
from iris_slurm.values import NotHonoured


def client(*targets: tuple[str, str], error: Exception | None = None) -> Client:
    def notify_targets() -> list[Any]:
        if error is not None:
            raise error
        return [SimpleNamespace(name=name, smtp=smtp or None) for name, smtp in targets]

    return cast(Client, SimpleNamespace(notify_targets=notify_targets))


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ("END", ["ended"]),
        ("BEGIN,END,FAIL", ["started", "ended", "failed"]),
        ("all", ["started", "ended", "failed"]),
        ("FAIL,TIME_LIMIT_80", ["failed", "time_80"]),
        ("NONE", []),
        ("", []),
    ],
)
def test_types_are_words_of_a_rule(types: str, words: list[str]) -> None:
    assert mail_words(types, has_limit=True, warn=pytest.fail) == words


def test_what_nothing_is_sent_of_is_said() -> None:
    said: list[str] = []
    assert mail_words("END,REQUEUE,TIME_LIMIT_50", has_limit=False, warn=said.append) == ["ended"]
    assert [text.partition(" ")[0] for text in said] == [
        "--mail-type=REQUEUE",
        "--mail-type=TIME_LIMIT_50",
    ]
    with pytest.raises(NotHonoured, match="there is no type SOMETIMES"):
        mail_words("SOMETIMES", has_limit=True, warn=said.append)


@pytest.mark.parametrize(
    ("user", "rules"),
    [
        (None, ["mail:ended"]),
        ("ann@lab.example", ["mine:ended"]),
        ("ops", ["ops:ended"]),
    ],
)
def test_a_target_is_meant_by_its_address_or_name(user: str | None, rules: list[str]) -> None:
    known = client(("mail", "x@lab.example"), ("mine", "ann@lab.example"), ("ops", ""))
    assert notify_rules(known, user, ["ended"], pytest.fail) == rules


def test_without_a_target_the_job_runs_and_the_remedy_is_said() -> None:
    said: list[str] = []
    assert notify_rules(client(), "ann@lab.example", ["ended"], said.append) == []
    assert said[0].endswith("iris notify target add mail --smtp ann@lab.example")
    gone = client(error=Unreachable("nobody answers"))
    assert notify_rules(gone, None, ["ended"], said.append) == []
    assert said[1] == "--mail-type has no effect: nobody answers"
