import io

import pytest

from iris.cli.output.progress import StatusLine


class Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self._terminal = terminal

    def isatty(self):
        return self._terminal


@pytest.mark.parametrize(("terminal", "drawn"), [(True, "\r\x1b[K  0 s  starting NATS\r\x1b[K"), (False, "")])
def test_a_terminal_is_told_what_is_waited_for_and_a_pipe_is_not(terminal, drawn):
    screen = Screen(terminal)
    with StatusLine(screen) as status:
        status.show("starting NATS")
        status.show("starting NATS")
    assert screen.getvalue() == drawn
