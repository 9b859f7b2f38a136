"""Names in URLs reach the state service decoded exactly as the client encoded them."""

from urllib.parse import parse_qsl, quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.errors import Refused
from iris_core.names import JobName
from iris_core.views.queries import AuditQuery, DemandQuery, JobsQuery, arguments_of, view_name
from iris_gateway.http.parameters import (
    job_reference,
    read_owner,
    read_query,
    segment,
    task_reference,
)
from iris_gateway.http.problem import ProblemResponse

component = st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{0,20}", fullmatch=True)
names = st.lists(component, min_size=1, max_size=16).map(lambda parts: "/" + "/".join(parts))


@given(names)
def test_a_name_survives_the_url(name: str):
    assert job_reference(segment(quote(name, safe=""))) == name


@given(names, st.integers(0, 9999))
def test_a_tasks_name_survives_the_url(name: str, index: int):
    assert task_reference(segment(quote(f"{name}/{index}", safe=""))) == f"{name}/{index}"


def test_a_name_without_its_leading_slash_is_a_root_jobs():
    assert (job_reference("llama"), job_reference("llama/eval"), job_reference("j7")) == (
        "/llama",
        "/llama/eval",
        "j7",
    )
    assert task_reference("llama/0") == "/llama/0"


def test_a_name_and_an_id_may_have_their_owner():
    texts = ("/train@ann", "train@mia@lab.org", "j7@ann")
    assert [job_reference(text) for text in texts] == ["/train@ann", "/train@mia@lab.org", "j7@ann"]
    assert [task_reference(text) for text in ("train/0@ann", "j7/0@ann")] == [
        "/train/0@ann",
        "j7/0@ann",
    ]
    assert [job_reference("train", "ann"), job_reference("j7@ann", "ann")] == [
        "/train@ann",
        "j7@ann",
    ]
    assert task_reference("/train/0", "ann") == "/train/0@ann"


@pytest.mark.parametrize(
    ("text", "user"),
    [("/train@", ""), ("/train@a b", ""), ("/train@-x", ""), ("/train@ann", "bob"), ("/a", "a/b")],
)
def test_what_is_no_users_name_names_no_job(text: str, user: str):
    for read in (job_reference, lambda text, user: task_reference(text.replace("@", "/0@"), user)):
        with pytest.raises(ProblemResponse, match="no such"):
            read(text, user)


def test_an_owner_before_the_index_is_said_to_come_last():
    for read in (job_reference, task_reference):
        with pytest.raises(ProblemResponse, match="the owner comes last: ten/0@ann"):
            read("ten@ann/0")


@pytest.mark.parametrize("texts", [[""], ["a" * 129], ["ann", "bob"]])
def test_an_owner_is_given_once_and_not_empty(texts: list[str]):
    assert (read_owner([]), read_owner(["ann"])) == ("", "ann")
    with pytest.raises(ProblemResponse) as refused:
        read_owner(texts)
    assert (refused.value.code, refused.value.errors[0].pointer) == ("invalid", "?user")


@given(st.text(max_size=30))
def test_any_other_text_names_no_job_or_is_a_valid_name(text: str):
    text = text.replace("@", "")  # behind which an owner follows
    try:
        wanted = str(JobName.job(text if text.startswith("/") else f"/{text}"))
    except Refused:
        wanted = None
    if text[:1] == "j" and text[1:].isascii() and text[1:].isdigit() and text[1] != "0":
        wanted = text
    if wanted is None:
        with pytest.raises(ProblemResponse, match="no such job"):
            job_reference(text)
    else:
        assert job_reference(text) == wanted


@given(st.text(max_size=20))
def test_any_text_survives_a_segment(text: str):
    assert segment(quote(text, safe="")) == text


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4))
def test_what_nobody_reads_is_refused_by_name(given_: dict[str, str]):
    if given_:
        with pytest.raises(ProblemResponse) as raised:
            read_query(DemandQuery, given_.items())
        assert {mistake.pointer for mistake in raised.value.errors} == {
            f"?{name}" for name in given_
        }
    else:
        assert read_query(DemandQuery, given_.items()) == DemandQuery()


@pytest.mark.parametrize(
    ("text", "ms"), [("90s", 10_000), ("1m", 40_000), ("1970-01-01T00:00:01+00:00", 1000)]
)
def test_a_moment_is_a_time_or_a_period_before_now(text: str, ms: int):
    assert read_query(AuditQuery, [("since", text)], now_ms=100_000).since_ms == ms


@pytest.mark.parametrize(
    "query",
    [
        *(
            "limit=0",
            "limit=501",
            "limit=-1",
            "limit=1e2",
            "limit=",
            "cursor=a b",
            "cursor=" + "a" * 1025,
        ),
        *(
            "state=gone",
            "state=",
            "user=",
            "user=" + "u" * 129,
            "band=best",
            "name_prefix=train",
            "name_prefix=/a%0A",
        ),
        *(
            "label=team",
            "label=a=" + "b" * 511,
            "order=age",
            "without_routes=maybe",
            "state=failed&state=failed",
        ),
        *("since_ms=1", "names=/a", "job=/a"),
    ],
)
def test_a_parameter_out_of_its_limits_is_a_mistake(query: str):
    with pytest.raises(ProblemResponse) as raised:
        read_query(JobsQuery, parse_qsl(query, keep_blank_values=True))
    (mistake,) = raised.value.errors
    assert mistake.pointer == "?" + query.partition("=")[0]


def test_every_mistake_in_a_query_is_told_at_once():
    with pytest.raises(ProblemResponse) as raised:
        read_query(JobsQuery, [("limit", "0"), ("state", "gone"), ("colour", "red")])
    assert {one.code for one in raised.value.errors} == {
        "out_of_range",
        "wrong_value",
        "unknown_parameter",
    }


def test_a_query_sends_what_differs_from_its_defaults():
    query = read_query(JobsQuery, [("without_routes", ""), ("parent", "train"), ("limit", "100")])
    assert (view_name(JobsQuery), arguments_of(query)) == (
        "jobs",
        {"without_routes": True, "parent": "/train"},
    )


def test_a_task_where_a_job_is_wanted_is_said_to_be_one():
    with pytest.raises(ProblemResponse, match=r"no such job: 'long/0' is the name of a task"):
        job_reference("long/0")
