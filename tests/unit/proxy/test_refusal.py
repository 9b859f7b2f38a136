"""Requests that the proxy answers with an error of its own."""

import ast
import json

import pytest

from iris_proxy.http.refusal import (
    REFUSAL_TYPES,
    ProxyRefusal,
    check_head,
    split_target,
    with_slash,
    without_route,
)
from tests.house.repository import sources

GOOD = {"tokens": 1, "http_1_1": True, "head_bytes": 100, "most_bytes": 1000}


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("/d/chat/", ("chat", "/")),
        ("/d/chat", ("chat", "/")),
        ("/d/chat?x=/d/y/", ("chat", "/?x=/d/y/")),
        ("/d/chat//a/../b%2F?q=1?2", ("chat", "//a/../b%2F?q=1?2")),
    ],
)
def test_a_target_is_split_and_otherwise_left_as_it_was_sent(target: str, found: tuple[str, str]):
    assert split_target(target) == found


@pytest.mark.parametrize("target", ["/", "/d", "/d/", "/d//x", "/v1/jobs", "/D/chat/"])
def test_other_paths_are_not_found(target: str):
    with pytest.raises(ProxyRefusal) as refusal:
        split_target(target)
    assert refusal.value.status == 404


@pytest.mark.parametrize(
    ("target", "hosts", "codings", "changes", "status"),
    [
        ("/d/c/", 0, [], {}, 400),
        ("/d/c/", 2, [], {}, 400),
        ("/d/c/", 1, ["gzip, chunked"], {}, 400),
        ("/d/c/", 1, ["chunked", "chunked"], {}, 400),
        ("/d/c/", 1, ["chunked"], {"http_1_1": False}, 400),
        ("http://a/d/c/", 1, [], {}, 400),
        ("*", 1, [], {}, 400),
        ("/d/c/", 1, [], {"method": "CONNECT"}, 400),
        ("/d/c/", 1, [], {"tokens": 2}, 400),
        ("/d/c/", 1, [], {"head_bytes": 1001}, 431),
    ],
)
def test_an_ambiguous_or_too_large_head_closes_the_connection(
    target: str, hosts: int, codings: list[str], changes: dict[str, object], status: int
):
    with pytest.raises(ProxyRefusal) as refusal:
        check_head(
            **{
                "method": "GET",
                "target": target,
                "hosts": hosts,
                "codings": codings,
                **GOOD,
                **changes,
            }
        )
    assert (refusal.value.status, refusal.value.closes) == (status, True)


def test_an_ordinary_head_passes():
    check_head("GET", "/d/c/", 1, ["Chunked "], **GOOD)
    check_head("GET", "/d/c/", 1, [], **GOOD)


def test_a_deployment_without_a_route_says_why_and_when_to_come_back():
    refusal = without_route("chat", "starting")
    assert dict(refusal.headers()) == {
        "Iris-Proxy": "1",
        "Content-Type": "application/json",
        "Cache-Control": "no-store",
        "Server": "iris",
        "Retry-After": "5",
    }
    detail = "chat has no route that can answer now"
    assert json.loads(refusal.body()) == {"status": 503, "code": "starting", "detail": detail}


@pytest.mark.parametrize("reason", ["", "a reason of a newer release"])
def test_a_deployment_without_a_route_or_reason_has_no_healthy_route(reason: str):
    assert (without_route("chat", reason).code, without_route("chat", reason).status) == (
        "no_healthy_route",
        503,
    )


def test_every_refusal_of_the_proxy_is_a_row_of_the_table():
    calls = [
        call.args[0]
        for source in sources()
        if source.module.startswith("iris_proxy.")
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "ProxyRefusal"
    ]
    raised = {
        text.value
        for code in calls
        for text in ast.walk(code)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    }
    assert len(calls) > 8
    assert raised <= set(REFUSAL_TYPES)


def test_a_person_with_a_browser_gets_a_page_that_tries_again():
    page = without_route("<chat>", "starting").page().decode()
    assert "<h1>It is starting</h1><p>&lt;chat&gt; has no route that can answer now.</p>" in page
    assert '<meta http-equiv="refresh" content="5">' in page
    assert '<a href="">Try again</a> This page tries again every 5 s.' in page
    missing = ProxyRefusal("not_found", "there is no deployment x").page().decode()
    assert ("refresh" in missing, '<a href="">Try again</a>' in missing) == (False, True)


@pytest.mark.parametrize(
    ("method", "target", "place"),
    [
        ("GET", "/d/chat", "./chat/"),
        ("HEAD", "/d/chat?x=/y", "./chat/?x=/y"),
        ("GET", "/d/chat/", ""),
        ("GET", "/d/chat/a", ""),
        ("POST", "/d/chat", ""),
        ("GET", "/d/", ""),
        ("GET", "/e/chat", ""),
    ],
)
def test_a_page_of_a_deployment_ends_with_a_slash(method, target, place):
    assert with_slash(method, target) == place
