"""What a program traces, kept in memory: a tracer provider of OpenTelemetry's SDK for tests."""

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext


class Spans:
    """Collects the spans that end."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def take(self) -> list[ReadableSpan]:
        """Those that ended since the last time, in order."""
        found = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        return found


def _context(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def span_id(span: ReadableSpan) -> int:
    """Of one span."""
    return int(_context(span).span_id)


def linked_ids(span: ReadableSpan) -> list[int]:
    """Ids of the spans that a span is linked to."""
    return [int(link.context.span_id) for link in span.links]


def traceparent(span: ReadableSpan) -> str:
    """A span's context, as W3C Trace Context writes it."""
    context = _context(span)
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
