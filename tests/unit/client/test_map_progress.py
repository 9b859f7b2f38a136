"""The progress of a map, as people see it."""

import io
from concurrent.futures import Future

from iris.client.maps.progress import MapProgress, show_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Call(Future):
    task = "/m/1"


class Calls(list):
    """The calls of a map that is not open, or is until it says so."""

    is_open = False

    def listen(self, on_done):
        for future in self:
            future.add_done_callback(on_done)


def test_the_line_counts_calls_and_names_failures_as_they_happen():
    futures, terminal = Calls([Call(), Call()]), Terminal()
    show_progress("/m", futures, terminal)
    futures[1].set_exception(ValueError("odd"))
    futures[0].set_result(1)
    shown = terminal.getvalue().replace("\r\x1b[K", "")

    assert shown.splitlines()[0] == "/m/1: ValueError: odd"
    assert shown.endswith(f"/m [{'#' * 30}] 2/2, 1 failed\n")


def test_nothing_is_shown_where_nobody_looks():
    future, file = Call(), io.StringIO()
    show_progress("/m", Calls([future]), file)
    future.set_result(1)

    assert file.getvalue() == ""


def test_progress_shows_an_open_map_and_counts_cancelled_calls_as_failed():
    futures, terminal = Calls([Call(), Call()]), Terminal()
    futures.is_open = True
    shown = MapProgress("/m", futures, terminal)
    futures.listen(shown.on_done)
    futures[0].set_result(1)
    futures[1].cancel()

    assert shown.line() == f"/m [{'#' * 30}] 2/2+, 1 failed"
    assert "/m/1: CancelledError: cancelled\n" in terminal.getvalue()
    futures.is_open = False
    shown.on_closed()
    assert terminal.getvalue().endswith(f"/m [{'#' * 30}] 2/2, 1 failed\n")
