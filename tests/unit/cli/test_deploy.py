"""`iris deploy`: requests to the gateway, output and exit codes."""

from __future__ import annotations

import json
import re
import signal
import threading
from typing import Any

import pytest

from iris.cli.exit_codes import ExitCode
from iris.cli.output.times import show_moment
from tests.support.answers import Asked, Said, answering, events, problem

SSE = {"Content-Type": "text/event-stream"}
AT = "2026-01-02T12:03:00Z"
ROUTE = {
    "id": "r1-1",
    "deployment": "chat",
    "job": "/chat/r1-1",
    "status": "unhealthy",
    "revision": 1,
    "worker": "w0",
    "address": "10.0.0.1:80",
    "since": AT,
    "created_at": AT,
    "ready": True,
    "available": False,
    "discovered": False,
    "detail": "503 of /healthz",
    "pending_reason": None,
}
CRASHES = {"code": "crash_loop", "message": "6 tries to start a route have failed"}
BACK = {"code": "rolled_back", "message": "the update to revision 2 has failed; revision 1 is kept"}


def chat(**members: Any) -> dict[str, Any]:
    return {
        "id": "d1",
        "name": "chat",
        "status": "ready",
        "user": "ann",
        "revision": 1,
        "stable_revision": 1,
        "replicas": 3,
        "ready": 3,
        "available": 3,
        "live": 3,
        "version": 4,
        "spec": {"name": "chat", "template": {"command": ["serve"]}},
        "revisions": [1],
        "created_at": AT,
        "since": AT,
        "update": None,
        "conditions": [],
        "routes": [ROUTE],
        **members,
    }


SHOWN = show_moment(AT)


class Gateway:
    """A gateway with one deployment, which is shown as ``seen`` says, one after the other."""

    def __init__(self, *seen: dict[str, Any]) -> None:
        self.seen = list(seen) or [chat()]
        self.changes: list[tuple[str, str, Any, str | None]] = []

    def __call__(self, asked: Asked) -> Said:
        if asked.path.startswith("/v1/events"):
            news = {
                "deployment": "chat",
                "state": "ready",
                "previous": None,
                "revision": 1,
                "at_ms": 1,
                "seq": 1,
            }
            return Said(headers=SSE, body=events(("deployment.state.ready", news)))
        if asked.method != "GET":
            body = asked.json if asked.body else None
            self.changes.append((asked.method, asked.path, body, asked.headers.get("If-Match")))
            return Said(201 if asked.method == "POST" else 200, self.seen[0])
        if asked.path.startswith("/v1/tasks/j8"):
            return Said(200, {"attempts": [{"stderr_tail": "loading\nCUDA out of memory\n"}]})
        if asked.path.endswith("/why"):
            row = {
                "entity": "chat/r1-1",
                "handler": "RouteEviction",
                "result": "SUCCESS",
                "reason": "",
                "attempts": 2,
            }
            rows = [{**row, "last_at": AT}]
            known = {"scaling": self.seen[0].get("scaling")}
            return Said(
                200,
                {
                    "deployment": "chat",
                    **self.seen[0],
                    "conditions": [CRASHES],
                    "routes": [ROUTE],
                    "history": rows,
                }
                | known,
            )
        if asked.path.partition("?")[0] == "/v1/deployments":
            return Said(200, {"items": [chat()], "next_cursor": None})
        if asked.path.partition("?")[0].endswith("/routes"):
            return Said(200, {"items": [ROUTE], "next_cursor": None})
        return Said(200, self.seen.pop(0) if len(self.seen) > 1 else self.seen[0])


@pytest.fixture
def iris(iris):
    """Run `iris deploy` against a gateway."""

    def run(gateway, *words: object, retry_for: str = "90s") -> tuple[int, str, str]:
        with answering(gateway) as server:
            return iris("--url", server.url, "--retry-for", retry_for, "deploy", *words)

    return run


def test_create_sends_what_is_said_and_prints_the_name(iris):
    gateway = Gateway()
    options = (
        "--replicas",
        3,
        "--port",
        "http",
        "--probe-path",
        "/up",
        "--cpu",
        2,
        "-e",
        "A=1",
        "--user",
        "ann",
    )
    code, out, err = iris(
        gateway, "create", "chat", *options, "--max-surge", "1", "--", "serve", "--fast"
    )
    assert (code, out, err) == (0, "chat\n", "chat created\n")
    [(method, path, body, _)] = gateway.changes
    assert (method, path) == ("POST", "/v1/deployments")
    assert body == {
        "name": "chat",
        "replicas": 3,
        "port": "http",
        "user": "ann",
        "template": {
            "command": ["serve", "--fast"],
            "env": {"A": "1"},
            "ports": ["http"],
            "resources": {"cpu_millis": 2000},
            "probe": {"kind": "http", "path": "/up", "port": "http"},
        },
        "update": {"max_surge": 1},
    }


def test_create_prints_the_object_of_the_api(iris):
    code, out, _ = iris(Gateway(), "create", "chat", "-o", "json", "--wait", "--", "serve")
    assert (code, json.loads(out)["spec"]["template"]["command"]) == (0, ["serve"])


@pytest.mark.parametrize(
    ("words", "method", "body", "version"),
    [
        (("scale", "chat", 5), "PATCH", {"replicas": 5}, None),
        (("rollback", "chat"), "PATCH", {"revision": 0}, None),
        (("rollback", "chat", "--to", 2), "PATCH", {"revision": 2}, None),
        (("pause", "chat"), "PATCH", {"paused": True}, None),
        (("resume", "chat"), "PATCH", {"paused": False}, None),
        (("delete", "chat"), "DELETE", None, None),
        (("update", "chat", "--", "v2"), "PATCH", {"template": {"command": ["v2"]}}, None),
        (("update", "chat", "--grace", "1m", "--version", 4), "PATCH", {"grace_s": 60.0}, '"4"'),
    ],
)
def test_each_change_is_one_request(iris, words, method, body, version):
    gateway = Gateway()
    code, _, err = iris(gateway, *words)
    assert (code, gateway.changes) == (0, [(method, "/v1/deployments/chat", body, version)])
    assert "chat" in err


@pytest.mark.parametrize(
    ("words", "changed", "same"),
    [
        (("scale", "chat", 1), "scales to 1 route", "unchanged: that is what it has"),
        (("update", "chat", "--grace", "1m"), "is at revision 1", "unchanged: that is what it has"),
        (("pause", "chat"), "is paused", "is paused already"),
        (
            ("resume", "chat"),
            "is resumed",
            "unchanged: no update is paused, and no start has failed",
        ),
    ],
)
def test_a_change_to_what_a_deployment_has_is_none(iris, words, changed, same):
    for version, said in ((3, changed), (4, same)):
        code, _, err = iris(Gateway(chat(version=version), chat()), *words)
        assert (code, err) == (0, f"chat {said}\n")


@pytest.mark.parametrize("status", ["ready", "scaling"])
def test_a_deployment_says_how_many_of_its_routes_serve(iris, status):
    lacking = chat(status=status, ready=0, replicas=2)
    assert re.search(r"routes +0 of 2 serve\n", iris(Gateway(lacking), "show", "chat")[1])
    assert f"chat is {status}, 0 of 2 serve, revision 1" in iris(Gateway(lacking), "why", "chat")[1]


@pytest.mark.parametrize("words", [("create", "chat", "--", "serve"), ("update", "chat")])
def test_what_the_cluster_does_not_give_is_said(iris, words):
    gateway = (
        Gateway(chat(), chat(warnings=["chat has 90s"]))
        if words[0] == "update"
        else Gateway(chat(warnings=["chat has 90s"]))
    )
    done = iris(gateway, *words[:2], "--grace", "1h", *words[2:])
    assert done[0] == ExitCode.SUCCEEDED
    assert "warning: chat has 90s\n" in done[2]


def test_an_update_that_says_nothing_is_refused(iris):
    gateway = Gateway()
    assert iris(gateway, "update", "chat")[0] == ExitCode.USAGE
    assert gateway.changes == []


def test_waiting_ends_when_every_route_serves(iris):
    scaling = chat(status="scaling", ready=1)
    code, _, err = iris(
        Gateway(scaling, scaling, chat(ready=2), chat()), "scale", "chat", 3, "--wait"
    )
    assert (code, err.splitlines()[-1]) == (0, "chat is ready: 3 of 3 routes serve")


@pytest.mark.parametrize(
    ("then", "said"),
    [
        (
            chat(status="scaling", ready=0, conditions=[CRASHES]),
            "6 tries to start a route have failed",
        ),
        (chat(revision=1, conditions=[BACK]), "revision 1 is kept"),
        (chat(status="destroying"), "is being deleted"),
        (chat(id="d2"), "is being deleted"),
    ],
)
def test_waiting_for_what_will_not_come_ends_at_once_and_says_why(iris, then, said):
    under_way = chat(revision=2, status="deploying")
    code, _, err = iris(Gateway(under_way, under_way, then), "resume", "chat", "--wait")
    assert (code, said in err) == (ExitCode.JOB_FAILED, True)


def test_ctrl_c_while_waiting_says_that_the_deployment_goes_on(iris):
    gateway = Gateway(chat(status="scaling", ready=1))

    def interrupts_once_asked(asked: Asked) -> Said:
        if gateway.changes and asked.method == "GET":
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return gateway(asked)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, _, err = iris(interrupts_once_asked, "scale", "chat", 3, "--wait")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, err.splitlines()[-1]) == (130, "chat goes on; come back: iris deploy show chat")


def test_waiting_for_a_gateway_that_is_away_ends_with_how_to_go_on(iris):
    gateway = Gateway(chat(status="scaling", ready=1))

    def away_once_asked(asked: Asked) -> Said:
        return Said(hang_up=True) if gateway.changes and asked.method == "GET" else gateway(asked)

    code, _, err = iris(away_once_asked, "scale", "chat", 3, "--wait", retry_for="0s")
    assert code == ExitCode.UNREACHABLE
    goes_on, error = err.splitlines()[-2:]
    assert goes_on == "chat goes on; come back: iris deploy show chat"
    assert re.fullmatch(r"error: the gateway at \S+ \(from --url\) does not answer: [^;`]+", error)


def test_waiting_tells_each_routes_last_line_and_when_the_update_gives_up(iris):
    update = {
        "revision": 2,
        "new": 1,
        "available": 0,
        "old": 3,
        "paused": False,
        "waiting_for": None,
    }
    update |= {"progress_at": AT, "failed_starts": 1, "failed_starts_allowed": 5, "gives_up_at": AT}
    dead = {
        **ROUTE,
        "id": "r2-4",
        "job_id": "j8",
        "status": "failed_to_start",
        "revision": 2,
        "detail": "exit code 1",
    }
    before = chat(
        revision=2, update={**update, "failed_starts": 0}, status="deploying", routes=[ROUTE]
    )
    after = {**before, "update": update, "routes": [ROUTE, dead]}
    back = {**after, "revision": 1, "update": None, "conditions": [BACK]}
    had = {**before, "version": 3}
    code, _, err = iris(
        Gateway(had, before, before, after, back), "update", "chat", "--wait", "--", "serve", "v2"
    )
    assert code == ExitCode.JOB_FAILED
    assert err.splitlines() == [
        "chat is at revision 2",
        "chat: waits for 3 routes of revision 2",
        f"chat: gives up at {SHOWN} without progress, or after 5 more failed starts",
        "r2-4 failed_to_start: exit code 1",
        "  CUDA out of memory",
        f"chat: 1 start failed; gives up at {SHOWN} without progress, or after 4 more failed starts",
        f"error: chat: {BACK['message']}",
    ]


def test_show_counts_the_starts_that_failed(iris):
    update = {
        "revision": 2,
        "new": 1,
        "available": 0,
        "old": 3,
        "paused": False,
        "waiting_for": None,
    }
    update |= {"failed_starts": 2, "failed_starts_allowed": 5, "gives_up_at": AT}
    _, out, _ = iris(Gateway(chat(update=update)), "show", "chat")
    wanted = "0 of 1 new routes available, 3 old ones left; 2 starts failed; gives up at"
    assert f"{wanted} {SHOWN} without progress, or after 3 more failed starts" in out


def test_waiting_ends_when_its_time_is_over(iris):
    code, _, err = iris(Gateway(chat(ready=1)), "scale", "chat", 3, "--wait-timeout", "0.1s")
    assert (code, "chat: 1 of 3 routes serve after 0.1 s (ready); it goes on" in err) == (
        ExitCode.WAIT_TIMEOUT,
        True,
    )


def test_a_wait_that_is_over_tells_routes_of_other_revisions_apart(iris):
    routes = [
        {**ROUTE, "revision": revision, "discovered": revision < 3} for revision in (1, 1, 2, 3)
    ]
    during = chat(status="deploying", revision=2, routes=routes)
    code, _, err = iris(
        Gateway(chat(), during), "update", "chat", "--wait-timeout", "0.1s", "--", "serve"
    )
    said = "chat: 1 of 3 routes of revision 2 serve, and 2 of other revisions, after 0.1 s (deploying); it goes on"
    assert (code, said in err) == (ExitCode.WAIT_TIMEOUT, True)


def test_a_refusal_says_every_mistake(iris):
    errors = [
        {
            "pointer": "/replicas",
            "code": "out_of_range",
            "message": "-1 is not between 0 and 1000",
            "hint": "",
        }
    ]
    gateway = lambda _: problem(422, "invalid", "wrong", errors=errors)  # noqa: E731
    code, _, err = iris(gateway, "create", "chat", "--replicas", "-1", "--", "serve")
    assert (code, "--replicas: -1 is not between 0 and 1000" in err) == (ExitCode.USAGE, True)


def test_a_change_of_another_version_is_a_conflict(iris):
    gateway = lambda asked: (  # noqa: E731
        Said(200, chat())
        if asked.method == "GET"
        else problem(412, "precondition_failed", "has been changed since")
    )
    assert iris(gateway, "update", "chat", "--grace", "1m", "--version", 3)[0] == ExitCode.CONFLICT


def test_looks_print_what_a_person_needs(iris):
    assert "unhealthy" in iris(Gateway(), "show", "chat")[1]
    _, listing, _ = iris(Gateway(), "list")
    assert listing.splitlines()[1].split()[:4] == ["chat", "ready", "3/3", "1"]
    assert "503 of /healthz" in iris(Gateway(), "routes", "chat")[1]
    why = iris(Gateway(), "why", "chat")[1].splitlines()
    assert why[0] == "chat is ready, 3 of 3 serve, revision 1"
    assert why[1] == "  6 tries to start a route have failed  (crash_loop)"
    assert why[3].startswith("  chat/r1-1 RouteEviction success x 2 ")
    assert json.loads(iris(Gateway(), "show", "chat", "-o", "json")[1]) == chat()


def test_a_scaling_rule_is_sent_and_shown_with_what_holds_it(iris):
    gateway = Gateway()
    assert (
        iris(gateway, "update", "chat", "--min", 0, "--max", 6, "--target-outstanding", 5)[0] == 0
    )
    assert iris(gateway, "update", "chat", "--no-scaling", "-r", 2)[0] == 0
    assert [body for _, _, body, _ in gateway.changes] == [
        {"scaling": {"minimum": 0, "maximum": 6, "outstanding": 5.0}},
        {"replicas": 2, "scaling": None},
    ]
    last = "scaled 3 -> 5: 24 outstanding, target 5 a route, over 60 s"
    known = {
        "load": 12.34,
        "held": "3 wanted, and 5 were within 300 s",
        "last": last,
        "last_at": AT,
    }
    rule = {
        "name": "chat",
        "template": {"command": ["serve"]},
        "scaling": {"maximum": 6, "outstanding": 5.0},
    }
    scaled = Gateway(chat(spec=rule, scaling=known))
    shown = iris(scaled, "show", "chat")[1]
    assert "1 to 6 routes, 5 outstanding each; 12.3 now" in shown
    for out in (shown, iris(scaled, "why", "chat")[1]):
        assert "the number of routes stays: 3 wanted, and 5 were within 300 s" in out
        assert last in out
