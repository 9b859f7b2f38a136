"""OpenTelemetry spans, recorded only if an OTLP endpoint is set; otherwise trace contexts are
passed on unchanged.

    with tracer.span("submit", tracer.context(request.headers), job=name) as traceparent:
        bus.publish(subject, data, headers={"traceparent": traceparent})
    tracer.record("plan", traceparent, began_ms, ended_ms, {"tasks": 12})

A trace context is the value of a W3C ``traceparent`` header; an empty string stands for none. The
SDK reads it, writes it and samples as ``OTEL_TRACES_SAMPLER`` says. Out of scope: what is worth a
    span (never a heartbeat).
Source: docs/operating.md#traces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

HEADER = "traceparent"
_FLUSH_MS = 3000
_current: ContextVar[str] = ContextVar("traceparent", default="")


def current() -> str:
    """The trace context of the running code; empty for none."""
    return _current.get()


def trace_id(traceparent: str) -> str:
    """The id in a trace context, 32 hexadecimal digits; empty for none."""
    return traceparent[3:35]


@dataclass(frozen=True, slots=True)
class BegunSpan:
    """A span that has begun.

    Attributes:
        traceparent: the context of what is below it. span: None when nothing is recorded.
    """

    traceparent: str
    span: Span | None = None
    began_ms: float = 0

    def end(self, ended_ms: float, attributes: Mapping[str, str | int]) -> None:
        """End it, not before it began."""
        if self.span is not None:
            self.span.set_attributes(attributes)
            self.span.end(int(max(self.began_ms, ended_ms) * 1e6))


class Tracer:
    """The spans of one service.

    Args:
        service: ``service.name`` of every span is ``iris-`` and this.
        endpoint: base URL of an OTLP collector over HTTP; empty for no spans.

    Raises ImportError, naming the extra, when there is an endpoint and the exporter is not
    installed.
    """

    def __init__(self, service: str, endpoint: str = "") -> None:
        self._provider = _provider(service, endpoint) if endpoint else None

    def context(self, headers: Mapping[str, str]) -> str:
        """The trace context that a request came with; empty when it has none or a malformed one."""
        given = headers.get(HEADER, "")
        return _header(_context(given)) if given else ""

    @contextmanager
    def span(self, name: str, parent: str = "", **attributes: str | int) -> Iterator[str]:
        """One span around the block; yields the context to send on. An exception marks the span as
        failed and is raised.
        """
        if self._provider is None:
            with _entered(parent):
                yield parent
            return
        tracer = self._provider.get_tracer("iris")
        with tracer.start_as_current_span(
            name, context=_context(parent), attributes=dict(attributes)
        ):
            made = _header()
            with _entered(made):
                yield made

    def begin(self, name: str, parent: str, began_ms: float) -> BegunSpan:
        """Begin a span in the trace of ``parent``; none without a parent. ``began_ms``: since the
        epoch.
        """
        context = _context(parent) if self._provider is not None and parent else None
        if self._provider is None or not context or not _header(context):
            return BegunSpan(parent)
        span = self._provider.get_tracer("iris").start_span(
            name, context, start_time=int(began_ms * 1e6)
        )
        return BegunSpan(_header_of(span), span, began_ms)

    def record(
        self,
        name: str,
        parent: str,
        began_ms: float,
        ended_ms: float,
        attributes: Mapping[str, str | int],
    ) -> str:
        """Record a finished span in the trace of ``parent`` and return its context; that of
        ``parent`` without one.
        """
        begun = self.begin(name, parent, began_ms)
        begun.end(ended_ms, attributes)
        return begun.traceparent

    @property
    def records(self) -> bool:
        """Whether there is a collector to send spans to."""
        return self._provider is not None

    def close(self) -> None:
        """Send the remaining spans; waits up to three seconds for the collector."""
        if self._provider is not None:
            self._provider.force_flush(_FLUSH_MS)
            self._provider.shutdown()


@contextmanager
def _entered(traceparent: str) -> Iterator[None]:
    before = _current.set(traceparent)
    try:
        yield
    finally:
        _current.reset(before)


def _provider(service: str, endpoint: str) -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ImportError(
            "an OTLP endpoint is set, and spans need: pip install 'iris-control-plane[otlp]'"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": f"iris-{service}"}))
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _context(traceparent: str) -> Context:
    """What the SDK reads from a header: a context without a span when it is malformed."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({HEADER: traceparent}, Context())


def _header_of(span: Span) -> str:
    """The header of what is below a span."""
    from opentelemetry.trace import set_span_in_context

    return _header(set_span_in_context(span))


def _header(context: Context | None = None) -> str:
    """The header that the SDK writes for a context, the current one by default; empty when it has
    no span.
    """
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers, context)
    return headers.get(HEADER, "")
