"""Control characters in text of others, on a terminal and in a pipe."""

import io
import os
import pty
import subprocess
import sys

import pytest

from iris.cli.commands.control.cp import CopiedBytes
from iris.cli.output.terminal import Terminal, shown
from iris_core.views.streams import ExecutionLine
from tests.support.answers import Said, answering, events, job_view

NASTY = "\033]0;owned\a\033[2J\x9b31m\b"
TITLE = "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\x08"
SSE = {"Content-Type": "text/event-stream"}


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("grün 日本", "grün 日本"),
        ("\033[1;31mred\033[0m", "\033[1;31mred\033[0m"),
        ("10%\r20%\r30%\n", "30%\n"),
        ("a\r\nb\r", "a\nb"),
        (NASTY, TITLE),
        ("\033[31", "\\x1b[31"),
        ("\0\x7f\u202e", "\\x00\\x7f\\u202e"),
        ("\033P\033\\", "\\x1bP\\x1b\\"),
        ("\033[8mhidden\033[0m", "\\x1b[8mhidden\033[0m"),
        ("\033[1;8;31mhidden", "\\x1b[1;8;31mhidden"),
        ("\033[30;40mhidden", "\\x1b[30;40mhidden"),
        ("\033[41mseen\033[31mhidden", "\033[41mseen\\x1b[31mhidden"),
        ("\033[38;5;7m\033[48;5;7mhidden", "\033[38;5;7m\\x1b[48;5;7mhidden"),
        ("\033[38;5;8mgrey\033[97;107m", "\033[38;5;8mgrey\\x1b[97;107m"),
        ("\033[31m\033[0;41mseen\033[39;49m", "\033[31m\033[0;41mseen\033[39;49m"),
    ],
)
def test_only_text_colours_and_line_ends_reach_a_terminal(text, seen):
    assert shown(text) == seen


def on_a_terminal(*words) -> str:
    """What a terminal was given by one command line."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "iris.cli", *words]
    with subprocess.Popen(
        command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=environ
    ) as process:
        os.close(theirs)
        pieces = []
        try:
            while piece := os.read(ours, 1 << 16):
                pieces.append(piece)
        except OSError:  # the terminal's other end is closed
            pass
        process.wait(30)
    os.close(ours)
    return b"".join(pieces).decode()


def test_colours_are_left_out_where_no_color_is_set(monkeypatch):
    """In tables, and in errors that end the command."""

    def answer(request):
        return Said(200, {"items": [job_view(state="failed")], "next_cursor": None})

    with answering(answer) as server:
        for words, coloured in (
            (("ls",), "\033[31mfailed"),
            (("context", "use", "none"), "\033[31m"),
        ):
            where = ("--url", server.url) if words == ("ls",) else ()
            monkeypatch.delenv("NO_COLOR", raising=False)
            assert coloured in on_a_terminal(*words, *where)
            monkeypatch.setenv("NO_COLOR", "1")
            assert "\033" not in on_a_terminal(*words, *where)


@pytest.mark.parametrize(
    ("stdout", "code", "said"),
    [(">/dev/full", 1, "error: No space left on device\n"), (">&-", 0, ""), (">&- <&-", 0, "")],
)
def test_output_that_cannot_be_written_is_an_error_and_none_is_not(stdout, code, said):
    page = {"items": [job_view()], "next_cursor": None}
    with answering(lambda _: Said(200, page)) as server:
        command = [
            "sh",
            "-c",
            f'exec "$@" {stdout}',
            "sh",
            sys.executable,
            "-m",
            "iris.cli",
            "ls",
            "--url",
            server.url,
        ]
        ended = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (code, said)


def printing(request):
    line = {
        "task": "/a/0",
        "index": 0,
        "attempt": 0,
        "stream": "stdout",
        "at": None,
        "offset": 0,
        "line": NASTY,
    }
    return Said(headers=SSE, body=events(("log", line), ("end", {"state": "succeeded"})))


def test_output_names_and_errors_are_escaped_on_a_terminal():
    with answering(printing) as server:
        assert TITLE in on_a_terminal("logs", "--url", server.url, "/a/0")
    told = on_a_terminal("show", "--url", f"http://127.0.0.1:1/{NASTY}", "/a")
    assert "\\x1b]0;owned" in told
    assert "\a" not in told


def test_raw_and_a_pipe_keep_every_byte():
    with answering(printing) as server:
        words = ("logs", "--url", server.url, "/a/0", "--no-prefix")
        piped = subprocess.run(
            [sys.executable, "-m", "iris.cli", *words], capture_output=True, check=True
        )
        assert piped.stdout.decode() == NASTY + "\n"
        assert NASTY in on_a_terminal(*words, "--raw")


def test_words_of_another_host_are_escaped_while_files_are_copied(monkeypatch):
    bytes_written = io.BytesIO()
    monkeypatch.setattr("sys.stderr", Terminal(bytes_written, "utf-8", line_buffering=True))
    lines = [
        ExecutionLine(stderr=b"tar: \033c\xc3"),
        ExecutionLine(stdout=b"data", stderr=b"\xa9\n"),
    ]
    assert CopiedBytes(lines).read() == b"data"
    assert bytes_written.getvalue().decode() == "tar: \\x1bcé\n"
