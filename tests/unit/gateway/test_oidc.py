"""People who come with a token of an OpenID Connect issuer.
docs/security.md#tokens-of-an-issuer.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from iris_core.messages.gateway_state import Caller
from iris_core.spec.serving import TOKEN_COOKIE
from iris_gateway.auth import oidc
from iris_gateway.auth.bearer import parse_tokens
from iris_gateway.settings import GatewaySettings
from iris_service.settings import BadSetting
from tests.support.gateway import House, house, listening

ISSUER, AUDIENCE = "https://login.example.org", "iris"
RSA, OTHER_RSA = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
EC = ec.generate_private_key(ec.SECP256R1())


def jwk(kid: str, key: Any, **fields: Any) -> dict[str, Any]:
    kind = jwt.algorithms.ECAlgorithm if key is EC else jwt.algorithms.RSAAlgorithm
    return {**kind.to_jwk(key.public_key(), as_dict=True), "kid": kid, **fields}


@dataclass
class KeyServer:
    """An issuer's key set on loopback, and how often it was read."""

    url: str
    keys: list[dict[str, Any]] = field(
        default_factory=lambda: [jwk("r1", RSA, alg="RS256"), jwk("e1", EC)]
    )
    reads: int = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.reads += 1
        return web.json_response({"keys": self.keys})


@dataclass
class Story:
    iris: House
    server: KeyServer

    async def asks(self, token: str, path: str = "/v1/jobs", **headers: str) -> tuple[int, str]:
        response = await self.iris.http.get(
            path, headers={"Authorization": f"Bearer {token}", **headers}
        )
        return response.status_code, "" if response.is_success else response.json()["detail"]

    async def callers(self, token: str) -> list[Caller]:
        self.iris.state.queries.clear()
        status, detail = await self.asks(token)
        assert status == 200, detail
        return [query.caller for query in self.iris.state.queries]


def claims(**fields: Any) -> dict[str, Any]:
    now = int(time.time())
    given = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600, **fields}
    return {name: value for name, value in given.items() if value is not None}


def token(key: Any = RSA, kid: str | None = "r1", alg: str = "RS256", **fields: Any) -> str:
    made: str = jwt.encode(claims(**fields), key, alg, {"kid": kid} if kid else {})
    return made


def by_hand(header: dict[str, Any], secret: bytes = b"", **fields: Any) -> str:
    """What an attacker writes: signed as HS256, or not at all."""
    parts = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in (header, claims(**fields))
    )
    text = b".".join(parts)
    signature = hmac.digest(secret, text, "sha256") if secret else b""
    return (text + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


@pytest.fixture
async def server() -> AsyncIterator[KeyServer]:
    made = KeyServer("")
    app = web.Application()
    app.router.add_get("/keys", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
    yield made
    await runner.cleanup()


def terms(place: str, **fields: Any) -> dict[str, Any]:
    return {"oidc_issuer": ISSUER, "oidc_audience": AUDIENCE, "oidc_keys": place, **fields}


@pytest.fixture
async def story(server: KeyServer) -> AsyncIterator[Story]:
    keyring = parse_tokens(f"root admin {sha256(b's-root').hexdigest()}")
    roles = {"oidc_roles_claim": "realm.roles", "oidc_admin_roles": ("ops",)}
    async with house(keyring, **terms(server.url, **roles)) as iris:
        yield await ready(Story(iris, server))


async def ready(story: Story) -> Story:
    """Wait until the keys are read."""
    async with asyncio.timeout(60):
        while (await story.asks(token()))[0] == 503:
            await asyncio.sleep(0.001)
    return story


async def test_a_person_is_who_the_issuer_says_with_the_role_of_a_claim(story: Story):
    assert await story.callers(token()) == [Caller("ann", "user")]
    assert await story.callers(token(EC, "e1", "ES256", sub="bob")) == [Caller("bob", "user")]
    assert await story.callers(token(realm={"roles": ["dev", "ops"]})) == [Caller("ann", "admin")]
    assert await story.callers("s-root") == [Caller("root", "admin")]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"exp": int(time.time()) - 3600}, "has expired"),
        ({"nbf": int(time.time()) + 3600}, "not yet valid"),
        ({"iat": int(time.time()) + 3600}, "not yet valid"),
        ({"aud": "another"}, "Audience"),
        ({"aud": None}, "aud"),
        ({"iss": "https://evil.example.org"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"exp": None}, "exp"),
        ({"sub": None}, "sub"),
        ({"sub": "no name"}, "not a user name"),
        ({"sub": ""}, "not a user name"),
        ({"key": OTHER_RSA}, "Signature verification failed"),
        ({"key": EC, "kid": "r1", "alg": "ES256"}, "not accepted"),
        ({"alg": "PS256"}, "not accepted"),
        ({"kid": "other"}, "does not publish"),
        ({"kid": None}, "does not publish"),
    ],
)
async def test_what_is_wrong_with_a_token_is_said_and_nothing_answered(
    story: Story, fields: dict[str, Any], words: str
):
    story.iris.state.queries.clear()
    status, detail = await story.asks(token(**fields))
    assert (status, story.iris.state.queries) == (401, [])
    assert words in detail


async def test_a_public_key_is_no_secret_and_no_signature_is_none(story: Story):
    """The attacks of RFC 8725, 2.1."""
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    story.server.keys.append(
        {"kty": "oct", "kid": "h1", "k": base64.urlsafe_b64encode(b"k" * 32).decode()}
    )
    for forged in (
        by_hand({"alg": "HS256", "kid": "r1"}, public),
        by_hand({"alg": "HS256", "kid": "r1"}, json.dumps(jwk("r1", RSA)).encode()),
        by_hand({"alg": "HS256", "kid": "h1"}, b"k" * 32),
        by_hand({"alg": "none", "kid": "r1"}),
        by_hand({"alg": "None", "kid": "r1"}),
        by_hand({"alg": "RS256", "kid": "r1"}),
        by_hand({"alg": "RS256", "kid": ["r1"]}),
        "a.b.c",
        "..",
    ):
        assert (await story.asks(forged))[0] == 401


def test_only_public_keys_for_signatures_are_used():
    secret = {"kty": "oct", "kid": "h1", "k": "AAAA"}
    found = oidc.read_key_set(
        json.dumps(
            {
                "keys": [
                    jwk("r1", RSA),
                    jwk("enc", OTHER_RSA, use="enc"),
                    jwk("", EC),
                    secret,
                    jwk("e1", EC),
                ]
            }
        ).encode()
    )
    assert found.keys() == {"r1", "e1"}


GOOD = jwk("r1", RSA, alg="RS256")
DEEP = b"[" * 100_000


ODD = (7, 1.5, True, [], ["RS256"], {}, {"a": 1}, "\x00", "é", "!!")
ANY_TEXT = ("kid",)
EDWARDS = {"kty": "OKP", "kid": "o", "crv": "Ed25519", "x": "AA"}
ODD_MEMBERS = [
    {**key, name: odd}
    for key, names in (
        (GOOD, ("kty", "kid", "use", "alg", "n", "e")),
        (jwk("e1", EC), ("x", "y", "crv")),
    )
    for name in names
    for odd in ODD
    if not (name in ANY_TEXT and isinstance(odd, str))
]
ODD_KEYS = (b"[]", b"7", b"null", b'"text"', b"{}", b"[7]", b"[null]", b"[[]]", b"[{}]")


@pytest.mark.parametrize(
    "document",
    [
        *(
            b"",
            b"{}",
            b"[]",
            b"null",
            b"<html>",
            b"\xff",
            DEEP,
            b'{"keys": %b' % DEEP,
            b'{"other": %b' % DEEP,
        ),
        *(b'{"keys": %b}' % keys for keys in ODD_KEYS),
        *(json.dumps({"keys": [key]}).encode() for key in (*ODD_MEMBERS, EDWARDS)),
    ],
)
def test_a_key_set_of_odd_types_or_depth_is_refused(document: bytes):
    with pytest.raises(ValueError, match=r"."):
        oidc.read_key_set(document)


def test_one_odd_key_does_not_cost_the_others():
    odd = [
        {**GOOD, "kid": "x", "n": "!!"},
        {"kty": "oct", "kid": "h"},
        {**GOOD, "kid": "d", "key_ops": {"a": [[]]}},
    ]
    assert oidc.read_key_set(json.dumps({"keys": [*odd, GOOD], "more": {}}).encode()).keys() == {
        "r1",
        "d",
    }


async def test_a_token_whose_head_is_deep_or_odd_is_401(story: Story):
    for head in (
        DEEP[:20_000],
        b"7",
        b'{"alg": [], "kid": {}}',
        b'{"alg": "RS256", "kid": 7}',
        b"\xff",
    ):
        forged = f"{base64.urlsafe_b64encode(head).decode().rstrip('=')}.e30.AA"
        assert (await story.asks(forged))[0] == 401


async def test_a_changed_issuer_key_is_read_again_and_not_for_every_token(
    story: Story, monkeypatch: pytest.MonkeyPatch
):
    reads = story.server.reads
    for _ in range(20):
        assert (await story.asks(token(OTHER_RSA, "r2")))[0] == 401
    assert story.server.reads == reads
    story.server.keys[:] = [jwk("r2", OTHER_RSA)]
    monkeypatch.setattr(oidc, "AGAIN_S", 0.0)
    assert (await story.asks(token(OTHER_RSA, "r2")))[0] == 503
    monkeypatch.undo()
    async with asyncio.timeout(60):
        while (await story.asks(token(OTHER_RSA, "r2")))[0] != 200:
            await asyncio.sleep(0.001)
    assert (await story.asks(token()))[0] == 401
    assert story.server.reads == reads + 1


async def test_keys_that_are_known_stay_while_the_issuer_is_away(
    story: Story, monkeypatch: pytest.MonkeyPatch
):
    async def away() -> bytes:
        raise OSError("no route to host")

    issuer = story.iris.gateway.issuer
    assert issuer is not None
    monkeypatch.setattr(issuer, "_read", away)
    await issuer._refresh()
    assert (await story.asks(token()))[0] == 200


async def test_keys_may_be_in_a_file_and_a_person_is_named_by_another_claim(tmp_path: Path):
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk("r1", RSA)]}))
    chosen = {"oidc_user_claim": "email", "oidc_user_roles": ("iris",)}
    async with house(**terms(str(tmp_path / "keys.json"), **chosen)) as iris:
        story = await ready(Story(iris, KeyServer("")))
        good = {"email": "ann@example.org", "roles": "iris other"}
        assert await story.callers(token(**good)) == [Caller("ann@example.org", "user")]
        assert (await story.asks(token(**good, email_verified=False)))[0] == 401
        assert (await story.asks(token(email="ann@example.org", roles=["other"])))[0] == 403
        assert (await story.asks("s-root"))[0] == 401


async def test_with_an_issuer_alone_nobody_is_let_in_without_a_token(
    story: Story, server: KeyServer
):
    async with house(**terms(server.url)) as iris:
        for headers in ({}, {"X-Iris-User": "root"}):
            assert (await iris.http.get("/v1/jobs", headers=headers)).status_code == 401


async def test_clients_are_told_where_to_sign_in(story: Story, server: KeyServer):
    assert (await story.iris.http.get("/v1/meta")).json()["login"] is None
    async with house(**terms(server.url, oidc_client="iris-cli")) as iris:
        told = (await iris.http.get("/v1/meta")).json()["login"]
    assert told == {"issuer": ISSUER, "client": "iris-cli"}


def follow(http: httpx.AsyncClient, ends: int) -> AbstractAsyncContextManager[httpx.Response]:
    headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {token(exp=ends)}"}
    return http.stream("GET", "/v1/events", headers=headers)


async def test_a_stream_ends_before_it_tells_an_expired_token_more(story: Story):
    """Whoever had been removed at the issuer read on for as long as the stream was kept open."""
    now_ms, now_s, late_ms = story.iris.gateway.now_ms, int(time.time()), 0
    story.iris.gateway.now_ms = lambda: now_ms() + late_ms
    async with (
        listening(story.iris) as http,
        follow(http, now_s + 600) as short,
        follow(http, now_s + 86_400) as long,
    ):
        late_ms = (600 + oidc.LEEWAY_S + 1) * 1000
        await story.iris.state.tell_job("/a", "running")
        async with asyncio.timeout(60):
            assert b"/a" not in await short.aread()
        assert [line async for line in until_first(long.aiter_lines(), '"/a"')]


async def until_first(lines: AsyncIterator[str], word: str) -> AsyncIterator[str]:
    async for line in lines:
        if word in line:
            yield line
            return


async def test_a_page_is_signed_in_to_with_a_token_of_the_issuer(story: Story):
    made = token()
    response = await story.iris.http.post(
        "/login", data={"token": made}, headers={"Sec-Fetch-Site": "same-origin"}
    )
    assert (response.status_code, response.cookies[TOKEN_COOKIE]) == (303, made)
    assert (await story.iris.http.get("/v1/jobs")).status_code == 200


async def test_a_refusal_names_the_person_in_the_log(
    story: Story, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level("INFO"):
        response = await story.iris.http.post(
            "/v1/workers/w0/drain",
            headers={"Authorization": f"Bearer {token()}", "Content-Type": "application/json"},
        )
    assert response.status_code == 403
    [line] = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert "ann" in line
    assert token() not in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"oidc_issuer": ISSUER},
        {"oidc_keys": "/keys.json"},
        {"oidc_issuer": ISSUER, "oidc_audience": AUDIENCE},
        {
            "oidc_issuer": ISSUER,
            "oidc_audience": AUDIENCE,
            "oidc_keys": "http://login.example.org/keys",
        },
        {"oidc_admin_roles": ("ops",)},
    ],
)
def test_settings_of_half_an_issuer_are_refused(wrong: dict[str, Any]):
    with pytest.raises(BadSetting, match="oidc"):
        GatewaySettings(**wrong).issuer()


def test_an_issuer_is_enough_to_listen_on_a_network():
    assert GatewaySettings(http="0.0.0.0:1", **terms("/keys.json")).address() == ("0.0.0.0", 1)
    with pytest.raises(BadSetting, match="token_file"):
        GatewaySettings(http="0.0.0.0:1").address()


async def test_the_groups_of_a_token_go_with_commands(
    server: KeyServer, caplog: pytest.LogCaptureFixture
):
    async with house(**terms(server.url, oidc_groups_claim="realm.groups")) as iris:
        story = await ready(Story(iris, server))
        given = ["/ml/vision", "people of ml", "a\nb", 7, "-x", "ops", "ops"]
        who = {"Authorization": f"Bearer {token(realm={'groups': given})}"}
        body = {"name": "/a", "command": ["true"]}
        assert (await story.iris.http.post("/v1/jobs", json=body, headers=who)).is_success
        who = {"Authorization": f"Bearer {token()}"}
        body = {"name": "/b", "command": ["true"]}
        assert (await story.iris.http.post("/v1/jobs", json=body, headers=who)).is_success
        groups = [command.caller.groups for command in story.iris.state.commands]
    assert groups == [("/ml/vision", "ops", "people of ml"), ()]
    [line] = [one.getMessage() for one in caplog.records if "not used" in one.getMessage()]
    assert line.startswith("2 of the 5 groups of ann are not used")
