"""Spans for OpenTelemetry, made only where an OTLP endpoint is set; otherwise trace contexts are passed on as they are.

    with tracer.span("submit", Trace.of(message.headers), job=name) as trace:
        bus.publish(subject, data, headers={"traceparent": str(trace)})

Out of scope: contexts as text (`telemetry.Trace`); what is worth a span (never a heartbeat).
Source: docs/design/interfaces.md#metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from iris_bus.telemetry import Trace

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import SpanContext

_FLUSH_MS = 3000


class Tracer:
    """The spans of one service.

    Args:
        service: ``service.name`` of every span.
        endpoint: base URL of an OTLP collector over HTTP; empty for no spans.

    Raises ImportError, naming the extra, when there is an endpoint and the exporter is not installed.
    """

    def __init__(self, service: str, endpoint: str = "") -> None:
        self._provider = _provider(service, endpoint) if endpoint else None

    @contextmanager
    def span(
        self, name: str, parent: Trace | None = None, links: Sequence[Trace] = (), **attributes: str | int
    ) -> Iterator[Trace | None]:
        """One span around the block; gives the context to send on. An exception marks it as failed and goes on."""
        if self._provider is None:
            yield parent
            return
        from opentelemetry import trace

        with self._provider.get_tracer("iris").start_as_current_span(
            name,
            context=_remote(parent) if parent is not None else None,
            links=[trace.Link(_context(link)) for link in links],
            attributes=dict(attributes),
        ) as span:
            made = span.get_span_context()
            yield Trace(
                trace.format_trace_id(made.trace_id), trace.format_span_id(made.span_id), made.trace_flags.sampled
            )

    def close(self) -> None:
        """Send what is left; waits up to three seconds for the collector."""
        if self._provider is not None:
            self._provider.force_flush(_FLUSH_MS)
            self._provider.shutdown()


def _provider(service: str, endpoint: str) -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ImportError("an OTLP endpoint is set, and spans need: pip install 'iris[otlp]'") from error
    provider = TracerProvider(resource=Resource.create({"service.name": f"iris-{service}"}))
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _context(trace: Trace) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED if trace.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(trace.trace_id, 16), int(trace.span_id, 16), is_remote=True, trace_flags=flags)


def _remote(parent: Trace) -> Context:
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context

    return set_span_in_context(NonRecordingSpan(_context(parent)))
