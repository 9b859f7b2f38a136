"""Command lines against a small real HTTP server: requests, output and exit codes."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from email.utils import formatdate
from urllib.parse import parse_qs, urlsplit

import click
import pytest

from iris.cli.exit_codes import JOB_EXITS, ExitCode
from iris.cli.parsing.command import CliCommand, CliGroup
from iris.cli.root import root
from iris.client.client import Client
from iris.client.http.contexts import Context, Contexts, contexts_path, load_contexts
from iris.client.jobs import TERMINAL
from iris_core import DISTRIBUTION
from iris_service.version import VERSION
from tests.support.answers import Said, answering, events, in_turn, job_view, problem

SSE = {"Content-Type": "text/event-stream"}
TASK = {
    "task": "/train/0",
    "job": "/train",
    "index": 0,
    "state": "succeeded",
    "pending_reason": None,
    "failure_count": 0,
    "preemption_count": 0,
    "worker": None,
}


def a_run(state, *, log=(), **members):
    """A gateway on which a submitted job comes to its end in ``state``."""
    ending = {
        "job": "/train",
        "job_id": "j7",
        "state": state,
        "previous": "running",
        "cause": None,
        "at_ms": 1,
        "seq": 1,
    }
    first = [job_view()]

    def answer(request):
        if request.method == "POST":
            return Said(201, job_view())
        if request.path.endswith("/events"):
            return Said(headers=SSE, body=events((f"job.state.{state}", ending)))
        if "/logs" in request.path:
            return Said(headers=SSE, body=events(*log, ("end", {"state": state})))
        return Said(200, first.pop() if first else job_view(state=state, **members))

    return answer


def line(text, stream="stdout"):
    return (
        "log",
        {
            "task": "/train/0",
            "index": 0,
            "attempt": 0,
            "stream": stream,
            "at": None,
            "offset": 0,
            "line": text,
        },
    )


@pytest.mark.parametrize(
    ("state", "code"),
    [("succeeded", 0), ("failed", 3), ("unschedulable", 4), ("killed", 5), ("worker_failed", 6)],
)
def test_run_ends_as_its_job_ends(iris, state, code):
    with answering(a_run(state)) as server:
        assert iris("run", "--url", server.url, "--", "true")[0] == code


def test_every_end_of_a_job_has_an_exit_code():
    assert set(JOB_EXITS) == TERMINAL


def test_run_keeps_the_streams_of_output_apart_from_its_own_messages(iris):
    with answering(
        a_run("failed", log=[line("hello"), line("oh no", "stderr")], error="exit code 3")
    ) as server:
        _, out, err = iris("run", "--url", server.url, "--name", "train", "--", "true")

    assert out == "hello\n"
    assert "oh no\n" in err
    assert "/train failed" in err
    assert "exit code 3" in err


def test_run_detached_prints_only_the_name(iris):
    with answering(a_run("succeeded")) as server:
        assert iris("run", "-d", "--url", server.url, "true") == (0, "/train\n", "")
        assert len(server.requests) == 1


def test_run_warns_of_an_unschedulable_job_unless_it_is_to_wait(iris):
    warned = job_view() | {
        "warnings": ["no registered worker can ever take /train: none of 3 matches; it waits"]
    }
    with answering(in_turn(Said(201, warned))) as server:
        code, out, err = iris("run", "-d", "--url", server.url, "true")
        assert (code, out) == (0, "/train\n")
        assert (
            err
            == "warning: no registered worker can ever take /train: none of 3 matches; it waits\n"
        )
        assert iris("run", "-d", "--wait-for-capacity", "--url", server.url, "true") == (
            0,
            "/train\n",
            "",
        )


def test_a_rerun_sends_other_variables_and_what_to_wait_for(iris):
    with answering(lambda _: Said(201, job_view())) as server:
        words = (
            "-e",
            "LR=0.01",
            "--after",
            "prep:any",
            "--after",
            "j3",
            "--tasks",
            "3-7",
            "--memory",
            "8GiB",
        )
        assert iris("rerun", "-d", "--url", server.url, *words, "train")[0] == 0
        assert server.requests[-1].json == {
            "failed_only": False,
            "tasks": "3-7",
            "resources": {"memory_bytes": 8 << 30},
            "env": {"LR": "0.01"},
            "after": [{"job": "/prep", "when": "any"}, {"job": "j3"}],
        }


def test_a_rerun_says_what_it_does_not_wait_for(iris):
    dropped = "/train does not wait for /prep, as j3 did: a rerun drops what the job waited for"
    with answering(in_turn(Said(201, job_view() | {"warnings": [dropped]}))) as server:
        assert iris("rerun", "-d", "--url", server.url, "train") == (
            0,
            "/train\n",
            f"warning: {dropped}\n",
        )


@pytest.mark.parametrize(
    ("view", "words", "told"),
    [
        ({"replicas": 10}, (), True),
        ({"replicas": 10}, ("--max-task-failures", "0"), False),
        (
            {"replicas": 10, "spec": {**job_view()["spec"], "max_task_failures": 10}},
            ("--keep-going",),
            False,
        ),
        ({"replicas": 10, "coscheduled": True}, (), False),
        ({"replicas": 1}, (), False),
    ],
)
def test_run_of_several_tasks_says_that_the_first_failure_ends_the_rest(iris, view, words, told):
    with answering(in_turn(Said(201, job_view() | view))) as server:
        code, out, err = iris(
            "run", "-d", *words, "--replicas", str(view["replicas"]), "--url", server.url, "true"
        )
    note = (
        "when one of the 10 tasks has failed, the others are killed; --keep-going lets them end, "
        "--max-task-failures N lets N fail\n"
    )
    assert (code, out, err) == (0, "/train\n", note if told else "")


def test_run_sends_what_was_said(iris):
    with answering(a_run("succeeded")) as server:
        iris(
            "run",
            "-d",
            "--url",
            server.url,
            "--name",
            "a",
            "--replicas",
            "3",
            "-e",
            "A=1",
            "--",
            "sh",
            "-c",
            "x",
        )

        body = server.requests[0].json
        assert (body["name"], body["replicas"], body["env"], body["command"]) == (
            "/a",
            3,
            {"A": "1"},
            ["sh", "-c", "x"],
        )


def test_an_empty_name_between_commas_is_sent_and_so_refused(iris):
    with answering(a_run("succeeded")) as server:
        iris(
            "run",
            "-d",
            "--url",
            server.url,
            "--preload",
            "json,",
            "--preload",
            "a,b",
            "--",
            "python",
            "t.py",
        )

        assert server.requests[0].json["preload"] == ["json", "", "a", "b"]


@pytest.mark.parametrize("words", [("grep", "-n", "x"), ("--", "grep", "-n", "x")])
def test_options_after_the_task_belong_to_the_command_that_is_executed(iris, words):
    with answering(in_turn(problem(409, "conflict", "it has ended"))) as server:
        code, _, _ = iris("exec", "--url", server.url, "train/0", *words)

        assert (code, server.requests[0].json["command"]) == (11, ["grep", "-n", "x"])


def test_inside_a_task_run_submits_a_child(iris, monkeypatch):
    monkeypatch.setenv("IRIS_JOB", "/train")
    with answering(a_run("succeeded")) as server:
        monkeypatch.setenv("IRIS_GATEWAY_URL", server.url)
        iris("run", "-d", "--name", "eval", "--", "true")

        assert server.requests[0].json["name"] == "/train/eval"


def test_a_directory_is_sent_once_and_named_by_its_digest(iris, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("1")
    stored = set()

    def answer(request):
        if request.method == "HEAD":
            return Said(200 if request.path in stored else 404, b"")
        if request.method == "PUT":
            stored.add(request.path)
            return Said(201, b"")
        return Said(201, job_view())

    with answering(answer) as server:
        for _ in range(2):
            iris("run", "-d", "--url", server.url, "--workdir", tmp_path / "code", "--", "true")

        assert [request.method for request in server.requests] == [
            "HEAD",
            "PUT",
            "POST",
            "HEAD",
            "POST",
        ]
        assert stored == {f"/v1/bundles/{server.requests[-1].json['bundle']}"}


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 2), (401, 9), (403, 9), (404, 10), (409, 11), (413, 2), (422, 2), (500, 1)],
)
def test_a_refusal_has_its_exit_code_and_its_words(iris, status, code):
    with answering(in_turn(problem(status, "x", "because of this"))) as server:
        ended, out, err = iris("show", "--url", server.url, "/train")

    assert (ended, out) == (code, "")
    assert err.splitlines()[0] == "error: because of this"


def test_every_wrong_field_is_printed_with_its_place_and_hint(iris):
    mistakes = [
        {"pointer": "/replicas", "code": "range", "message": "0 is too few", "hint": "1 to 10000"},
        {"pointer": "/name", "code": "name", "message": "no spaces", "hint": ""},
    ]
    with answering(in_turn(problem(422, "invalid", "two mistakes", errors=mistakes))) as server:
        _, _, err = iris("run", "--url", server.url, "--", "true")

    assert err.splitlines() == [
        "error: two mistakes",
        "  --replicas: 0 is too few (1 to 10000)",
        "  --name: no spaces",
    ]


@pytest.mark.parametrize(
    ("status", "shown"), [(401, True), (409, True), (500, True), (404, False), (413, False)]
)
def test_an_involved_problem_names_the_page_of_its_type(iris, status, shown):
    with answering(in_turn(problem(status, "x", "because", type="/problems/x"))) as server:
        _, _, err = iris("show", "--url", server.url, "/train")

        assert (f"  see {server.url}/problems/x" in err.splitlines()) == shown


def test_nobody_there_ends_with_8_and_one_sentence(iris):
    code, _, err = iris("ls", "--url", "http://127.0.0.1:9")

    assert (code, len(err.splitlines())) == (8, 1)
    assert "does not answer" in err


def test_no_gateway_at_all_ends_with_8_and_says_what_to_do(iris):
    code, _, err = iris("ls")

    assert code == 8
    assert "iris up" in err


def test_try_again_ends_with_75(iris):
    given = problem(429, "over_quota", "too many pending tasks")
    given.headers = {**given.headers, "Retry-After": "60"}
    with answering(in_turn(given)) as server:
        assert iris("run", "--url", server.url, "--", "true")[0] == ExitCode.TRY_AGAIN


def test_plan_tells_over_how_many_workers_tasks_would_be_spread(iris):
    placements = [
        {"task": f"/a/{index}", "index": index, "worker": f"w{index % 2}"} for index in range(3)
    ]
    view = {"verdict": "now", "placements": placements, "victims": [], "reason": None, "ahead": 0}
    with answering(in_turn(Said(200, view))) as server:
        assert iris("plan", "--replicas", "3", "--url", server.url, "--", "true")[
            1
        ].splitlines() == [
            "it would start now",
            *("  task 0 on w0", "  task 1 on w1", "  task 2 on w0"),
            "  3 tasks on 2 workers",
        ]


def test_plan_tells_what_each_variant_would_do_alone(iris):
    alone = {"v6e-16": "never", "v5litepod-16": "not_now"}
    view = {
        "verdict": "not_now",
        "placements": [],
        "victims": [],
        "reason": None,
        "ahead": 0,
        "variants": alone,
    }
    with answering(in_turn(Said(200, view))) as server:
        assert iris("plan", "--tpu", "v6e-16,v5litepod-16", "--url", server.url, "--", "true")[
            1
        ].splitlines() == [
            "it would wait",
            *(
                "  with v6e-16 alone: it would never start here",
                "  with v5litepod-16 alone: it would wait",
            ),
        ]


def test_plan_tells_the_workers_of_each_slice(iris):
    placements = [
        {"task": f"/a/{index}", "index": index, "worker": f"w{index}"} for index in range(4)
    ]
    view = {"verdict": "now", "placements": placements, "victims": [], "reason": None, "ahead": 0}
    words = ("plan", "--tpu", "v4-16", "--slices", "2")
    with answering(in_turn(Said(200, view))) as server:
        assert iris(*words, "--url", server.url, "--", "true")[1].splitlines() == [
            "it would start now",
            *("  slice 0 on w0, w1", "  slice 1 on w2, w3"),
            "  4 tasks on 4 workers",
        ]


def test_plan_tells_over_how_many_domains_of_each_level_a_gang_would_be(iris):
    placements = [
        {"task": f"/a/{index}", "index": index, "worker": f"w{index}"} for index in range(2)
    ]
    view = {"verdict": "now", "placements": placements, "victims": [], "reason": None, "ahead": 0}
    words = ("plan", "--replicas", "2", "--group-by", "rack:preferred", "--group-by", "block")
    with answering(in_turn(Said(200, view | {"levels": {"rack": 2, "block": 1}}))) as server:
        assert iris(*words, "--url", server.url, "--", "true")[1].splitlines() == [
            "it would start now",
            *("  task 0 on w0", "  task 1 on w1", "  2 tasks on 2 workers"),
            *("  rack: 2 (preferred)", "  block: 1 (required)"),
        ]


@pytest.mark.parametrize(
    ("verdict", "code"), [("now", 0), ("after_preemption", 0), ("not_now", 12), ("never", 13)]
)
def test_plan_ends_as_the_verdict_says(iris, verdict, code):
    view = {"verdict": verdict, "placements": [], "victims": [], "reason": None, "ahead": 0}
    with answering(in_turn(Said(200, view))) as server:
        assert iris("plan", "--url", server.url, "--", "true")[0] == code


def test_waiting_longer_than_the_timeout_ends_with_7(iris):
    def answer(request):
        if request.path.endswith("/events"):
            return Said(headers=SSE, body=b": nothing\n\n")
        return Said(200, job_view(state="running"))

    with answering(answer) as server:
        code, _, err = iris("wait", "--url", server.url, "--timeout", "300ms", "/train")

    assert code == 7
    assert "it goes on" in err


def test_waiting_for_several_ends_as_the_first_that_did_not_succeed(iris):
    states = {"/v1/jobs/%2Fa": "succeeded", "/v1/jobs/%2Fb": "killed", "/v1/jobs/%2Fc": "failed"}
    seen = ["succeeded"]

    def answer(request):
        seen.append(states.get(request.path, seen[-1]))
        return Said(200, job_view(state=seen[-1]))

    with answering(answer) as server:
        assert iris("wait", "--url", server.url, "a", "b", "c")[0] == ExitCode.KILLED


def test_a_listing_as_json_is_the_page_object(iris):
    with answering(in_turn(Said(200, {"items": [job_view()], "next_cursor": None}))) as server:
        _, out, _ = iris("ls", "--url", server.url, "-o", "json")

    assert json.loads(out) == {"items": [job_view()], "next_cursor": None}


def test_a_listing_may_be_of_one_label_or_of_the_jobs_below_another(iris):
    with answering(in_turn(Said(200, {"items": [], "next_cursor": None}))) as server:
        iris("ls", "--url", server.url, "--label", "team=vision", "--parent", "sweep", "-o", "json")

    query = parse_qs(urlsplit(server.requests[0].path).query)
    assert (query["label"], query["parent"]) == (["team=vision"], ["/sweep"])


@pytest.mark.parametrize(
    ("words", "asked"),
    [(("--order", "-duration"), "-duration"), (("--order=name",), "name"), ((), "-submitted")],
)
def test_a_listing_has_the_order_that_is_asked_for(iris, words, asked):
    with answering(in_turn(Said(200, {"items": [], "next_cursor": None}))) as server:
        assert iris("ls", "--url", server.url, *words)[0] == 0
        with Client(server.url) as client:
            assert list(client.jobs(order=asked)) == []

    orders = [parse_qs(urlsplit(request.path).query)["order"] for request in server.requests]
    assert orders == [[asked]] * 2


def test_an_order_that_is_none_is_refused_with_those_that_are(iris):
    code, _, err = iris("ls", "--order", "age")
    assert (code, "'-duration'" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "ls --user nobody --band batch -n 3",
            "nothing is listed for --user nobody --band batch\n",
        ),
        ("audit --of nobody -o json", "nothing is listed for --of nobody\n"),
        ("events --type task.notice", "nothing is listed for --type task.notice\n"),
        ("ls --order name", ""),
    ],
)
def test_an_empty_listing_says_for_what_it_is_empty(iris, words, said):
    with answering(in_turn(Said(200, {"items": [], "next_cursor": None}))) as server:
        code, _, err = iris(*words.split(), "--url", server.url)
    assert (code, err) == (ExitCode.SUCCEEDED, said)


@pytest.mark.parametrize(
    "words",
    [
        *(
            "run --tpu= true",
            "run --user= true",
            "run --idempotency-key= true",
            "deploy list --user=",
            "--url= ls",
        ),
        *("queue hold --user=", "audit --by=", "run --stop-signal= true"),
        *(
            "ls --prefix=",
            "ls --parent=",
            "quota show",
            "deploy show",
            "worker show",
            "session show",
            "deploy scale",
        ),
    ],
)
def test_an_empty_name_is_refused(iris, words):
    """That of a variable that is not set, which chose everything, or a path where nothing is."""
    with answering(in_turn(Said(200, {"items": [], "next_cursor": None}))) as server:
        empty = [] if "=" in words else ["", "1"] if words == "deploy scale" else [""]
        code, _, err = iris(*words.split(), *empty, "--url", server.url)
    assert (code, "must not be empty" in err, server.requests) == (ExitCode.USAGE, True, [])


def test_a_refused_filter_is_named_by_its_option(iris):
    mistake = {
        "pointer": "?name_prefix",
        "code": "wrong_value",
        "message": "cannot be '/é'",
        "hint": "such as /train",
    }
    refused = {
        "type": "",
        "title": "",
        "status": 422,
        "code": "invalid",
        "detail": "",
        "errors": [mistake],
    }
    with answering(in_turn(Said(422, refused))) as server:
        code, _, err = iris("ls", "--prefix", "é", "--url", server.url)
    assert (code, err) == (ExitCode.USAGE, "error: --prefix: cannot be '/é' (such as /train)\n")


def test_a_listing_as_names_or_lines_has_one_per_line(iris):
    page = Said(200, {"items": [job_view("/a"), job_view("/b")], "next_cursor": None})
    with answering(in_turn(page)) as server:
        names = iris("ls", "--url", server.url, "-o", "name")[1]
        lines = iris("ls", "--url", server.url, "-o", "jsonl")[1]

    assert names == "/a\n/b\n"
    assert [json.loads(line)["name"] for line in lines.splitlines()] == ["/a", "/b"]


def test_a_table_has_a_heading_and_a_row_per_job(iris):
    with answering(in_turn(Said(200, {"items": [job_view("/a")], "next_cursor": None}))) as server:
        _, out, _ = iris("ls", "--url", server.url)

    heading, row = out.splitlines()
    assert heading.split()[:3] == ["NAME", "STATE", "DONE"]
    assert row.split()[:5] == ["/a", "pending", "0/1", "ann", "interactive"]


def test_ids_are_shown_where_names_repeat(iris):
    jobs = [job_view("/a", id="j9"), job_view("/a", id="j7", next_run="j9")]
    with answering(in_turn(Said(200, {"items": jobs, "next_cursor": None}))) as server:
        _, out, _ = iris("ls", "--url", server.url)
        assert iris("ls", "--url", server.url, "-o", "name")[1] == "/a\nj7\n"

    assert [line.split()[:3] for line in out.splitlines()] == [
        ["NAME", "ID", "STATE"],
        ["/a", "j9", "pending"],
        ["/a", "j7", "pending"],
    ]


def test_a_command_that_is_nearly_one_is_named(iris):
    code, _, err = iris("cancle", "x")

    assert code == ExitCode.USAGE
    assert "'cancel'" in err


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "--cpu", "many", "--", "true"),
        ("run", "-e", "NOT_SET_ANYWHERE", "--", "true"),
        ("run", "--gpu", "1", "--tpu", "v4-8", "--", "true"),
        ("run", "-c", "a b", "--", "true"),
        ("logs", "x", "--grep", "("),
        ("ls", "--state", "happy"),
        ("up", "--workers", "-1"),
        ("show", ""),
    ],
)
def test_a_command_line_that_is_wrong_ends_with_2_and_asks_nobody(iris, words):
    with answering(in_turn(Said(500))) as server:
        code, _, err = iris("--url", server.url, *words)

        assert (code, server.requests) == (ExitCode.USAGE, [])
    assert err


def test_completion_is_printed_for_every_shell(iris):
    for shell in ("bash", "zsh", "fish"):
        assert "_IRIS_COMPLETE" in iris("completion", shell)[1]


def test_contexts_are_added_listed_and_used(iris):
    iris("context", "add", "home", "http://home:1")
    iris("context", "add", "work", "http://work:1", "--token", "secret")
    iris("context", "use", "work")
    _, out, _ = iris("context", "list", "-o", "jsonl")

    assert "secret" not in out
    assert [(row["name"], row["current"]) for row in map(json.loads, out.splitlines())] == [
        ("home", False),
        ("work", True),
    ]
    assert iris("context", "use", "nowhere")[0] == ExitCode.USAGE


def test_no_context_is_added_with_an_empty_token(iris, monkeypatch):
    """Not kept as none, which would be replaced by that of the local cluster's admin."""
    code, _, err = iris("context", "add", "work", "http://work:1", "--token", "")
    assert (code, "--token must not be empty" in err) == (ExitCode.USAGE, True)
    assert iris("context", "add", "", "http://work:1")[0] == ExitCode.USAGE
    monkeypatch.setenv("IRIS_TOKEN", "")
    code, _, err = iris("context", "add", "work", "http://work:1")
    assert (code, err) == (ExitCode.USAGE, "error: IRIS_TOKEN is set, but empty\n")
    assert load_contexts(contexts_path()).known == {}


def test_a_context_is_shown_without_its_token(iris):
    iris("context", "add", "work", "http://work:1", "--token", "secret")
    facts = "current  *\nname     work\nurl      http://work:1\ntoken    yes\n"
    assert iris("context", "show", "work") == (ExitCode.SUCCEEDED, facts, "")
    assert iris("context", "show", "work", "-o", "name")[1] == "work\n"
    missing = "error: there is no context 'home'; `iris context list` shows those there are\n"
    assert iris("context", "show", "home") == (ExitCode.USAGE, "", missing)


def test_a_context_takes_its_token_from_a_file_and_is_removed_with_it(iris, tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    iris("context", "add", "work", "http://work:1", "--token-file", str(tmp_path / "token"))
    assert load_contexts(contexts_path()) == Contexts(
        "work", {"work": Context("http://work:1", "s3cret")}
    )
    assert iris("context", "remove", "work")[0] == ExitCode.SUCCEEDED
    assert load_contexts(contexts_path()) == Contexts()
    assert iris("context", "remove", "work")[0] == ExitCode.USAGE
    (tmp_path / "token").write_text("\n")
    empty = iris("context", "add", "work", "http://work:1", "--token-file", str(tmp_path / "token"))
    assert empty[0] == ExitCode.USAGE


def test_wait_that_gives_up_says_how_long_it_has_waited_with_progress_too(iris):
    def answer(request):
        if request.path.endswith("/events"):
            return Said(headers=SSE, body=b"")
        return Said(200, job_view())

    with answering(answer) as server:
        code, _, err = iris(
            "wait", "--url", server.url, "/train", "--timeout", "0.2s", "--progress"
        )
    assert (code, "after 0.2 s" in err) == (ExitCode.WAIT_TIMEOUT, True)


def test_the_output_of_an_attempt_that_no_task_has_made_is_not_found(iris):
    task = {**TASK, "attempts": []}

    def answer(request):
        if "/logs" in request.path:
            return Said(headers=SSE, body=events(("end", {"state": "succeeded"})))
        return Said(200, {"items": [task], "next_cursor": None})

    with answering(answer) as server:
        code, out, err = iris("logs", "--url", server.url, "/train", "--attempt", "4")
        assert (code, out, err) == (ExitCode.NOT_FOUND, "", "no task of /train has an attempt 4\n")
        assert iris("logs", "--url", server.url, "/train")[0] == 0


def test_every_mistake_in_the_options_is_told_on_a_line_of_its_own(iris):
    code, _, err = iris(
        "run", "--url", "http://127.0.0.1:9", "--cpu", "x", "--memory", "y", "--", "true"
    )
    assert (code, err.count("error: ")) == (ExitCode.USAGE, 2)


@pytest.mark.parametrize(
    ("line", "mistakes"),
    [
        (
            "ls --frob --limit x --state nope",
            ["No such option '--frob'", "'--limit'", "'nope' is not one of"],
        ),
        (
            "show --frob=3 -o nope",
            ["No such option '--frob'", "'nope' is not one of", "Missing argument 'JOB|TASK'"],
        ),
        ("wait --timeout", ["'--timeout' requires an argument", "Missing argument 'JOB...'"]),
        ("worker drain --frob", ["No such option '--frob'", "Missing argument 'WORKER...'"]),
    ],
)
def test_every_mistake_in_a_line_that_cannot_be_read_is_told_at_once(iris, line, mistakes):
    code, _, err = iris(*line.split())
    _, said = err.split("Error: ")
    first, *rest = said.splitlines()
    assert (code, first) == (ExitCode.USAGE, f"{len(mistakes)} mistakes:")
    assert [words in row for words, row in zip(mistakes, rest, strict=True)] == [True] * len(
        mistakes
    )


def test_no_command_tells_one_mistake_after_the_other():
    ctx = click.Context(root)
    commands = [root.get_command(ctx, name) for name in root.list_commands(ctx)]
    commands += [
        one
        for group in commands
        if isinstance(group, click.Group)
        for one in group.commands.values()
    ]
    assert [one.name for one in commands if not isinstance(one, (CliCommand, CliGroup))] == []


@pytest.mark.parametrize("line", ["ls --limit x", "show", "ls --frob", "ls -zq", "show a b"])
def test_one_mistake_in_a_line_is_told_as_it_is(iris, line):
    code, _, err = iris(*line.split())
    assert (code, err.count("Error: "), "mistakes" in err) == (ExitCode.USAGE, 1, False)


def test_a_parent_that_is_not_there_is_refused_with_the_submission(iris):
    with answering(lambda request: problem(404, "not_found", "there is no job /nope")) as server:
        code, _, err = iris("run", "-d", "--url", server.url, "--parent", "nope", "true")
    assert (code, "there is no job /nope" in err) == (ExitCode.NOT_FOUND, True)
    sent = [(request.method, request.path) for request in server.requests]
    looked = [
        ("GET", "/v1/deployments/nope"),
        ("GET", "/v1/jobs?limit=500"),
    ]  # whether it is one, and the nearest name
    assert sent == [("POST", "/v1/jobs?parent=%2Fnope"), *looked]


def well(request):
    """A healthy cluster, as its gateway shows it."""
    worker = {
        "id": "w0",
        "state": "healthy",
        "attributes": {},
        "total": {},
        "committed": {},
        "tasks": [],
        "building": 0,
    }
    items = [{**worker, "last_heartbeat_at": None}] if "workers" in request.path else []
    return Said(200, {"version": VERSION, "items": items, "total": 0})


def test_doctor_says_what_is_wrong_why_it_matters_and_what_to_do(iris):
    code, out, _ = iris("doctor", "--url", "http://127.0.0.1:1")
    assert (code, "gateway_unreachable: the gateway at http://127.0.0.1:1" in out) == (
        ExitCode.UNEXPECTED,
        True,
    )
    assert [line.split(":")[0] for line in out.splitlines()[-3:-1]] == [
        "  why it matters",
        "  what to do",
    ]
    assert (
        "  see docs/troubleshooting.md#the-command-line-cannot-reach-the-gateway-exit-code-8" in out
    )


def test_doctor_says_of_a_healthy_cluster_that_nothing_is_wrong(iris):
    with answering(well) as server:
        code, out, _ = iris("doctor", "--url", server.url)
        assert (code, out.splitlines()[-1]) == (0, "nothing is wrong")
        code, out, _ = iris("doctor", "--url", server.url, "--json")
    assert (code, json.loads(out)["problems"]) == (0, [])


def test_doctor_looks_at_what_it_can_without_a_gateway(iris):
    for options, code in (
        ((), "gateway_unreachable"),
        (("--nats", "nats://127.0.0.1:1"), "nats_unreachable"),
    ):
        exit_code, out, _ = iris("doctor", "--json", *options)
        assert (exit_code, [problem["code"] for problem in json.loads(out)["problems"]]) == (
            1,
            [code],
        )


@pytest.mark.parametrize("ahead_s", [-60, 60])
def test_doctor_tells_that_the_gateways_clock_is_off(iris, ahead_s):
    def off(request):
        return replace(
            well(request), headers={"Date": formatdate(time.time() + ahead_s, usegmt=True)}
        )

    with answering(off) as server:
        code, out, _ = iris("doctor", "--url", server.url, "--json")
    [found] = json.loads(out)["problems"]
    assert (code, found["code"], "the clock of the gateway is" in found["what"]) == (
        1,
        "clock_off",
        True,
    )


def test_help_of_a_service_is_its_own_and_names_its_keys():
    command = [sys.executable, "-m", "iris.cli", "server", "worker", "--help"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "usage: iris server worker" in done.stdout
    assert "bundles_kept" in done.stdout


def test_a_gateway_that_does_not_answer_yet_is_waited_for_on_request(iris):
    def starting():
        return in_turn(Said(hang_up=True), Said(hang_up=True), Said(200, {"items": []}))

    with answering(starting()) as server:
        at_once = iris("--url", server.url, "ls")
    with answering(starting()) as server:
        waited = iris("--url", server.url, "--retry-for", "20s", "ls")
    assert (at_once[0], waited[0]) == (ExitCode.UNREACHABLE, ExitCode.SUCCEEDED)


def test_a_command_says_why_it_waits_and_ends_when_it_is_told_to(iris):
    refused = problem(503, "unavailable", "no replica of the state service leads")
    refused.headers = {**refused.headers, "Retry-After": "1"}
    with answering(in_turn(refused)) as server:
        code, _, err = iris("--url", server.url, "--retry-for", "2s", "ls")
        at_once = iris("--url", server.url, "--retry-for", "0s", "ls")
    assert code == at_once[0] == ExitCode.TRY_AGAIN
    assert (
        err.count(
            "waiting: no replica of the state service leads; jobs go on; trying again for up to 2 s"
        )
        == 1
    )
    assert "waiting" not in at_once[2]


def test_the_version_is_that_of_the_distribution(iris):
    assert iris("--version") == (0, f"{DISTRIBUTION}, version {VERSION}\n", "")


@pytest.mark.parametrize(
    ("words", "unit"),
    [
        (["run"], "--timeout SECONDS|10m "),
        (["run"], "--not-before SECONDS|10m|DATE "),
        (["deploy", "create"], "--grace SECONDS|10m "),
        (["wait"], "--timeout SECONDS|10m "),
        (["logs"], "--since SECONDS|10m|DATE "),
        ([], "--retry-for SECONDS|10m "),
    ],
)
def test_the_help_of_a_time_says_what_a_bare_number_is(iris, words, unit):
    code, out, _ = iris(*words, "--help")
    assert (code, unit in out, "TIME " in out) == (0, True, False)
