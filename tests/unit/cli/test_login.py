"""`iris login` against a gateway and a small issuer: the device flow, and where its token is
kept.
"""

from pathlib import Path
from urllib.parse import parse_qs

import pytest

from iris.cli import main
from iris.cli.exit_codes import ExitCode
from iris.client.http.contexts import Context, Contexts, contexts_path, load_contexts
from tests.support.answers import Asked, Said, answering

CODE = {
    "device_code": "d1",
    "user_code": "ABCD-EFGH",
    "verification_uri": "https://login/device",
    "expires_in": 600,
}
PENDING = Said(400, {"error": "authorization_pending"})


class Issuer:
    """A gateway and its issuer at one address; ``tokens``: the answers of the token endpoint, in
    turn.
    """

    def __init__(self, *tokens: Said, device: bool = True) -> None:
        self.tokens = list(tokens)
        self.device = device
        self.polled: list[dict[str, list[str]]] = []

    def answer(self, request: Asked) -> Said:
        base = f"http://{request.headers['Host']}"
        if request.path == "/v1/meta":
            return Said(200, {"login": {"issuer": f"{base}/realm", "client": "iris-cli"}})
        if request.path == "/realm/.well-known/openid-configuration":
            device = {"device_authorization_endpoint": f"{base}/device"} if self.device else {}
            return Said(200, {"token_endpoint": f"{base}/token", **device})
        if request.path == "/device":
            return Said(200, {**CODE, "interval": 0})
        self.polled.append(parse_qs(request.body.decode()))
        return self.tokens.pop(0)


@pytest.fixture(autouse=True)
def own_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("IRIS_TOKEN", "IRIS_TOKEN_FILE", "IRIS_URL", "IRIS_CONTEXT"):
        monkeypatch.delenv(name, raising=False)


def test_a_person_signs_in_and_the_token_is_kept(capfd: pytest.CaptureFixture[str]):
    issuer = Issuer(PENDING, PENDING, Said(200, {"access_token": "a.b.c", "token_type": "Bearer"}))
    with answering(issuer.answer, "127.0.0.1") as server:
        code = main(["login", "--url", server.url])
        host = server.url.removeprefix("http://")
        assert load_contexts(contexts_path()) == Contexts(
            host, {host: Context(server.url, "a.b.c")}
        )
    said = capfd.readouterr()
    assert code == ExitCode.SUCCEEDED
    assert "open https://login/device in a browser and confirm the code ABCD-EFGH" in said.err
    assert "a.b.c" not in said.out + said.err
    assert [(poll["device_code"], poll["client_id"]) for poll in issuer.polled] == [
        (["d1"], ["iris-cli"])
    ] * 3


def test_the_context_of_that_gateway_gets_the_token():
    with answering(Issuer(Said(200, {"access_token": "new"})).answer, "127.0.0.1") as server:
        main(["context", "add", "lab", server.url, "--token", "old"])
        assert main(["login", "--context", "lab"]) == ExitCode.SUCCEEDED
        assert load_contexts(contexts_path()).known == {"lab": Context(server.url, "new")}


@pytest.mark.parametrize(
    ("issuer", "words"),
    [
        (Issuer(Said(400, {"error": "access_denied"})), "access_denied"),
        (Issuer(device=False), "has no device flow"),
        (Issuer(Said(200, b"<html>")), "does not answer as an OpenID Connect issuer does"),
    ],
)
def test_a_sign_in_that_fails_says_why_and_keeps_nothing(issuer: Issuer, words: str, capfd):
    with answering(issuer.answer, "127.0.0.1") as server:
        assert main(["login", "--url", server.url]) == ExitCode.USAGE
    assert words in capfd.readouterr().err
    assert load_contexts(contexts_path()) == Contexts()


def test_a_gateway_without_an_issuer_says_so(capfd: pytest.CaptureFixture[str]):
    with answering(lambda _: Said(200, {"version": "1"})) as server:
        assert main(["login", "--url", server.url]) == ExitCode.USAGE
    assert "names no issuer" in capfd.readouterr().err
