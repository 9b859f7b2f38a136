import io

import click
import pytest

from iris.cli.output.progress import Progress, StatusLine
from iris.client.decode import from_builtins
from iris_core.views.jobs import JobView
from tests.support.answers import job_view


class Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self._terminal = terminal

    def isatty(self):
        return self._terminal


@pytest.mark.parametrize(("colour", "styled"), [(None, True), (False, False)])
def test_the_bar_has_no_style_where_colours_are_left_out(colour, styled):
    """It is drawn by a thread, which knows nothing of the command that it is of."""
    screen = Screen(True)
    with click.Context(click.Command("run"), color=colour).scope():
        progress = Progress(screen)
    progress.show(from_builtins(job_view(state="running", task_counts={"running": 1}), JobView))
    assert ("\x1b[2m" in screen.getvalue(), "\x1b[34m" in screen.getvalue()) == (styled, styled)
    assert click.unstyle(screen.getvalue()).startswith("[--------------------] 0/1  1 running")


@pytest.mark.parametrize(
    ("terminal", "drawn"), [(True, "\r\x1b[K  0 s  starting NATS\r\x1b[K"), (False, "")]
)
def test_a_terminal_is_told_what_is_waited_for_and_a_pipe_is_not(terminal, drawn):
    screen = Screen(terminal)
    with StatusLine(screen) as status:
        status.show("starting NATS")
        status.show("starting NATS")
    assert screen.getvalue() == drawn
