"""What of lines that have not ended is printed, to a terminal and to a file."""

from __future__ import annotations

import io
import sys

import pytest

from iris.cli.output.lines import LinePrinter
from iris.cli.output.progress import Progress
from iris.cli.output.terminal import ERASE, Terminal
from iris.client.decode import from_builtins
from iris_core.views.jobs import JobView
from iris_core.views.streams import LogLineView
from tests.support.answers import job_view


class Screen(io.BytesIO):
    """The bytes that a terminal gets."""

    def isatty(self) -> bool:
        return True


def line(
    text: str, *, continued: bool = False, index: int = 0, stream: str = "stdout"
) -> LogLineView:
    return LogLineView(
        task=f"/a/{index}",
        index=index,
        attempt=0,
        stream=stream,
        at=None,
        offset=0,
        line=text,
        continued=continued,
    )


def screen_of(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """stdout and stderr of one terminal."""
    screen = Screen()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, Terminal(screen, "utf-8", line_buffering=True))
    return screen


def pipe_of(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """stdout, of which a file is made."""
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, "utf-8"))
    return pipe


def test_a_progress_bar_is_drawn_over_itself(monkeypatch: pytest.MonkeyPatch):
    screen = screen_of(monkeypatch)
    printer = LinePrinter(prefix=True)
    for percent in (1, 2, 3):
        printer.print(line(f"\r{percent}%", continued=True))
    printer.print(line(""))
    assert screen.getvalue().decode() == f"0| 1%{ERASE}0| 2%{ERASE}0| 3%\n"


def test_a_bar_that_returns_at_its_end_is_drawn_over_too(monkeypatch: pytest.MonkeyPatch):
    screen = screen_of(monkeypatch)
    printer = LinePrinter(prefix=False)
    printer.print(line("1%\r", continued=True))
    printer.print(line("2%\r", continued=True))
    assert screen.getvalue().decode() == f"1%{ERASE}2%"


def test_a_line_of_another_task_ends_the_one_that_stands_there(monkeypatch: pytest.MonkeyPatch):
    screen = screen_of(monkeypatch)
    printer = LinePrinter(prefix=True)
    printer.print(line("he", continued=True))
    printer.print(line("oh", index=1, stream="stderr"))
    printer.print(line("llo"))
    printer.print(line("bye", continued=True))
    printer.print(line("x", index=1))
    printer.print(line(""))
    assert screen.getvalue().decode() == "0| he\n1| oh\n0| llo\n0| bye\n1| x\n"


def test_an_empty_line_ends_what_its_task_has_begun_on_the_other_stream(
    monkeypatch: pytest.MonkeyPatch,
):
    screen = screen_of(monkeypatch)
    printer = LinePrinter(prefix=False)
    printer.print(line("\r3%", continued=True, stream="stderr"))
    printer.print(line(""))
    printer.print(line("", stream="stderr"))
    printer.print(line("end"))
    assert screen.getvalue().decode() == "3%\nend\n"


def test_no_progress_of_the_job_is_drawn_into_an_unfinished_line(monkeypatch: pytest.MonkeyPatch):
    screen = screen_of(monkeypatch)
    progress = Progress(sys.stderr)
    progress.lines = LinePrinter(prefix=False)
    view = from_builtins(job_view(state="running"), JobView)
    progress.show(view)
    drawn = screen.getvalue()
    assert b"0/1" in drawn
    with progress.above(output=True):
        progress.lines.print(line("half", continued=True))
    progress.show(view)
    assert screen.getvalue() == drawn + f"{ERASE}half".encode()
    with progress.above():
        sys.stderr.write("note\n")
    assert screen.getvalue().startswith(drawn + f"{ERASE}half\nnote\n".encode())
    assert screen.getvalue().endswith(drawn)


def test_a_file_gets_the_bytes_as_they_were_printed(monkeypatch: pytest.MonkeyPatch):
    pipe = pipe_of(monkeypatch)
    printer = LinePrinter(prefix=False)
    printer.print(line("\r1%", continued=True))
    printer.print(line("\r2%", continued=True))
    printer.print(line("err", stream="stderr"))
    printer.print(line("\r3%"))
    data = LogLineView(
        task="/a/0",
        index=0,
        attempt=0,
        stream="stdout",
        at=None,
        offset=9,
        line="\ufffd",
        data=b"\x80",
    )
    printer.print(data)
    sys.stdout.flush()
    assert pipe.getvalue() == b"\r1%\r2%\r3%\n\x80\n"


class CountedFlushes(io.TextIOWrapper):
    """A file; ``flushes``: how often it was flushed."""

    flushes = 0

    def flush(self) -> None:
        self.flushes += 1
        super().flush()


def test_lines_that_come_together_are_shown_together_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
):
    """stdout and stderr are one file here, as of ``iris logs > all 2>&1``."""
    file = io.BytesIO()
    streams = {
        name: CountedFlushes(io.BufferedWriter(file), "utf-8")  # type: ignore[type-var]
        for name in ("stdout", "stderr")
    }
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    printer = LinePrinter(prefix=True)
    before = [stream.flushes for stream in streams.values()]
    for number in range(100):
        printer.print(line(f"o{number}"), flush=False)
    assert [stream.flushes for stream in streams.values()] == before
    printer.print(line("e", stream="stderr"), flush=False)
    printer.print(line("last"), flush=False)
    printer.flush()
    assert file.getvalue().decode().split() == [
        *(word for number in range(100) for word in ("0|", f"o{number}")),
        *("0|", "e", "0|", "last"),
    ]
