"""Log formats: JSON and plain text."""

import io
import json
import logging

import pytest

from iris_service import log_lines


@pytest.fixture
def lines():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()

    def set_up(style: str) -> io.StringIO:
        log_lines.set_up("state", style=style, stream=stream)
        return stream

    yield set_up
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_is_one_json_object_with_what_was_passed_as_extra(lines):
    stream = lines("json")
    logging.getLogger("iris_state.service.service").info(
        "assigned %s", "it", extra={"task": "/a/0", "attempt": 1}
    )
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "service": "state",
        "logger": "iris_state.service.service",
        "message": "assigned it",
        "task": "/a/0",
        "attempt": 1,
    }


def test_an_error_carries_its_traceback_on_the_same_line(lines):
    stream = lines("json")
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger().exception("oh")
    assert stream.getvalue().count("\n") == 1
    assert "ValueError: broken" in json.loads(stream.getvalue())["error"]


def test_what_json_cannot_say_is_said_as_text(lines):
    stream = lines("json")
    logging.getLogger().warning("odd", extra={"thing": object})
    assert json.loads(stream.getvalue())["thing"] == "<class 'object'>"


def test_plain_lines_name_the_fields_behind_the_message(lines):
    stream = lines("plain")
    logging.getLogger().warning("lost", extra={"worker": "w0"})
    assert stream.getvalue().endswith("state WARNING lost worker=w0\n")
