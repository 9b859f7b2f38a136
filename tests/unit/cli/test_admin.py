"""`iris admin token`: a token file that the gateway accepts, and tokens that nobody else can read."""

from pathlib import Path

import pytest

from iris.cli import main
from iris_gateway.auth import parse_tokens


@pytest.fixture
def token(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """`iris admin token` with that file: the exit code, what it printed, and the error."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["admin", "token", *words, "--file", str(tmp_path / "tokens")])
        out, err = capfd.readouterr()
        return code, out.strip(), err

    return run


def test_each_token_is_printed_once_and_names_its_user_and_role(token, tmp_path: Path):
    made = [token("ada"), token("root@example.org", "--role", "admin"), token("ada")]
    text = (tmp_path / "tokens").read_text()
    who = [parse_tokens(text).identify(secret, 0) for _, secret, _ in made]

    assert [code for code, _, _ in made] == [0, 0, 0]
    assert [(one.user, one.role) for one in who] == [("ada", "user"), ("root@example.org", "admin"), ("ada", "user")]
    assert (tmp_path / "tokens").stat().st_mode & 0o777 == 0o600
    assert [secret for _, secret, _ in made if secret in text] == []


def test_lines_written_by_hand_stay(token, tmp_path: Path):
    (tmp_path / "tokens").write_text(f"# people\nbob user {'0' * 64}  # laptop")
    token("ada")
    assert (tmp_path / "tokens").read_text().startswith(f"# people\nbob user {'0' * 64}  # laptop\nada user ")


@pytest.mark.parametrize(
    ("before", "user", "said"), [("", "a b", "no user's name"), ("bob king\n", "ada", "line 1: expected")]
)
def test_a_file_that_the_gateway_would_refuse_is_not_written(token, tmp_path: Path, before: str, user: str, said: str):
    (tmp_path / "tokens").write_text(before)
    code, out, err = token(user)
    assert (code, out, (tmp_path / "tokens").read_text()) == (2, "", before)
    assert said in err
