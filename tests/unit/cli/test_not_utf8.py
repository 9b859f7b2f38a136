"""Words and variables that are not UTF-8 are refused in a sentence that names them."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import click
import pytest

from iris.cli.exit_codes import ExitCode
from iris.cli.root import root
from tests.support.answers import Asked, Said, answering, problem

BAD = "\udcff"
"""What Python makes of the byte 0xff in a word of a command line."""
APART = {"admin", "up", "down", "server", "open", "completion", "doctor", "login"}
"""Commands that become or start another program, or send nothing."""


def leaves(
    group: click.Group, context: click.Context, *names: str
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its names."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, context, *names, name)
        elif command is not None and (*names, name)[0] not in APART:
            yield (*names, name), command


COMMANDS = dict(leaves(root, click.Context(root)))


def lines(names: tuple[str, ...], command: click.Command) -> Iterator[list[str]]:
    """The command with one word that is not UTF-8, for each of its options and arguments."""
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    plain = ["x" for one in arguments if one.required or one.nargs == -1]
    for option in ("--url", "--context", "--retry-for"):
        yield [option, BAD, *names, "--", *plain]
    for place in range(len(plain)):
        yield [*names, "--", *plain[:place], BAD, *plain[place + 1 :]]
    for option in command.params:
        if isinstance(option, click.Option) and not option.is_flag and option.opts:
            for value in (BAD, f"A={BAD}", f"{BAD}=A"):
                yield [*names, max(option.opts, key=len), value, "--", *plain]


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_no_word_of_a_command_ends_in_a_traceback(iris, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with answering(lambda _: problem(404, "not_found", "there is none")) as gateway:
        monkeypatch.setenv("IRIS_URL", gateway.url)
        for words in lines(names, COMMANDS[names]):
            code, _, err = iris(*words)
            assert "Traceback" not in err, (words, err)
            assert code in list(ExitCode), (words, err)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("-e", f"BAD=a{BAD}", "--", "true"), "the value of env BAD is not UTF-8 (byte 0xff at 1)"),
        (("-e", f"{BAD}=1", "--", "true"), "a name in env is not UTF-8 (byte 0xff at 0)"),
        (("--", "echo", "fine", BAD), "word 3 of the command is not UTF-8 (byte 0xff at 0)"),
        (("-l", f"team={BAD}", "--", "true"), "the value of labels team is not UTF-8"),
        (("--name", f"a{BAD}", "--", "true"), "name is not UTF-8 (byte 0xff at 2)"),
        (("--idempotency-key", BAD, "--", "true"), "Idempotency-Key is not"),
        (("--idempotency-key", "ключ", "--", "true"), "Idempotency-Key is not"),
    ],
)
def test_what_is_not_utf8_is_named(iris, monkeypatch, words, named):
    with answering(lambda _: problem(404, "not_found", "there is none")) as gateway:
        monkeypatch.setenv("IRIS_URL", gateway.url)
        code, _, err = iris("run", "-d", *words)
    assert code == ExitCode.USAGE
    assert named in err
    assert not gateway.requests


def test_a_variable_of_this_shell_is_named(iris, monkeypatch):
    monkeypatch.setenv("BAD", f"fine{BAD}")
    with answering(lambda _: problem(404, "not_found", "there is none")) as gateway:
        monkeypatch.setenv("IRIS_URL", gateway.url)
        code, _, err = iris("run", "-d", "-e", "BAD", "--", "true")
    assert (code, "the value of env BAD is not UTF-8" in err) == (ExitCode.USAGE, True)


def found(asked: Asked) -> Said:
    """One job, called as a terminal of another encoding cannot write."""
    if asked.path.startswith("/v1/jobs?"):
        return Said(200, {"items": [{"id": "j1", "name": "/漢字"}], "next_cursor": None})
    return problem(404, "not_found", "there is no 漢字")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_terminal_that_lacks_a_letter_shows_another(iris, monkeypatch, encoding, errors):
    out = io.TextIOWrapper(io.BytesIO(), encoding, errors)
    err = io.TextIOWrapper(io.BytesIO(), encoding, errors)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with answering(found) as gateway:
        monkeypatch.setenv("IRIS_URL", gateway.url)
        listed, _, _ = iris("ls", "-o", "name")
        shown, _, _ = iris("show", "/a")
    letters = "漢字" if encoding == "utf-8" else "??"
    assert (listed, shown) == (ExitCode.SUCCEEDED, ExitCode.NOT_FOUND)
    assert out.buffer.getvalue() == f"/{letters}\n".encode()
    assert f"there is no {letters}".encode() in err.buffer.getvalue()
