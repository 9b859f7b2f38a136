"""`iris queue hold` and `iris queue release`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.answers import Answers, Asked, Said, answering, job_view

HOLD = {
    "id": "h1",
    "user": None,
    "band": "batch",
    "label": None,
    "reason": "repairs",
    "by": {
        "name": "root",
        "user": "root",
        "role": "admin",
        "token": None,
        "address": None,
        "task": None,
    },
    "since": None,
    "jobs": 2,
    "tasks": 5,
}


def gated(number: int) -> dict[str, Any]:
    """A job that waits for another one."""
    reason = {"code": "dependency", "message": "waits for /a (j1) to succeed", "facts": {}}
    named = {"job": f"/b{number}", "job_id": f"j{number}", "user": "mia", "band": "batch"}
    return {**named, "submitted_at": None, "tasks": number - 1, "pending_reason": reason}


@pytest.fixture
def gateway() -> Iterator[Answers]:
    def answer(asked: Asked) -> Said:
        if asked.method == "GET" and asked.path.startswith("/v1/queue/holds"):
            return Said(200, {"items": [HOLD], "next_cursor": None})
        if asked.path.startswith("/v1/queue/gated"):
            return Said(200, {"items": [gated(n) for n in range(2, 14)], "next_cursor": None})
        return (
            Said(201, HOLD)
            if asked.method == "POST"
            else Said(200, {"items": [], "next_cursor": None})
        )

    with answering(answer) as answers:
        yield answers


def test_a_hold_says_what_it_holds(iris: Any, gateway: Answers) -> None:
    code, _, err = iris(
        "queue", "hold", "--band", "batch", "--reason", "repairs", "--url", gateway.url
    )
    assert (code, err) == (0, "held: band batch by root: repairs (2 jobs, 5 pending)\n")
    assert gateway.requests[-1].json == {"band": "batch", "reason": "repairs"}


def test_the_queue_tells_what_is_held(iris: Any, gateway: Answers) -> None:
    code, _, err = iris("queue", "--url", gateway.url)
    assert (code, err.splitlines()[0]) == (
        0,
        "held: band batch by root: repairs (2 jobs, 5 pending)",
    )


def test_the_queue_shows_sides_and_steps_where_it_is_wide(iris: Any, gateway: Answers) -> None:
    row = {"position": 0, "task": "/a/0", "job": "/a", "user": "ada", "band": "batch", "depth": 1}
    row |= {"root_submitted_at": None, "submitted_at": None, "sequence": 1, "id": "j1/0"}
    row |= {"job_id": "j1", "tasks": 3, "pending_reason": None, "side": "near", "step": [-1, 2]}
    empty = {"items": [], "next_cursor": None}

    def answer(asked: Asked) -> Said:
        is_queue = asked.path.split("?")[0] == "/v1/queue"
        return Said(200, {"items": [row], "next_cursor": None} if is_queue else empty)

    gateway.answer = answer
    heading, line = iris("queue", "-o", "wide", "--url", gateway.url)[1].splitlines()
    assert heading.split()[4:7] == ["SIDE", "DEPTH", "STEPS"]
    assert line.split()[4:7] == ["near", "1", "-1/2"]
    assert "SIDE" not in iris("queue", "--url", gateway.url)[1]


def test_the_queue_tells_which_jobs_wait_outside_it(iris: Any, gateway: Answers) -> None:
    _, _, err = iris("queue", "--url", gateway.url)
    first, second, *_, last = err.splitlines()[1:]
    assert first == "not in the queue: /b2 (j2, 1 task): waits for /a (j1) to succeed"
    assert second == "not in the queue: /b3 (j3, 2 tasks): waits for /a (j1) to succeed"
    assert (len(err.splitlines()), last) == (
        12,
        "not in the queue: further jobs; list them: iris queue --gated",
    )
    assert iris("queue", "--gated", "-o", "name", "--url", gateway.url)[1].splitlines()[:2] == [
        "/b2",
        "/b3",
    ]


def test_a_release_ends_the_hold_of_exactly_its_options(iris: Any, gateway: Answers) -> None:
    assert iris("queue", "release", "--band", "batch", "--url", gateway.url)[0] == 0
    assert (gateway.requests[-1].method, gateway.requests[-1].path) == (
        "DELETE",
        "/v1/queue/holds/h1",
    )
    code, _, err = iris("queue", "release", "--user", "mia", "--url", gateway.url)
    assert code == 2
    assert "band batch by root" in err


def test_a_hold_without_a_part_of_the_queue_is_refused(iris: Any, gateway: Answers) -> None:
    code, _, err = iris("queue", "hold", "--url", gateway.url)
    assert code == 2
    assert "--user, --band or --label" in err


def of_job(**changed: Any) -> Callable[[Any], Said]:
    """A gateway whose job is of version 1, and as ``changed`` once it is patched."""
    return lambda asked: Said(200, job_view(**(changed if asked.method == "PATCH" else {})))


@pytest.mark.parametrize(
    ("words", "changed", "same"),
    [
        (["update", "/a", "--band", "batch"], "changed", "unchanged: that is what it has"),
        (["hold", "/a"], "held", "held already"),
        (["hold", "/a", "--reason", "x"], "held", "held already; the reason stays"),
        (["release", "/a"], "released", "had no hold of its own"),
    ],
)
def test_a_change_to_what_a_job_has_is_none(
    iris: Any, words: list[str], changed: str, same: str
) -> None:
    for version, said in ((2, changed), (1, same)):
        with answering(of_job(version=version)) as gateway:
            code, _, err = iris(*words, "--url", gateway.url)
        assert (code, err.split(" ", 1)[1]) == (0, f"{said}\n")


def test_a_released_job_is_told_to_wait_for_the_queue(iris: Any) -> None:
    reason = {"code": "held", "message": "held by root with the queue of band batch (h1)"}
    with answering(of_job(version=2, pending_reason=reason)) as gateway:
        code, _, err = iris("release", "/a", "--url", gateway.url)
    assert (code, "still held by root with the queue of band batch (h1)" in err) == (0, True)


def test_a_released_job_is_told_what_else_it_waits_for(iris: Any) -> None:
    reason = {"code": "not_before", "message": "not before 2026-11-23 18:28:12 UTC"}
    with answering(of_job(version=2, pending_reason=reason)) as gateway:
        code, _, err = iris("release", "/a", "--url", gateway.url)
    assert (
        code,
        err.strip().endswith("released; it waits: not before 2026-11-23 18:28:12 UTC"),
    ) == (0, True)
