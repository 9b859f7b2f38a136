"""`iris admin token`: a token file that the gateway accepts, and tokens that nobody else can
read.
"""

import json
import os
from pathlib import Path

import pytest

from iris.cli import main
from iris.cli.commands.operate.admin import admin
from iris.cli.output.times import show_millis
from iris_gateway.auth.bearer import parse_tokens
from iris_gateway.http.problem import ProblemResponse


@pytest.fixture
def token(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """`iris admin token` with that file: the exit code, what it printed, and the error."""

    def run(*words: str) -> tuple[int, str, str]:
        verb = () if words[0] in ("ls", "show", "revoke", "rotate") else ("add",)
        code = main(["admin", "token", *verb, *words, "--file", str(tmp_path / "tokens")])
        out, err = capfd.readouterr()
        return code, out.strip(), err

    return run


def test_each_token_is_printed_once_and_names_its_user_and_role(token, tmp_path: Path):
    made = [token("ada"), token("root@example.org", "--role", "admin"), token("ada")]
    text = (tmp_path / "tokens").read_text()
    who = [parse_tokens(text).identify(secret, 0) for _, secret, _ in made]

    assert [code for code, _, _ in made] == [0, 0, 0]
    assert [(one.user, one.role) for one in who] == [
        ("ada", "user"),
        ("root@example.org", "admin"),
        ("ada", "user"),
    ]
    assert (tmp_path / "tokens").stat().st_mode & 0o777 == 0o600
    assert [secret for _, secret, _ in made if secret in text] == []


def test_lines_written_by_hand_stay(token, tmp_path: Path):
    (tmp_path / "tokens").write_text(f"# people\nbob user {'0' * 64}  # laptop")
    token("ada")
    assert (
        (tmp_path / "tokens")
        .read_text()
        .startswith(f"# people\nbob user {'0' * 64}  # laptop\nada user ")
    )


@pytest.mark.parametrize(
    ("before", "user", "said"),
    [("", "a b", "not a user name"), ("bob king\n", "ada", "line 1: expected")],
)
def test_a_file_that_the_gateway_would_refuse_is_not_written(
    token, tmp_path: Path, before: str, user: str, said: str
):
    (tmp_path / "tokens").write_text(before)
    code, out, err = token(user)
    assert (code, out, (tmp_path / "tokens").read_text()) == (2, "", before)
    assert said in err


def accepted(tmp_path: Path, secret: str, now_ms: int = 0) -> str:
    """The name of the token, empty when a gateway refuses it."""
    try:
        return parse_tokens((tmp_path / "tokens").read_text()).identify(secret, now_ms).token
    except ProblemResponse:
        return ""


def test_a_revoked_token_is_refused_and_the_rest_of_the_file_stays(token, tmp_path: Path):
    _, ada, _ = token("ada", "--name", "laptop")
    _, bob, _ = token("bob", "--name", "home")
    (tmp_path / "tokens").write_text("# people\n" + (tmp_path / "tokens").read_text())
    (tmp_path / "tokens").chmod(0o640)
    assert token("revoke", "laptop")[0] == 0
    assert [accepted(tmp_path, secret) for secret in (ada, bob)] == ["", "home"]
    assert (tmp_path / "tokens").read_text().startswith("# people\nbob user ")
    assert (tmp_path / "tokens").stat().st_mode & 0o777 == 0o640
    assert token("revoke", "laptop")[0] == token("revoke")[0] == 2
    assert token("revoke", "--user", "bob")[0] == 0
    assert accepted(tmp_path, bob) == ""


def test_the_last_admin_token_is_revoked_only_when_that_is_confirmed(token, tmp_path: Path):
    """Whoever revoked it by mistake had locked all admins out."""
    _, ops, _ = token("root", "--role", "admin", "--name", "ops")
    token("root", "--role", "admin", "--name", "spare")
    token("ada", "--name", "laptop")
    assert token("revoke", "spare")[0] == token("revoke", "laptop")[0] == 0
    code, _, err = token("revoke", "--user", "root")
    assert (code != 0, accepted(tmp_path, ops), "no admin token" in err) == (True, "ops", True)
    assert token("revoke", "ops", "--yes")[0] == 0
    assert (tmp_path / "tokens").read_text() == ""


def test_a_rotated_token_keeps_its_name_and_replaces_the_old_one(token, tmp_path: Path):
    _, old, _ = token("root", "--role", "admin", "--name", "ops")
    code, new, _ = token("rotate", "ops")
    assert (code, accepted(tmp_path, old), accepted(tmp_path, new)) == (0, "", "ops")
    _, unnamed, _ = token("ada")
    _, other, _ = token("rotate", accepted(tmp_path, unnamed))
    assert (accepted(tmp_path, unnamed), bool(accepted(tmp_path, other))) == ("", True)


def test_a_token_ends_when_it_says(token, tmp_path: Path):
    _, secret, _ = token("ada", "--expires", "90d", "--name", "guest")
    [made] = parse_tokens((tmp_path / "tokens").read_text()).tokens
    assert made.expires_ms - made.made_ms == 90 * 86_400_000
    assert accepted(tmp_path, secret, made.expires_ms - 1) == "guest"
    assert accepted(tmp_path, secret, made.expires_ms) == ""
    listed = json.loads(token("ls", "-o", "jsonl")[1])
    assert (listed["name"], listed["expires_ms"], listed["expired"]) == (
        "guest",
        made.expires_ms,
        False,
    )


def test_a_token_is_shown_by_its_name(token, tmp_path: Path):
    secret = token("ada", "--role", "admin", "--name", "laptop")[1]
    code, shown, _ = token("show", "laptop")
    made = json.loads(token("show", "laptop", "-o", "jsonl")[1])["made_ms"]
    facts = f"name     laptop\nuser     ada\nrole     admin\nmade     {show_millis(made)}\nexpires  never"
    assert (code, shown) == (0, facts)
    assert secret not in shown
    missing = (
        f"error: {tmp_path / 'tokens'} has no token 'phone'; `iris admin token ls` lists them\n"
    )
    assert token("show", "phone") == (2, "", missing)


def test_two_tokens_of_one_name_are_refused(token):
    token("ada", "--name", "laptop")
    assert token("bob", "--name", "laptop")[0] == 2


def test_admin_uses_the_servers_that_the_given_configuration_names(monkeypatch, tmp_path: Path):
    """It does not work on the local cluster instead, which another option would have named."""
    config, begun = tmp_path / "iris.toml", []
    monkeypatch.setenv("IRIS_DATA", str(tmp_path))
    monkeypatch.setenv("IRIS_NATS_URL", "")
    monkeypatch.delenv("IRIS_NATS_URL")
    monkeypatch.setattr(
        admin,
        "become",
        lambda program: begun.append((program[-1], os.environ.get("IRIS_NATS_URL"))),
    )
    config.write_text('[nats]\nurl = "nats://10.0.0.1:4222"\n')

    assert main(["admin", "streams", "--config", str(config), "--data", str(tmp_path)]) == 0
    assert main(["admin", "streams", "--config", str(config)]) == 0
    assert begun == [("streams", None), ("streams", "nats://10.0.0.1:4222")]

    config.write_text("nats = 5\n")
    assert main(["admin", "streams", "--config", str(config)]) == 2
