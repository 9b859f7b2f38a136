"""Authentication, and who may act for whom."""

from hashlib import sha256

import pytest

from iris_core.access.token_file import BadTokenFile
from iris_core.addresses import is_loopback
from iris_core.limits import LOGIN_LINK_MINUTES
from iris_core.messages.gateway_state import Caller
from iris_core.spec.serving import SECURE_TOKEN_COOKIE, TOKEN_COOKIE
from iris_gateway.auth.bearer import parse_tokens
from iris_gateway.auth.login_links import MAX_LINKS, MAX_OF_USER, LoginLinks
from iris_gateway.service import read_keyring
from iris_gateway.settings import GatewaySettings
from iris_service.settings import BadSetting
from tests.support.gateway import House, house

TOKENS = "\n".join(
    f"{user} {role} {sha256(secret.encode()).hexdigest()}  # a comment"
    for user, role, secret in [
        ("ada", "user", "s-ada"),
        ("root", "admin", "s-root"),
        ("w0", "worker", "s-w0"),
    ]
)
ADA, ROOT, WORKER = ({"Authorization": f"Bearer s-{who}"} for who in ("ada", "root", "w0"))
SPEC = {"name": "/a", "command": ["true"]}


@pytest.fixture
async def iris():
    async with house(parse_tokens(TOKENS)) as made:
        yield made


@pytest.mark.parametrize(
    "value",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic s-ada", "Bearer s-ada x", "\xff"],
)
async def test_without_a_known_token_nothing_is_answered(iris: House, value: str | None):
    headers = {} if value is None else {"Authorization": value.encode("latin-1")}
    response = await iris.http.get("/v1/jobs", headers=headers)
    assert (response.status_code, response.headers["www-authenticate"]) == (
        401,
        'Bearer realm="iris"',
    )
    assert iris.state.queries == []


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/metrics", "/v1/meta", "/v1/openapi.json"]
)
async def test_probes_and_descriptions_need_no_token(iris: House, path: str):
    assert (await iris.http.get(path)).status_code == 200


async def test_a_job_belongs_to_the_tokens_user(iris: House):
    await iris.http.post("/v1/jobs", json=SPEC, headers={**ADA, "X-Iris-User": "root"})
    assert iris.state.commands[0].spec.user == "ada"
    name = sha256(b"s-ada").hexdigest()[:8]
    assert iris.state.commands[0].caller == Caller("ada", "user", token=name, address="127.0.0.1")


NAMED = f"ada user {sha256(b's-ada').hexdigest()} name=laptop"


@pytest.mark.parametrize(
    ("trusted", "forwarded", "address"),
    [
        ((), "10.9.9.9", "127.0.0.1"),
        (("127.0.0.0/8",), "10.9.9.9", "10.9.9.9"),
        (("127.0.0.0/8", "10.0.0.0/8"), "6.6.6.6, 192.0.2.7, 10.9.9.9", "192.0.2.7"),
        (("127.0.0.0/8",), "6.6.6.6, <script>", "127.0.0.1"),
        (("127.0.0.0/8",), "", "127.0.0.1"),
    ],
)
async def test_a_command_names_the_token_and_the_address_it_came_from(
    trusted, forwarded: str, address: str
):
    async with house(parse_tokens(NAMED), trusted=trusted) as iris:
        await iris.http.post(
            "/v1/jobs/j1/cancel",
            headers={**ADA, "X-Forwarded-For": forwarded, "Idempotency-Key": "k"},
        )
    assert iris.state.commands[0].caller == Caller("ada", "user", token="laptop", address=address)


async def test_a_proxy_that_adds_a_field_is_believed_and_not_the_client():
    sent = [
        *ADA.items(),
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-For", "192.0.2.7"),
        ("Idempotency-Key", "k"),
    ]
    async with house(parse_tokens(NAMED), trusted=("127.0.0.0/8",)) as iris:
        await iris.http.post("/v1/jobs/j1/cancel", headers=sent)
    assert iris.state.commands[0].caller.address == "192.0.2.7"


async def test_without_authentication_a_caller_only_claims_a_name():
    async with house() as iris:
        await iris.http.post("/v1/jobs/j1/cancel", headers={"X-Iris-User": "mia"})
    assert iris.state.commands[0].caller == Caller(
        "mia", "admin", address="127.0.0.1", claimed=True
    )


async def test_equal_reads_of_one_user_are_one_whatever_the_token(iris: House):
    await iris.http.get("/v1/jobs", headers=ADA)
    assert iris.state.queries[0].caller == Caller("ada", "user")


async def test_a_host_is_drained_for_a_reason(iris: House):
    response = await iris.http.post(
        "/v1/workers/w0/drain", json={"reason": "a new disk"}, headers=ROOT
    )
    assert (response.status_code, iris.state.commands[0].arguments) == (
        202,
        {"reason": "a new disk"},
    )
    long = await iris.http.post("/v1/workers/w0/drain", json={"reason": "x" * 1001}, headers=ROOT)
    assert (long.status_code, len(iris.state.commands)) == (422, 1)


async def test_the_audit_is_asked_for_as_the_caller(iris: House):
    iris.gateway.now_ms = lambda: 100_000
    assert (
        await iris.http.get("/v1/audit?by=mia&of=%2Fa&since=10s", headers=ADA)
    ).status_code == 200
    [query] = iris.state.queries
    assert (query.what, query.caller) == ("audit", Caller("ada", "user"))
    assert (query.arguments["by"], query.arguments["of"], query.arguments["since_ms"]) == (
        "mia",
        "/a",
        90_000,
    )


async def test_a_refusal_is_logged_with_who_was_refused(
    iris: House, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level("INFO", "iris_gateway.dispatch.middleware"):
        await iris.http.post("/v1/workers/w0/drain", json={}, headers=ADA)
    name = sha256(b"s-ada").hexdigest()[:8]
    assert f"of ada (user, token {name}, 127.0.0.1) refused: forbidden" in caplog.text


async def test_an_expired_token_and_one_of_an_emptied_file_are_refused(iris: House):
    iris.gateway.now_ms = lambda: 1_800_000_000_000
    for made, status in (("2027-01-15T08:00:00Z", 401), ("2027-01-15T08:00:01Z", 200)):
        iris.gateway.keyring = parse_tokens(f"{NAMED} expires={made}")
        assert (await iris.http.get("/v1/jobs", headers=ADA)).status_code == status


async def test_an_emptied_token_file_permits_nobody(tmp_path):
    (tmp_path / "tokens").write_text("# nobody\n")
    keyring = read_keyring(str(tmp_path / "tokens"))
    async with house(keyring, token_file=str(tmp_path / "tokens")) as iris:
        assert (await iris.http.get("/v1/jobs", headers=ADA)).status_code == 401
        assert (await iris.http.get("/v1/jobs")).status_code == 401


async def test_a_caller_is_told_who_they_are(iris: House):
    assert (await iris.http.get("/v1/whoami", headers=ADA)).json() == {
        "user": "ada",
        "role": "user",
    }
    assert (await iris.http.get("/v1/whoami")).status_code == 401


async def test_nobody_submits_for_another_but_an_admin(iris: House):
    for headers, wanted in ((ADA, 403), (ROOT, 201)):
        response = await iris.http.post("/v1/jobs", json={**SPEC, "user": "bob"}, headers=headers)
        assert response.status_code == wanted
    assert [command.spec.user for command in iris.state.commands] == ["bob"]


async def test_operators_doors_open_for_admins_only(iris: House):
    doors = [
        ("POST", "/v1/workers/w0/drain"),
        ("POST", "/v1/workers/w0/mark-lost"),
        ("PUT", "/v1/quotas/ada"),
    ]
    statuses = [
        (await iris.http.request(method, path, headers=headers, json={})).status_code
        for headers in (ADA, WORKER, ROOT)
        for method, path in doors
    ]
    assert statuses == [403] * 6 + [202, 202, 200]


async def test_a_workers_token_reads_and_changes_nothing(iris: House):
    await iris.http.post("/v1/jobs", json=SPEC, headers=ADA)
    statuses = [
        (await iris.http.post(path, json=body, headers=WORKER)).status_code
        for path, body in (
            ("/v1/jobs", SPEC),
            ("/v1/jobs/j1/cancel", {}),
            ("/v1/jobs/j1/rerun", {}),
        )
    ]
    assert (statuses, len(iris.state.commands)) == ([403] * 3, 1)
    assert (await iris.http.get("/v1/jobs/j1", headers=WORKER)).status_code == 200


async def test_only_the_owner_and_admins_read_what_tasks_print(iris: House):
    await iris.http.post("/v1/jobs", json={**SPEC, "user": "bob"}, headers=ROOT)
    await iris.http.post("/v1/jobs", json={**SPEC, "name": "/b"}, headers=ADA)
    paths = ("/v1/jobs/%2Fa/logs", "/v1/tasks/%2Fa%2F0/logs", "/v1/jobs/%2Fb/logs")
    statuses = [
        (await iris.http.get(path, headers=headers)).status_code
        for headers in (ADA, WORKER, ROOT)
        for path in paths
    ]
    assert statuses == [403, 403, 200, 403, 403, 403, 200, 200, 200]


async def test_only_the_owner_and_admins_execute_beside_tasks(iris: House):
    await iris.http.post("/v1/jobs", json={**SPEC, "user": "bob"}, headers=ROOT)
    await iris.http.post("/v1/jobs", json={**SPEC, "name": "/b"}, headers=ADA)
    statuses = [
        (
            await iris.http.post(
                f"/v1/tasks/{task}/executions", json={"command": ["true"]}, headers=headers
            )
        ).status_code
        for headers in (ADA, WORKER, ROOT)
        for task in ("%2Fa%2F0", "%2Fb%2F0")
    ]
    assert statuses == [403, 409, 403, 403, 409, 409]  # 409: allowed, but the task does not run


async def test_the_caller_is_handed_on_with_every_read(iris: House):
    await iris.http.get("/v1/jobs", headers=ADA)
    assert iris.state.queries[0].caller == Caller("ada", "user")


@pytest.mark.parametrize(
    "line",
    [
        "ada user",
        "ada king " + "0" * 64,
        "ada user xyz",
        "a/b user " + "0" * 64,
        "ada user 00 extra",
    ],
)
def test_a_token_file_that_is_not_understood_is_refused(line: str):
    with pytest.raises(BadTokenFile):
        parse_tokens(line)


def test_a_token_file_that_cannot_be_read_ends_the_start(tmp_path):
    with pytest.raises(BadSetting, match="token_file"):
        read_keyring(str(tmp_path / "nothing"))


@pytest.mark.parametrize("http", ["0.0.0.0:80", ":::80", "10.0.0.1:80", "gateway:80"])
def test_without_tokens_only_loopback_is_listened_on(http: str):
    with pytest.raises(BadSetting, match="token_file"):
        GatewaySettings(http=http).address()
    assert GatewaySettings(http=http, token_file="tokens").address()


@pytest.mark.parametrize("http", ["80", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", ""])
def test_an_address_that_is_none_is_refused(http: str):
    with pytest.raises(BadSetting, match="host:port"):
        GatewaySettings(http=http).address()


def test_loopback_has_several_names():
    assert [
        is_loopback(name) for name in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost")
    ] == [True] * 5
    assert [
        is_loopback(name) for name in ("127.0.0.1.evil.example", "localhost.evil", "0.0.0.0", "")
    ] == [False] * 4


BY_PERSON = {"Sec-Fetch-Site": "none"}


async def test_a_link_signs_a_browser_in_once(iris: House):
    made = await iris.http.post("/v1/login-links", headers=ADA)
    path = made.json()["path"]
    assert made.status_code == 201
    assert (await iris.http.head(path, headers=BY_PERSON)).status_code == 200
    entered = await iris.http.get(path, headers=BY_PERSON)
    assert (entered.status_code, entered.headers["location"], entered.cookies[TOKEN_COOKIE]) == (
        303,
        "/",
        "s-ada",
    )
    assert (await iris.http.get("/v1/jobs")).status_code == 200
    iris.http.cookies.clear()
    for again in (await iris.http.get(path, headers=BY_PERSON), await iris.http.get(path)):
        assert again.status_code == 401
        assert f"was used already, or is older than {LOGIN_LINK_MINUTES} minutes" in again.text
        assert TOKEN_COOKIE not in again.cookies


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {}]
)
async def test_a_link_from_another_site_signs_in_after_a_question(
    iris: House, headers: dict[str, str]
):
    code = (await iris.http.post("/v1/login-links", headers=ADA)).json()["path"].partition("=")[2]
    asked = await iris.http.get(f"/login?code={code}", headers=headers)
    assert asked.status_code == 200
    assert TOKEN_COOKIE not in asked.cookies
    assert "Sign in as ada</button>" in asked.text
    crossed = await iris.http.post(
        "/login", data={"code": code}, headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert (crossed.status_code, TOKEN_COOKIE in crossed.cookies) == (403, False)
    confirmed = await iris.http.post(
        "/login", data={"code": code}, headers={"Sec-Fetch-Site": "same-origin"}
    )
    assert (confirmed.status_code, confirmed.cookies[TOKEN_COOKIE]) == (303, "s-ada")
    assert (await iris.http.post("/login", data={"code": code})).status_code == 401


async def test_over_tls_the_cookie_is_accepted_from_this_host_only(iris: House):
    entered = await iris.http.post(
        "https://iris/login", data={"token": "s-ada"}, headers={"Sec-Fetch-Site": "same-origin"}
    )
    cookie = entered.headers["set-cookie"]
    assert cookie == f"{SECURE_TOKEN_COOKIE}=s-ada; HttpOnly; Path=/; SameSite=strict; Secure"
    iris.http.cookies.clear()
    codes = []
    for name in (TOKEN_COOKIE, SECURE_TOKEN_COOKIE):
        for origin in ("http://iris", "https://iris"):
            answer = await iris.http.get(f"{origin}/v1/jobs", headers={"Cookie": f"{name}=s-ada"})
            codes.append((name, origin, answer.status_code))
    assert codes == [
        (TOKEN_COOKIE, "http://iris", 200),
        (TOKEN_COOKIE, "https://iris", 401),
        (SECURE_TOKEN_COOKIE, "http://iris", 401),
        (SECURE_TOKEN_COOKIE, "https://iris", 200),
    ]
    left = await iris.http.post("https://iris/logout", headers={"Sec-Fetch-Site": "same-origin"})
    assert left.headers["set-cookie"].startswith(f'{SECURE_TOKEN_COOKIE}=""; expires=')
    assert left.headers["set-cookie"].endswith("; Secure")


async def test_a_link_is_made_for_those_with_a_token_only(iris: House):
    assert (
        await iris.http.post("/v1/login-links", headers={"Idempotency-Key": "k"})
    ).status_code == 401
    cookie = {"Cookie": f"{TOKEN_COOKIE}=s-ada", "Content-Type": "application/json"}
    assert (await iris.http.post("/v1/login-links", headers=cookie)).status_code == 401


async def test_without_authentication_the_link_is_the_first_page():
    async with house() as iris:
        made = await iris.http.post("/v1/login-links", headers={"Idempotency-Key": "k"})
        assert made.json() == {"path": "/"}


def test_a_link_expires_and_old_ones_make_room():
    links = LoginLinks()
    links.add("a", "ada", "s-ada", 0.0)
    assert links.use("a", 60 * LOGIN_LINK_MINUTES + 1) == ""
    for number in range(MAX_OF_USER + 1):
        links.add(f"c{number}", "ada", "s-ada", 100.0)
    assert (links.use("c0", 100.0), links.use("c1", 100.0), links.use("c1", 100.0)) == (
        "",
        "s-ada",
        "",
    )


def test_links_of_one_user_void_none_of_another():
    """A thousand requests of one user made the links of all others invalid."""
    links = LoginLinks()
    links.add("mine", "ada", "s-ada", 0.0)
    for number in range(MAX_LINKS + 1):
        links.add(f"c{number}", "eve", "s-eve", 1.0)
    for number in range(MAX_LINKS - 5):
        links.add(f"d{number}", f"user-{number}", "s-other", 2.0)
    assert links.use("mine", 3.0) == "s-ada"
    assert (links.use("c0", 3.0), links.use("c1000", 3.0)) == ("", "s-eve")
