"""Invalid input of every kind gets a problem that names the error, stores nothing, and causes no
traceback.
"""

import asyncio
import json

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris_core.messages.gateway_state import Caller
from iris_gateway.api.work.admission import spec_from
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.service import HttpServer
from iris_gateway.settings import GatewaySettings
from iris_service.listening import listen
from tests.support.gateway import House, house

GOOD = {"name": "/train", "command": ["true"]}
JSON = {"content-type": "application/json"}


async def pointers(iris: House, body: object) -> list[str]:
    response = await iris.http.post("/v1/jobs", content=json.dumps(body), headers=JSON)
    assert (response.status_code, iris.state.commands) == (422, [])
    return [mistake["pointer"] for mistake in response.json()["errors"]]


async def test_every_mistake_is_listed_at_once(iris: House):
    body = {
        "name": "..",
        "command": "x",
        "replicas": 0,
        "zz": 1,
        "env": {"a/b": 1},
        "ports": ["web", 7],
    }
    assert sorted(await pointers(iris, body)) == [
        "/command",
        "/env/a~1b",
        "/name",
        "/ports/1",
        "/replicas",
        "/zz",
    ]


@pytest.mark.parametrize(
    ("field", "value", "pointer"),
    [
        ("replicas", "3", "/replicas"),
        ("replicas", 2.5, "/replicas"),
        ("replicas", True, "/replicas"),
        ("replicas", None, "/replicas"),
        ("replicas", 10_001, "/replicas"),
        ("replicas", 2**70, "/replicas"),
        ("command", [], "/command"),
        ("command", ["a", None], "/command/1"),
        ("env", [], "/env"),
        ("env", {"A": "\0"}, "/env/A"),
        ("resources", {"cpu": 1}, "/resources/cpu"),
        ("resources", {"device": {"kind": "fpga"}}, "/resources/device/kind"),
        ("constraints", [{"key": "a"}, {"op": "eq"}], "/constraints/1/key"),
        ("constraints", [{"key": "a", "op": "eq", "value": 2**80}], "/constraints/0/value"),
        ("timeout_s", -1, "/timeout_s"),
        ("band", "urgent", "/band"),
        ("coscheduling", {"group_by": 3}, "/coscheduling/group_by"),
        ("coscheduling", {"group_by": []}, "/coscheduling/group_by"),
        ("coscheduling", {"group_by": ["rack"]}, "/coscheduling/group_by/0"),
        (
            "coscheduling",
            {"group_by": [{"key": "rack", "mode": "near"}]},
            "/coscheduling/group_by/0/mode",
        ),
        (
            "coscheduling",
            {"group_by": [{"key": "rack"}, {"key": "rack"}]},
            "/coscheduling/group_by/1/key",
        ),
        ("coscheduling", {"group_by": "rack", "success": "most"}, "/coscheduling/success"),
        ("bundle", "../../etc/passwd", "/bundle"),
        ("name", "/a/../b", "/name"),
        ("name", "/a*", "/name"),
        ("name", "/a b", "/name"),
        ("name", "/a\nb", "/name"),
        ("name", "/a\u0000", "/name"),
        ("name", "/a>", "/name"),
        ("name", "", "/name"),
        ("name", "a*b", "/name"),
        ("name", "/7", "/name"),
        ("name", "/" + "a/" * 16 + "a", "/name"),
        ("name", "/" + "a" * 64, "/name"),
    ],
)
async def test_one_wrong_field_is_named(iris: House, field: str, value: object, pointer: str):
    assert pointer in await pointers(iris, {**GOOD, field: value})


@pytest.mark.parametrize("body", [[], "x", 1, None, True])
async def test_a_body_that_is_no_object_is_refused_as_a_whole(iris: House, body: object):
    assert await pointers(iris, body) == [""]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"name"', b"\xff", b'{"a":NaN}', b'{"name":"\\ud800"}', b"{}{}", b"[" * 100_000],
)
async def test_what_is_not_json_is_refused_saying_where_it_stops(iris: House, body: bytes):
    response = await iris.http.post("/v1/jobs", content=body, headers=JSON)
    assert (response.status_code, response.json()["code"], iris.state.commands) == (
        400,
        "malformed",
        [],
    )


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"]
)
async def test_another_media_type_is_refused(iris: House, kind: str):
    response = await iris.http.post(
        "/v1/jobs", content=json.dumps(GOOD), headers={"content-type": kind}
    )
    assert (response.status_code, iris.state.commands) == (415, [])


async def test_json_may_name_its_character_set(iris: House):
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert (
        await iris.http.post("/v1/jobs", content=json.dumps(GOOD), headers=headers)
    ).status_code == 201


async def test_a_body_over_the_limit_is_refused_also_without_its_length(iris: House):
    async def endless():
        for _ in range(40):
            yield b" " * (1 << 16)

    big = json.dumps({**GOOD, "env": {"A": "x" * (10 << 20)}})
    statuses = [
        (await iris.http.post("/v1/jobs", content=content, headers=JSON)).status_code
        for content in (big, endless())
    ]
    assert (statuses, iris.state.commands) == ([413, 413], [])


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=-1",
        "limit=ten",
        "limit=1&limit=2",
        "limit=%D9%A1",
        "limit=" + "9" * 400,
        "cursor=../..",
        "cursor=%00",
        "cursor=" + "a" * 2000,
        "state=RUNNING",
        "state=",
        "band=1",
        "unknown=1",
        "user=" + "u" * 200,
        "name_prefix=a*",
    ],
)
async def test_a_wrong_query_parameter_is_named(iris: House, query: str):
    response = await iris.http.get(f"/v1/jobs?{query}")
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "?" + query.partition("=")[0]
    assert iris.state.queries == []


@pytest.mark.parametrize(
    "segment",
    [
        "..",
        "%2e%2e",
        "%2F..%2F..%2Fetc%2Fpasswd",
        "%252Ftrain",
        "%2F*",
        "%2Fa%0Ab",
        "%2Fa%00",
        "%ff%fe",
        "%zz",
        "%2F",
        "%2Ftrain%2F0",
        "%2F" + "a" * 5000,
        "é",
    ],
)
async def test_a_path_that_can_name_no_job_is_not_found(iris: House, segment: str):
    response = await iris.http.get(f"/v1/jobs/{segment}")
    assert (response.status_code, iris.state.queries) == (404, [])
    assert response.headers["content-type"] == "application/problem+json"


async def test_slashes_that_are_not_encoded_lead_nowhere(iris: House):
    await iris.submit("/train")
    assert (await iris.http.get("/v1/jobs//train")).status_code == 404


async def test_a_wrong_method_says_which_are_right(iris: House):
    response = await iris.http.request("DELETE", "/v1/jobs/j1")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD, PATCH")


async def test_every_answer_carries_a_request_id_and_keeps_the_callers(iris: House):
    given = await iris.http.get("/v1/nowhere", headers={"X-Request-Id": "mine-7"})
    assert given.headers["x-request-id"] == given.json()["request_id"] == "mine-7"
    bad = await iris.http.get("/healthz", headers={"X-Request-Id": "a b<script>"})
    assert bad.headers["x-request-id"] != "a b<script>"


async def test_without_a_state_service_reads_are_to_be_tried_again(impatient: House):
    await impatient.state.stop()
    response = await impatient.http.get("/v1/jobs")
    assert (response.status_code, response.json()["retryable"]) == (503, True)
    assert response.headers["retry-after"] == "1"


async def test_without_a_server_everything_is_to_be_tried_again(impatient: House):
    impatient.memory.away = True
    paths = ["/v1/jobs", "/v1/events", "/readyz", "/v1/bundles/" + "0" * 64]
    statuses = [(await impatient.http.get(path)).status_code for path in paths[:3]]
    statuses.append((await impatient.http.head(paths[3])).status_code)
    statuses.append((await impatient.submit("/train")).status_code)
    assert statuses == [503] * 5


async def test_a_request_that_ends_with_its_gateway_is_to_be_tried_again(iris: House):
    await iris.state.stop()
    server, socket = (
        HttpServer(iris.gateway, GatewaySettings(drain_s=1)),
        listen("gateway", "127.0.0.1", 0),
    )
    serving = asyncio.create_task(server.serve([socket]))
    await server.ready.wait()
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{socket.getsockname()[1]}", timeout=60
    ) as http:
        asking = asyncio.create_task(http.get("/v1/jobs"))
        while not server.server_state.tasks:
            await asyncio.sleep(0)
        server.should_exit = True
        response = await asking
    await serving
    assert (response.status_code, response.json()["retryable"]) == (503, True)


async def test_an_error_of_our_own_shows_no_traceback(iris: House):
    iris.gateway.metrics.text = lambda: 1 // 0
    response = await iris.http.get("/metrics")
    assert (response.status_code, response.json()["detail"]) == (500, "see the gateway's log")


async def test_pages_of_another_site_change_nothing_while_authentication_is_off(iris: House):
    crossed = await iris.http.post("/v1/jobs/j1/cancel", headers={"Sec-Fetch-Site": "cross-site"})
    rebound = await iris.http.get("/v1/jobs", headers={"Host": "evil.example:8080"})
    assert (crossed.status_code, rebound.status_code) == (403, 403)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_pages_of_other_sites_change_nothing(iris: House, headers: dict[str, str]):
    crossed = await iris.http.post(
        "/v1/jobs/j1/cancel", headers={"Content-Type": "application/json", **headers}
    )
    assert (crossed.status_code, iris.state.commands) == (403, [])


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; a=b", ""]
)
async def test_what_a_form_can_send_changes_nothing(iris: House, kind: str):
    crossed = await iris.http.post("/v1/jobs/j1/cancel", headers={"Content-Type": kind})
    assert (crossed.status_code, iris.state.commands) == (415, [])


async def test_pages_of_our_own_and_programs_may_change_things(iris: House):
    await iris.submit("/a")
    own = {"Content-Type": "application/json", "Origin": "http://127.0.0.1", "Host": "127.0.0.1"}
    behind_a_proxy = {**own, "Origin": "https://iris.example", "Sec-Fetch-Site": "same-origin"}
    for headers in (own, behind_a_proxy, {"Idempotency-Key": "k"}, {"X-Iris-User": "ada"}):
        assert (await iris.http.post("/v1/jobs/j1/cancel", headers=headers)).status_code == 202


async def test_figures_count_by_route_and_never_by_name(iris: House):
    for name in ("%2Fa", "%2Fb"):
        await iris.http.get(f"/v1/jobs/{name}")
    text = (await iris.http.get("/metrics")).text
    assert 'iris_http_requests_total{method="GET",route="/v1/jobs/{job}",status="404"} 2.0' in text


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    body=st.binary(max_size=300),
    path=st.sampled_from(["/v1/jobs", "/v1/jobs:plan", "/v1/jobs/j1/cancel"]),
)
def test_no_bytes_at_all_make_the_gateway_fail(body: bytes, path: str):
    async def send() -> int:
        async with house() as iris:
            return (await iris.http.post(path, content=body, headers=JSON)).status_code

    assert asyncio.run(send()) in (202, 400, 404, 422)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = [
    "name",
    "command",
    "env",
    "replicas",
    "resources",
    "constraints",
    "coscheduling",
    "timeout_s",
    "labels",
]


@settings(max_examples=80, deadline=None)
@given(fields=st.dictionaries(st.sampled_from(FIELDS), json_values, min_size=1))
def test_every_refusal_of_a_shape_points_somewhere(fields: dict[str, object]):
    with pytest.raises(ProblemResponse) as raised:
        spec_from(json.dumps({**fields, "user": 7}).encode(), Caller("ada"))
    assert "/user" in [mistake.pointer for mistake in raised.value.errors]
    assert all(mistake.pointer.startswith("/") for mistake in raised.value.errors)
