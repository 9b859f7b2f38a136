"""Token files that cannot be used: which one, why, and what to do."""

from pathlib import Path

import pytest

from iris.cli import main
from iris.cluster.paths import ClusterPaths, make_token
from iris_gateway.service import read_keyring
from iris_proxy.service import read_tokens
from iris_service.settings import BadSetting

DAMAGED = (b"ann admin 00\n", b"ann admin \xff\n", b"ann adm\x00n " + b"0" * 64)


@pytest.mark.parametrize("content", DAMAGED)
def test_a_start_names_the_token_file_it_cannot_use(tmp_path: Path, content: bytes):
    paths = ClusterPaths(tmp_path)
    paths.token_file.write_bytes(content)
    with pytest.raises(OSError, match=f"{paths.token_file} cannot be used: .*; correct it"):
        make_token(paths, "ann")
    for read in (read_keyring, read_tokens):
        with pytest.raises(BadSetting, match=f"{paths.token_file} cannot be used: .*; correct it"):
            read(str(paths.token_file))


def test_a_token_file_that_is_not_there_is_not_listed_as_an_empty_one(tmp_path: Path, capfd):
    assert main(["admin", "token", "ls", "--file", str(tmp_path / "tokens")]) == 2
    assert f"there is no file {tmp_path}/tokens" in capfd.readouterr().err


@pytest.mark.parametrize("words", [("",), ("ann", "--expires", "")])
def test_a_token_with_an_empty_user_or_time_is_refused(tmp_path: Path, words: tuple[str, ...]):
    file = tmp_path / "tokens"
    assert main(["admin", "token", "add", *words, "--file", str(file)]) == 2
    assert not file.exists()


@pytest.mark.parametrize(
    ("expires", "why"),
    [
        ("0s", "at least 1m"),
        ("0.4ms", "at least 1m"),
        ("59s", "at least 1m"),
        ("-5m", "neither a moment nor a duration"),
        ("2020-01-01T00:00:00Z", "at least 1m"),
        ("99999999d", "after the year 9999"),
    ],
)
def test_a_token_that_could_not_be_used_is_not_made(iris, tmp_path: Path, expires: str, why: str):
    file = tmp_path / "tokens"
    code, secret, err = iris("admin", "token", "add", "ann", "--expires", expires, "--file", file)
    assert (code, secret, file.exists()) == (2, "", False)
    assert why in err
