"""`iris project`: what is sent, what is printed, and how mistakes are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from iris.cli.commands.operate.project import describe
from tests.support.answers import Answers, Asked, Said, answering


def shown(path: str, parent: str | None, *children: str, **fields: Any) -> dict[str, Any]:
    return {
        "path": path,
        "parent": parent,
        "children": list(children),
        "guarantee": {},
        "limit": {},
        "max_pending_tasks": 0,
        "members": [],
        "admins": [],
        "default_for": [],
        "borrowed": {},
        "near": {},
        "used": {"cpu_millis": 1500, "memory_bytes": 1 << 30, "chips": 0},
        "running_tasks": 3,
        "pending_tasks": 2,
        "version": 3,
        "by": None,
        "warnings": [],
        "weight": None,
        "share": None,
        **fields,
    }


NLP = shown(
    "/research/nlp",
    "/research",
    limit={"cpu_millis": 4000, "chips": 8},
    max_pending_tasks=10,
    members=["ada", "@nlp"],
    default_for=["ada"],
    warnings=["it is the default of bob, who may not submit to it"],
)
TREE = [
    shown("/", None, "/research", "/web"),
    shown("/research", "/", "/research/nlp", "/research/vision", admins=["lin"]),
    NLP,
    shown("/research/vision", "/research"),
    shown("/web", "/"),
]


@pytest.fixture
def gateway() -> Iterator[Answers]:
    def answer(asked: Asked) -> Said:
        if asked.path.startswith("/v1/projects?") or asked.path == "/v1/projects":
            return Said(200, {"items": TREE, "next_cursor": None})
        if asked.path.startswith("/v1/projects/%2Fnew") and asked.method == "GET":
            return Said(404, {"code": "not_found", "detail": "there is no project /new"})
        if asked.method == "PUT":
            made = "new" in asked.path
            body = {**NLP, **asked.json, "version": 1 if made else 4}
            return Said(201 if made else 200, body)
        if asked.method == "DELETE":
            return Said(200, {"path": "/research/nlp", "state": "removed"})
        return Said(200, NLP)

    with answering(answer) as answers:
        yield answers


def last(gateway: Answers, method: str) -> Asked:
    return next(one for one in reversed(gateway.requests) if one.method == method)


def test_projects_are_listed_with_what_is_used_of_their_limits(iris: Any, gateway: Answers) -> None:
    code, out, _ = iris("project", "ls", "--url", gateway.url)
    heading, *rows = out.splitlines()
    assert code == 0
    assert heading.split() == ["PATH", "CPU", "MEMORY", "CHIPS", "RUNNING", "PENDING"]
    assert rows[2].split() == [
        *("/research/nlp", "1.5", "of", "4", "1GiB", "0", "of", "8", "3", "2", "of", "10")
    ]


def test_the_tree_is_drawn_with_lines(iris: Any, gateway: Answers) -> None:
    code, out, _ = iris("project", "tree", "--url", gateway.url)
    assert code == 0
    assert [line.partition("  1.5")[0].rstrip() for line in out.splitlines()[1:]] == [
        "/",
        "├─ research",
        "│  ├─ nlp",
        "│  └─ vision",
        "└─ web",
    ]


def test_a_project_is_shown_with_its_warnings(iris: Any, gateway: Answers) -> None:
    code, out, _ = iris("project", "show", "research/nlp", "--url", gateway.url)
    assert code == 0
    facts = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert facts["members"] == "ada, @nlp"
    assert facts["warning"] == "it is the default of bob, who may not submit to it"
    assert last(gateway, "GET").path == "/v1/projects/%2Fresearch%2Fnlp"
    found = json.loads(iris("project", "show", "/x", "-o", "json", "--url", gateway.url)[1])
    assert found == NLP


def test_setting_changes_the_given_parts_and_keeps_the_others(iris: Any, gateway: Answers) -> None:
    options = ["--limit", "cpu=500,memory=4TiB", "--member", "", "--max-pending", "0"]
    options += ["--weight", "2.5"]
    code, _, told = iris("project", "set", "research/nlp", *options, "--url", gateway.url)
    assert (code, told.splitlines()[0]) == (0, "/research/nlp is set")
    assert "warning: it is the default of bob" in told
    sent = last(gateway, "PUT")
    assert sent.json == {
        "guarantee": {},
        "weight": 2.5,
        "limit": {"cpu_millis": 500_000, "memory_bytes": 4 << 40},
        "max_pending_tasks": 0,
        "members": [],
        "admins": [],
        "default_for": ["ada"],
    }
    assert sent.headers["If-Match"] == '"3"'


def test_a_weight_is_shown_and_taken_away(iris: Any, gateway: Answers) -> None:
    facts = dict(describe({**NLP, "weight": 2.5, "share": 0.4}))
    assert (facts["weight"], facts["share"]) == ("2.5", "0.4")
    iris("project", "set", "research/nlp", "--weight", "", "--url", gateway.url)
    assert last(gateway, "PUT").json["weight"] is None
    code, _, told = iris("project", "set", "research/nlp", "--weight", "much", "--url", gateway.url)
    assert (code, "'much' is not a valid float" in told) == (2, True)
    before = len(gateway.requests)
    for odd in ("nan", "inf"):
        code, _, told = iris("project", "set", "/x", "--weight", odd, "--url", gateway.url)
        assert (code, "weight is not a finite number" in told) == (2, True)
    assert len(gateway.requests) == before


def test_a_new_project_has_what_is_given_only(iris: Any, gateway: Answers) -> None:
    options = ["--admin", "lin, @leads", "--default-for", "lin"]
    code, _, told = iris("project", "set", "new", *options, "--url", gateway.url)
    assert (code, told.splitlines()[0]) == (0, "/research/nlp is made")
    assert last(gateway, "PUT").json == {"admins": ["lin", "@leads"], "default_for": ["lin"]}
    assert "If-Match" not in last(gateway, "PUT").headers


def test_a_guarantee_is_sent_and_shown_with_what_is_borrowed(iris: Any, gateway: Answers) -> None:
    iris("project", "set", "/x", "--guarantee", "chips=64,cpu=2", "--url", gateway.url)
    assert last(gateway, "PUT").json["guarantee"] == {"chips": 64, "cpu_millis": 2000}
    code, _, told = iris("project", "set", "/x", "--guarantee", "gpus=4", "--url", gateway.url)
    assert (code, "'gpus' has no guarantee; there are cpu, memory, chips" in told) == (2, True)
    iris("project", "set", "/x", "--guarantee", "", "--url", gateway.url)
    assert last(gateway, "PUT").json["guarantee"] == {}
    sides = {"guarantee": {"chips": 64}, "borrowed": {"cpu_millis": 500}, "near": {"chips": 8}}
    listed = {"items": [{**NLP, **sides}], "next_cursor": None}
    gateway.answer = lambda _: Said(200, listed)
    wide = iris("project", "ls", "-o", "wide", "--url", gateway.url)[1].splitlines()
    assert wide[0].split()[6:8] == ["GUARANTEED", "BORROWED"]
    assert "chips 64 cpu 0.5" in " ".join(wide[1].split())
    gateway.answer = lambda _: Said(200, {**NLP, **sides})
    _, out, _ = iris("project", "show", "/x", "--url", gateway.url)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for line in ("guaranteed chips 64", "borrowed cpu 0.5", "left of it chips 8"):
        assert line in lines


def test_the_root_is_shown_and_set_and_no_path_is_not_the_root(iris: Any, gateway: Answers) -> None:
    code, _, told = iris("project", "set", "/", "--limit", "chips=64", "--url", gateway.url)
    assert (code, last(gateway, "PUT").path, told.count("must not")) == (0, "/v1/projects/%2F", 0)
    code, _, _ = iris("project", "show", "/", "--url", gateway.url)
    assert (code, last(gateway, "GET").path) == (0, "/v1/projects/%2F")
    before = len(gateway.requests)
    for empty in ("", "//"):
        code, _, told = iris("project", "show", empty, "--url", gateway.url)
        assert (code, "must not be empty" in told) == (2, True)
    assert len(gateway.requests) == before


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("gpus=4", "'gpus' has no limit; there are cpu, memory, chips"),
        ("cpu", "'cpu' is not RESOURCE=AMOUNT"),
        ("cpu=many", "many"),
    ],
)
def test_a_limit_that_cannot_be_read_is_named(
    iris: Any, gateway: Answers, limit: str, words: str
) -> None:
    code, _, told = iris("project", "set", "new", "--limit", limit, "--url", gateway.url)
    assert code == 2
    assert words in told
    assert all(one.method == "GET" for one in gateway.requests)


def test_a_project_is_removed(iris: Any, gateway: Answers) -> None:
    code, _, told = iris("project", "rm", "research/nlp", "--url", gateway.url)
    assert (code, told) == (0, "research/nlp is removed\n")
    assert last(gateway, "DELETE").path == "/v1/projects/%2Fresearch%2Fnlp"


def test_jobs_and_usage_are_asked_for_by_project(iris: Any, gateway: Answers) -> None:
    gateway.answer = lambda _: Said(200, {"items": [], "next_cursor": None})
    iris("ls", "--project", "/research", "--url", gateway.url)
    assert "project=%2Fresearch" in last(gateway, "GET").path
    iris("usage", "--by", "project", "--project", "/research", "--url", gateway.url)
    assert "by=project" in last(gateway, "GET").path
