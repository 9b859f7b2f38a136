"""The progress of a map, as people see it."""

import io
from concurrent.futures import Future

from iris.client.map_progress import show_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Call(Future):
    task = "/m/1"


def test_the_line_counts_calls_and_names_failures_as_they_happen():
    futures, terminal = [Call(), Call()], Terminal()
    show_progress("/m", futures, terminal)
    futures[1].set_exception(ValueError("odd"))
    futures[0].set_result(1)
    shown = terminal.getvalue().replace("\r\x1b[K", "")

    assert shown.splitlines()[0] == "/m/1: ValueError: odd"
    assert shown.endswith(f"/m [{'#' * 30}] 2/2, 1 failed\n")


def test_nothing_is_shown_where_nobody_looks():
    future, file = Call(), io.StringIO()
    show_progress("/m", [future], file)
    future.set_result(1)

    assert file.getvalue() == ""
