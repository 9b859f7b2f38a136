import json
import threading

import pytest

from iris.client.async_client import AsyncClient
from iris.client.client import Client
from iris.client.executions import RemoteCommand
from iris.client.http.transport import RETRY_FOR_S, HttpRequest, in_path
from iris.client.jobs import Job
from iris.client.problems import Conflict, Problem, Rejected, TryAgain, Unreachable, problem_from
from iris_core import DISTRIBUTION
from iris_core.spec.jobs import JobSpec
from iris_service.version import VERSION
from tests.support.answers import Said, answering, events, in_turn, job_view, problem

SSE = {"Content-Type": "text/event-stream"}
ENDED = {
    "job": "/train",
    "job_id": "j7",
    "state": "succeeded",
    "previous": "running",
    "cause": None,
    "at_ms": 1,
    "seq": 2,
}
SPEC = JobSpec(name="/train", command=("true",))


def submit(server, **options):
    with Client(server.url, **options) as client:
        return client.submit(SPEC)


def keys(server):
    return [request.headers.get("Idempotency-Key") for request in server.requests]


def test_not_now_is_sent_again_under_the_same_key():
    with answering(in_turn(problem(503, "unavailable", "soon"), Said(201, job_view()))) as server:
        job = submit(server)

    assert (job.name, len(keys(server)), len(set(keys(server)))) == ("/train", 2, 1)
    assert all(keys(server))


def test_what_arrived_too_slowly_is_sent_again():
    """An answer to HEAD has no document."""
    with answering(
        in_turn(Said(408, b""), problem(408, "timeout", "too slow"), Said(200, []))
    ) as server:
        with Client(server.url) as client:
            client.transport.send(HttpRequest("HEAD", "/v1/bundles/x"))

        assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("application/problem+json", "answered 401: the token is missing, is not known or has"),
        ("text/html", "answered 401, which is not an answer of Iris: a proxy in front"),
    ],
)
def test_a_refusal_of_a_head_says_what_its_status_says(kind, said):
    refused = Said(401, b"", headers={"Content-Type": kind})
    with (
        answering(in_turn(refused)) as server,
        Client(server.url) as client,
        pytest.raises(Problem, match=said),
    ):
        client.transport.send(HttpRequest("HEAD", "/v1/bundles/x"))


def test_a_connection_that_breaks_is_tried_again_under_the_same_key():
    with (
        answering(in_turn(Said(200, []), Said(hang_up=True), Said(201, job_view()))) as server,
        Client(server.url) as client,
    ):
        client.get("/v1/meta", list)
        client.submit(SPEC)

        assert len(set(keys(server)[1:])) == 1
        assert len(keys(server)) == 3


def test_a_key_of_the_callers_own_is_used():
    with answering(in_turn(Said(201, job_view()))) as server, Client(server.url) as client:
        client.submit(SPEC, idempotency_key="mine")

        assert keys(server) == ["mine"]


def test_the_timeout_ends_with_the_refusal_itself():
    with (
        answering(in_turn(problem(503, "unavailable", "soon"))) as server,
        pytest.raises(TryAgain, match="soon"),
    ):
        submit(server, retry_for_s=0.2)


def test_a_wait_longer_than_the_timeout_is_not_begun():
    given = problem(429, "over_quota", "too many")
    given.headers = {**given.headers, "Retry-After": "30"}
    with answering(in_turn(given)) as server:
        with pytest.raises(TryAgain):
            submit(server, retry_for_s=1)

        assert len(server.requests) == 1


def test_a_refusal_is_not_sent_again():
    with answering(in_turn(problem(409, "conflict", "/train is running"))) as server:
        with pytest.raises(Conflict, match="/train is running"):
            submit(server)

        assert len(server.requests) == 1


def started(server):
    with Client(server.url) as client, RemoteCommand(client, "/a/0", ["true"]) as command:
        list(command)
    return command.exit_code


def test_a_command_starts_again_only_if_the_gateway_says_it_did_not():
    not_begun = problem(503, "unavailable", "w0 is not connected", retryable=True)
    output = b'{"execution":"id1.w0"}\n{"ended":true,"exit_code":4}\n'
    with answering(in_turn(not_begun, Said(200, output))) as server:
        assert (started(server), len(server.requests)) == (4, 2)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (problem(503, "unavailable", "w0 does not answer", retryable=False), TryAgain),
        (Said(502, b"a proxy says so"), TryAgain),
        (Said(hang_up=True), Unreachable),
    ],
)
def test_a_command_that_may_have_begun_is_not_started_again(given, error):
    with answering(in_turn(given)) as server:
        with pytest.raises(error):
            started(server)

        assert len(server.requests) == 1


def test_nobody_there_is_one_plain_sentence():
    with pytest.raises(
        Unreachable,
        match=r"^the gateway at http://127\.0\.0\.1:9 .*does not answer: Connection refused$",
    ):
        Client("http://127.0.0.1:9").get("/v1/meta", dict)


def test_connections_are_kept():
    with answering(in_turn(Said(200, []))) as server, Client(server.url) as client:
        for _ in range(3):
            client.get("/v1/meta", list)

        assert len({request.connection for request in server.requests}) == 1


def test_the_token_is_sent_as_bearer():
    with answering(in_turn(Said(200, []))) as server, Client(server.url, token="secret") as client:
        client.get("/v1/meta", list)

        assert server.requests[0].headers["Authorization"] == "Bearer secret"


def test_a_name_is_one_segment_of_a_path():
    with answering(in_turn(Said(200, job_view("/a/b c")))) as server, Client(server.url) as client:
        client.job("/a/b c")

        assert server.requests[0].path == "/v1/jobs/%2Fa%2Fb%20c"
        assert in_path("/a/b") == "%2Fa%2Fb"


def test_all_mistakes_of_a_refused_submission_are_kept():
    given = problem(
        422,
        "invalid",
        "two",
        errors=[{"pointer": "/replicas", "code": "range", "message": "0 is too few", "hint": "1"}],
    )
    with answering(in_turn(given)) as server, pytest.raises(Rejected) as caught:
        submit(server)

    assert [
        (mistake.pointer, mistake.message, mistake.hint) for mistake in caught.value.mistakes
    ] == [("/replicas", "0 is too few", "1")]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"\xff", b'{"detail": 3}'])
def test_an_answer_that_is_no_problem_document_is_still_a_problem(body):
    problem = problem_from(500, body, gateway="https://iris.example.org")

    assert type(problem) is Problem
    assert problem.status == 500
    assert str(problem).startswith(
        "iris.example.org answered 500, which is not an answer of Iris: "
    )


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (502, b"<html><h1>502 Bad Gateway</h1>", "a proxy cannot reach the gateway"),
        (413, b"<html><h1>413</h1>", "limits the size of requests"),
        (302, b"<html>sign in", "check that this is the gateway's address"),
        (200, b"<html>sign in", "check that this is the gateway's address"),
        (504, b'{"message": "upstream"}', "a proxy cannot reach the gateway"),
    ],
)
def test_a_proxys_page_becomes_one_line(status: int, body: bytes, words: str):
    answer = Said(status, body, {"Content-Type": "text/html"} if body.startswith(b"<") else {})
    with answering(in_turn(answer)) as server, pytest.raises(Problem) as caught:
        submit(server, retry_for_s=0)

    assert f"{server.url.removeprefix('http://')} answered {status}" in str(caught.value)
    assert words in str(caught.value)
    assert "<" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "gateway", "address"),
    [
        ("/problems/conflict", "http://gateway:8080", "http://gateway:8080/problems/conflict"),
        (
            "/problems/conflict",
            "https://example.org/iris/",
            "https://example.org/iris/problems/conflict",
        ),
        ("about:blank", "http://gateway:8080", "about:blank"),
        ("", "http://gateway:8080", ""),
    ],
)
def test_the_type_of_a_problem_is_an_address_below_the_gateways(given, gateway, address):
    body = json.dumps({"type": given, "code": "conflict"}).encode()

    assert problem_from(409, body, gateway=gateway).type == address


def test_pages_are_fetched_until_the_limit_is_reached():
    pages = {
        None: {"items": [1, 2], "next_cursor": "x"},
        "x": {"items": [3, 4], "next_cursor": "y"},
    }

    def answer(request):
        cursor = request.path.partition("cursor=")[2] or None
        return Said(200, pages[cursor])

    with answering(answer) as server, Client(server.url) as client:
        assert list(client.pages("/v1/jobs", int, limit=3)) == [1, 2, 3]
        assert len(server.requests) == 2


def test_what_was_written_goes_along_with_every_later_read():
    written = Said(201, job_view(), {"Iris-Position": "41"})
    with answering(in_turn(written, Said(200, job_view()))) as server, Client(server.url) as client:
        client.submit(SPEC)
        client.job("/train")
        client.job("/train")

        assert [request.headers.get("Iris-Position") for request in server.requests] == [
            None,
            "41",
            "41",
        ]


def test_what_an_event_has_told_is_known_to_later_reads():
    told = {
        "job": "/train",
        "job_id": "j7",
        "state": "succeeded",
        "previous": "running",
        "cause": None,
        "at_ms": 1,
        "seq": 57,
    }
    stream = Said(200, events(("job.state.succeeded", told)), {"Content-Type": "text/event-stream"})
    with answering(in_turn(stream, Said(200, job_view()))) as server, Client(server.url) as client:
        assert next(client.events()).seq == 57
        client.job("/train")

        assert server.requests[-1].headers["Iris-Position"] == "57"


def refusing(seconds="1"):
    refused = problem(503, "unavailable", "no replica of the state service leads")
    refused.headers = {**refused.headers, "Retry-After": seconds}
    return refused


def saying(client):
    said = []
    client.transport.on_wait = lambda why, seconds: said.append((why, round(seconds, -1)))
    client.transport.on_back = lambda: said.append("back")
    return said


def test_why_a_request_waits_is_said_once_and_that_it_is_answered():
    with (
        answering(in_turn(refusing(), refusing(), Said(201, job_view()))) as server,
        Client(server.url) as client,
    ):
        said = saying(client)
        client.submit(SPEC)

    assert said == [("no replica of the state service leads", 90), "back"]


def test_a_wait_of_several_requests_is_said_once():
    gate = threading.Barrier(2)
    refused = threading.local()

    def answer(_):
        gate.wait(60)  # each is answered when both have been refused, and have been sent again
        if getattr(refused, "already", False):
            return Said(200, job_view())
        refused.already = True  # each connection has a thread
        return refusing()

    with answering(answer) as server, Client(server.url) as client:
        said = saying(client)
        threads = [threading.Thread(target=client.job, args=("/train",)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    assert said == [("no replica of the state service leads", 90), "back"]


@pytest.mark.parametrize(
    "wait", [Job.wait, lambda job: list(job.follow()), lambda job: list(job.logs())]
)
def test_a_lost_stream_that_is_not_opened_again_is_said_once(wait):
    """The stream breaks off, the gateway refuses, and sends the end of the job."""
    streams = [events(("job", {})), None, events(("job.state.succeeded", ENDED), ("end", {}))]
    states = ["running"]

    def answer(request):
        if request.headers["Accept"] != "text/event-stream":
            return Said(200, job_view(state=states[-1]))
        body = streams.pop(0)
        if not streams:
            states.append("succeeded")
        return refusing() if body is None else Said(headers=SSE, body=body)

    with answering(answer) as server, Client(server.url) as client:
        said, job = saying(client), client.job("/train")
        wait(job)

    assert said == [("no replica of the state service leads", 90), "back"]


def test_the_log_says_that_jobs_go_on_and_that_the_request_is_answered(caplog):
    with answering(in_turn(refusing(), Said(201, job_view()))) as server:
        submit(server)

    waits = "no replica of the state service leads; jobs go on; trying again for up to 90 s"
    assert caplog.messages == [waits, "the request was answered"]


@pytest.mark.parametrize("wait", [Job.wait, lambda job: list(job.follow())])
def test_the_error_of_a_wait_for_a_job_says_how_to_return_to_it(wait):
    answers = in_turn(Said(200, job_view()), Said(hang_up=True))
    with answering(answers) as server, Client(server.url, retry_for_s=0.1) as client:
        job = client.job("/train")
        with pytest.raises(
            Unreachable, match=r"does not answer.*; /train goes on: `client\.job\('j7'\)`"
        ):
            wait(job)


async def test_an_asynchronous_wait_says_how_to_return_to_its_job():
    answers = in_turn(Said(200, job_view()), problem(503, "unavailable", "soon"))
    with answering(answers) as server:
        async with AsyncClient(server.url, retry_for_s=0.1) as client:
            job = await client.job("/train")
            with pytest.raises(TryAgain, match=r"soon; /train goes on: `client\.job\('j7'\)`"):
                await job.wait()


def test_a_short_wait_is_not_worth_a_word():
    with (
        answering(in_turn(problem(503, "unavailable", "soon"), Said(201, job_view()))) as server,
        Client(server.url) as client,
    ):
        said = []
        client.transport.on_wait = lambda why, seconds: said.append(why)
        client.submit(SPEC)

    assert said == []


def test_every_request_names_the_distribution_and_its_release():
    with answering(in_turn(Said(201, job_view()))) as server:
        submit(server)
        assert [request.headers["User-Agent"] for request in server.requests] == [
            f"{DISTRIBUTION}/{VERSION}"
        ]


@pytest.mark.parametrize(
    ("inside", "given", "seconds"),
    [(True, {}, RETRY_FOR_S), (True, {"retry_for_s": 0.0}, 0.0), (False, {}, 0.0)],
)
def test_a_task_waits_for_its_first_answer_as_long_as_for_others(
    monkeypatch, inside, given, seconds
):
    monkeypatch.delenv("IRIS_JOB", raising=False)
    if inside:
        monkeypatch.setenv("IRIS_JOB", "/train")
    with Client("http://127.0.0.1:9", **given) as client:
        assert client.transport.current_timeout_s == seconds
