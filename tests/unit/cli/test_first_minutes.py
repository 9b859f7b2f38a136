"""First mistakes at the command line, each answered with what to do; texts are compared whole."""

import pytest

from iris.cli.exit_codes import ExitCode
from tests.support.answers import Said, answering, job_view, problem

NOWHERE = ("--url", "http://127.0.0.1:9")


def said(err):
    """The error's line, without click's usage lines."""
    return [line for line in err.splitlines() if line.startswith(("Error:", "error:", "warning:"))]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("kill", "x"), "'kill'. Did you mean 'cancel'?"),
        (("stop",), "'stop'. Did you mean 'cancel' or 'down'?"),
        (("delete",), "'delete'. Did you mean 'cancel'?"),
        (("status",), "'status'. Did you mean 'ls' or 'show'?"),
        (("ps",), "'ps'. Did you mean 'ls'?"),
        (("submit",), "'submit'. Did you mean 'run'?"),
        (("help",), "'help'. Did you mean '--help'?"),
        (("squeue",), "'squeue'. Did you mean 'ls' or 'queue'?"),
        (("cansel",), "'cansel'. Did you mean 'cancel' or 'close'?"),
        (("zzzz",), "'zzzz'."),
        (("deploy", "creat"), "'creat'. Did you mean 'create'?"),
        (("worker", "describe"), "'describe'. Did you mean 'show'?"),
    ],
)
def test_an_unknown_command_names_the_one_that_was_meant(iris, words, meant):
    code, out, err = iris(*words)
    assert (code, out, said(err)) == (ExitCode.USAGE, "", [f"Error: There is no command {meant}"])


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("worker", "ls"), ("GET", "/v1/workers")),
        (("worker", "list"), ("GET", "/v1/workers")),
        (("session", "ls"), ("GET", "/v1/sessions")),
        (("deploy", "ls"), ("GET", "/v1/deployments")),
        (("quota", "ls"), ("GET", "/v1/quotas")),
        (("deploy", "rm", "chat"), ("GET", "/v1/deployments/chat")),
        (("worker", "rm", "w0"), ("POST", "/v1/workers/w0/forget")),
    ],
)
def test_groups_take_the_same_words(iris, words, asked):
    with answering(lambda _: problem(403, "forbidden", "no")) as server:
        iris("--url", server.url, *words)
        first = server.requests[0]
    assert (first.method, first.path.partition("?")[0]) == asked


def test_a_name_that_does_not_exist_is_answered_with_the_nearest_one(iris):
    def answer(request):
        if request.path.startswith("/v1/jobs?"):
            return Said(
                200, {"items": [job_view("/train"), job_view("/eval")], "next_cursor": None}
            )
        return problem(404, "not_found", "there is no job /trian")

    with answering(answer) as server:
        code, out, err = iris("show", "--url", server.url, "trian")
    assert (code, out, err) == (
        ExitCode.NOT_FOUND,
        "",
        "error: there is no job /trian; did you mean /train?\n",
    )


@pytest.mark.parametrize("name", ["ann/train", "/ann/train", "ann/train/0"])
def test_a_job_of_somebody_else_is_suggested_by_the_name_that_leads_to_it(iris, name):
    """A caller writes a path, as for files; ``/train`` may be a job of the caller's own."""

    def answer(request):
        if request.path == "/v1/jobs/%2Ftrain%40ann":
            return Said(200, job_view("/train"))
        if request.path.startswith("/v1/jobs?"):
            return Said(200, {"items": [job_view("/train", user="mia")], "next_cursor": None})
        return problem(404, "not_found", "there is no job /ann/train")

    with answering(answer) as server:
        code, _, err = iris("cancel", "--url", server.url, name)
    words = "error: there is no job /ann/train; did you mean /train@ann?\n"
    assert (code, err) == (ExitCode.NOT_FOUND, words)


def test_the_name_of_a_deployment_is_not_answered_with_one_of_its_routes(iris):
    def answer(request):
        if request.path == "/v1/deployments/chat":
            return Said(200, {"name": "chat"})
        if request.path.startswith("/v1/jobs?"):
            return Said(200, {"items": [job_view("/chat/r3-6")], "next_cursor": None})
        return problem(404, "not_found", "there is no job /chat")

    with answering(answer) as server:
        code, _, err = iris("logs", "--url", server.url, "chat")
    words = "error: there is no job /chat; chat is a deployment, see `iris deploy --help`\n"
    assert (code, err) == (ExitCode.NOT_FOUND, words)


def test_a_command_line_in_one_word_is_refused_with_both_ways_to_write_it(iris):
    code, _, err = iris("run", *NOWHERE, "echo hi")
    words = "'echo hi' is one word, and no program is called that; write: echo hi, or in a shell: sh -c 'echo hi'"
    assert (code, said(err)) == (ExitCode.USAGE, [f"Error: {words}"])


def test_a_relative_program_that_is_not_here_is_refused(iris, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = iris("run", *NOWHERE, "./nope.sh", "-x")
    words = (
        "there is no ./nope.sh here, and a relative path is uploaded only with or below --workdir"
    )
    assert (code, said(err)) == (ExitCode.USAGE, [f"Error: {words}"])
    assert iris("run", *NOWHERE, "--image", "lab/train:1", "./nope.sh")[0] == ExitCode.UNREACHABLE


def test_a_script_that_is_not_here_is_warned_of(iris, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    with answering(lambda _: Said(201, job_view())) as server:
        to = ("run", "-d", "--url", server.url)
        first, *rest = iris(*to, "python", "train.py")[2].splitlines()
        inside = iris(*to, "--workdir", "code", "python3", "train.py")[2]
        (tmp_path / "train.py").touch()
        here = iris(*to, "python", "train.py")[2]
    text = "warning: there is no train.py here, so the hosts must have it; --workdir DIR uploads a directory"
    assert (first, rest, here) == (text, [], "")
    assert inside.splitlines()[0] == "warning: code has no train.py, so the hosts must have it"


def test_exec_takes_the_only_task_of_a_job(iris):
    tasks = [
        {"task": f"/train/{index}", "job": "/train", "index": index, "state": "running"}
        for index in range(2)
    ]
    tasks = [
        {**task, **dict.fromkeys(("pending_reason", "worker")), "attempts": []} for task in tasks
    ]
    tasks = [{**task, "failure_count": 0, "preemption_count": 0} for task in tasks]

    def answer(of):
        def respond(request):
            if request.method == "GET":
                return Said(200, {"items": of, "next_cursor": None})
            return problem(409, "conflict", "it has ended")

        return respond

    with answering(answer(tasks[:1])) as server:
        iris("exec", "--url", server.url, "train", "ls")
        assert [request.path for request in server.requests][-1].startswith(
            "/v1/tasks/%2Ftrain%2F0/"
        )
    with answering(answer(tasks)) as server:
        code, _, err = iris("exec", "--url", server.url, "train", "ls")
    assert (code, said(err)) == (
        ExitCode.USAGE,
        ["Error: /train has several tasks; specify one, for example /train/0"],
    )
