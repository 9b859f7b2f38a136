"""Spans are sent to the configured collector, and none are made without one."""

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_service import tracing
from iris_service.log_lines import JsonLines
from iris_service.tracing import Tracer

GIVEN = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
UNSAMPLED = GIVEN[:-1] + "0"


@pytest.fixture
def collected():
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from tests.support.collector import collector

    with collector() as found:
        yield found


def test_without_an_endpoint_the_context_is_passed_on_untouched():
    with Tracer("state").span("submit", GIVEN, job="/a") as traceparent:
        assert traceparent == tracing.current() == GIVEN
    assert tracing.current() == ""


def test_a_span_continues_the_trace_it_came_with(collected):
    tracer = Tracer("state", collected.url)
    with tracer.span("submit", GIVEN, job="/a") as traceparent:
        assert traceparent == tracing.current()
    tracer.close()
    [span] = collected.spans
    assert (span.service, span.name, span.attributes, span.failed) == (
        "iris-state",
        "submit",
        {"job": "/a"},
        False,
    )
    assert (span.trace_id, span.parent_id) == (GIVEN[3:35], GIVEN[36:52])
    assert traceparent == f"00-{span.trace_id}-{span.span_id}-01"
    assert collected.paths == ["/v1/traces"]


def test_a_span_without_a_parent_begins_a_trace(collected):
    tracer = Tracer("gateway", collected.url)
    with tracer.span("submit") as traceparent:
        pass
    tracer.close()
    assert [(span.trace_id, span.parent_id) for span in collected.spans] == [
        (tracing.trace_id(traceparent), "")
    ]


def test_an_exception_marks_the_span_and_goes_on(collected):
    tracer = Tracer("gateway", collected.url)
    with pytest.raises(LookupError), tracer.span("submit", GIVEN):
        raise LookupError
    tracer.close()
    assert [span.failed for span in collected.spans] == [True]


def test_what_is_over_is_recorded_with_its_times_in_a_trace_that_exists(collected):
    tracer = Tracer("worker", collected.url)
    tracer.record("run", GIVEN, 1000.0, 2000.5, {"exit_code": 3})
    tracer.record("back", GIVEN, 1000.0, 900.0, {})
    tracer.record("untraced", "", 1000.0, 2000.0, {})
    tracer.record("malformed", "rubbish", 1000.0, 2000.0, {})
    tracer.record("not sampled", UNSAMPLED, 1000.0, 2000.0, {})
    tracer.close()
    assert [
        (s.name, s.parent_id, s.began_ns, s.ended_ns, s.attributes) for s in collected.spans
    ] == [
        ("run", GIVEN[36:52], 1_000_000_000, 2_000_500_000, {"exit_code": 3}),
        ("back", GIVEN[36:52], 1_000_000_000, 1_000_000_000, {}),
    ]


def test_a_record_below_a_span_names_it_as_its_parent(collected):
    tracer = Tracer("state", collected.url)
    begun = tracer.begin("order", GIVEN, 1000.0)
    below = tracer.record("start", begun.traceparent, 1100.0, 1200.0, {})
    begun.end(1300.0, {"tasks": 2})
    assert tracer.begin("untraced", "", 1000.0).traceparent == ""
    assert tracer.record("malformed", "rubbish", 1000.0, 1100.0, {}) == "rubbish"
    tracer.close()
    start, order = collected.spans
    assert (order.parent_id, order.began_ns, order.ended_ns) == (
        GIVEN[36:52],
        1_000_000_000,
        1_300_000_000,
    )
    assert (order.attributes, begun.traceparent) == (
        {"tasks": 2},
        f"{GIVEN[:36]}{order.span_id}-01",
    )
    assert (start.parent_id, below) == (order.span_id, f"{GIVEN[:36]}{start.span_id}-01")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "0" * 16 + "-01",
        "ff-" + "1" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "G" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "1" * 16 + "-01-more",
        "rubbish\r\nX: 1",
    ],
)
def test_a_malformed_trace_context_is_none(header):
    assert Tracer("gateway").context({"traceparent": header}) == ""


@given(st.text())
def test_reading_a_trace_context_never_raises(header):
    assert len(Tracer("gateway").context({"traceparent": header})) in (0, len(GIVEN))


def test_a_line_of_the_log_names_the_trace_it_belongs_to():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines("gateway"))
    record = logging.LogRecord("iris", logging.INFO, "", 0, "submitted", (), None)
    with Tracer("gateway").span("submit", GIVEN):
        handler.emit(record)
    handler.emit(record)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line.get("trace_id") for line in lines] == [GIVEN[3:35], None]
